#pragma once
// PackedMatrix: a weight matrix repacked at load for the kernels: groups of 16 output rows, each
// one strictly sequential stream over the blocks of a KPlan. One layout serves one token and many,
// and every instruction set.
//
// A (group, block) record holds 16 rows × 32 elements; elements outside [lo, hi) and rows past the
// end contribute nothing. Records by kind (record.h has the byte tables):
//   8-bit quants   u8 = q + zero, four consecutive k of a row side by side ("quads"), plus scales
//   4/5/6-bit      nibbles (and high bits) of the same quads, plus scales and, if the format has
//                  one, minimums
//   bf16           pairs of consecutive k of a row; f16 and f32: one k of 16 rows at a time
//
// Owner: the layer; movable, immutable after Finish or Attach. Threads: read by all workers.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.h"
#include "kernels/k_plan.h"
#include "tensor/view.h"

namespace cleave {

struct RecordLayout;  // kernels/record.h

// Of the bytes that packing makes of a matrix: one more whenever they change, for any type, so that
// those kept on disk (engine/packed_store.h) are not taken for these. A test holds them together.
inline constexpr uint32_t kPackedVersion = 1;

inline constexpr uint32_t kRowsPerGroup = 16;

// What activations are turned into before they meet weights of a type.
enum class ActKind : uint8_t {
  kInt8,  // quantised weights: blocks of int8 with a scale
  kBF16,  // bf16 weights
  kF32,   // fp32 and fp16 weights
};
ActKind ActKindOf(DType weights);

class PackedMatrix {
 public:
  // Where output row r of the packed matrix lies in `source` (a rank's slice, an undone
  // permutation); must be < source.rows() for every r < rows.
  using RowMap = std::function<uint64_t(uint64_t row)>;

  // Types and sizes of `rows` outputs, without memory: Reserve or Attach comes next. Fails:
  // kInvalidArgument when the plan reaches past source.cols(); kResourceExhausted when no memory
  // could hold it.
  static Result<PackedMatrix> Describe(const TensorView& source, uint32_t rows, KPlan plan);
  // Memory, which PackGroups then fills. Fails: kResourceExhausted.
  Status Reserve();
  // Describe and Reserve.
  static Result<PackedMatrix> Allocate(const TensorView& source, uint32_t rows, KPlan plan);
  // In place of packing: bytes() packed before, 64-byte aligned, which outlive the matrix.
  void Attach(const std::byte* packed, float max_row_norm);
  // Repacks groups [begin, end); different ranges may run on different threads.
  void PackGroups(const TensorView& source, const RowMap& row_map, uint32_t begin, uint32_t end);
  // After all groups are packed: computes max_row_norm() from the packed values.
  void Finish();

  // bytes() of a matrix of that type, outputs and plan, without making it.
  static uint64_t BytesOf(DType dtype, uint64_t rows, const KPlan& plan);

  PackedMatrix() = default;
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] uint32_t rows() const { return rows_; }
  [[nodiscard]] uint32_t groups() const { return groups_; }
  [[nodiscard]] const KPlan& plan() const { return plan_; }
  [[nodiscard]] size_t record_bytes() const { return record_bytes_; }
  [[nodiscard]] const std::byte* group_data(uint32_t group) const {
    return data_.get() + static_cast<size_t>(group) * plan_.blocks.size() * record_bytes_;
  }
  [[nodiscard]] size_t bytes() const {
    return static_cast<size_t>(groups_) * plan_.blocks.size() * record_bytes_;
  }
  // An upper bound of the largest 2-norm of a row's slice: the bound of the int32 sums.
  [[nodiscard]] float max_row_norm() const { return max_row_norm_; }
  // Row `row` as fp32, in the plan's element order scattered to absolute K positions; for tests and
  // embedding look-ups of a tied head. out has room for the matrix's whole K.
  void UnpackRow(uint32_t row, float* out) const;

 private:
  struct Free {
    size_t bytes;  // 0: somebody else's
    void operator()(std::byte* p) const;
  };

  // One source row into a lane of a group's zeroed stream; its slice's squared 2-norm.
  double PackRow(const RecordLayout& layout, const std::byte* row, uint32_t lane,
                 std::byte* stream) const;

  DType dtype_ = DType::kF32;
  uint32_t rows_ = 0;
  uint32_t groups_ = 0;
  size_t record_bytes_ = 0;
  float max_row_norm_ = 0;
  KPlan plan_;
  std::unique_ptr<std::byte[], Free> data_{
      nullptr, Free{0}};                  // 64-byte aligned, huge pages where they can be had
  std::unique_ptr<float[]> group_norms_;  // [groups]; filled by PackGroups, read by Finish
};

}  // namespace cleave

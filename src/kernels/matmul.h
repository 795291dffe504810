#pragma once
// Matrix products with the project's one arithmetic (docs/arithmetic.md): outputs in lanes, K
// sequential, one chain per output, so that the batch, the thread count and the instruction set
// change no bit.
//
// Activations are prepared once per plan and kind, then multiplied by any number of matrices that
// share them. Threads split output groups (and Prepare splits rows); every call works on the range
// it is given and allocates nothing. All pointers 64-byte aligned where they come from ActBuffer.
// The caller's thread holds a ScopedFpMode.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/isa.h"
#include "kernels/packed_matrix.h"

namespace cleave {

// Room for `max_rows` prepared activation rows over at most `max_blocks` blocks, any kind.
class ActBuffer {
 public:
  ActBuffer(uint32_t max_rows, uint32_t max_blocks);

  // Layout of kInt8: q [row][block][32] int8; scale [row][block] f32; sum [row][block] int32 (Σq);
  // half_sum [row][block] (Σq of elements 0..15). Rows are max_blocks() apart.
  // kBF16: [row][block][32] u16; kF32: [row][block][32] f32. Elements outside a block are zero.
  [[nodiscard]] int8_t* q() const { return reinterpret_cast<int8_t*>(data_.get()); }
  [[nodiscard]] uint16_t* bf16() const { return reinterpret_cast<uint16_t*>(data_.get()); }
  [[nodiscard]] float* f32() const { return reinterpret_cast<float*>(data_.get()); }
  [[nodiscard]] float* scale() const { return scale_.get(); }
  [[nodiscard]] int32_t* sum() const { return sum_.get(); }
  [[nodiscard]] int32_t* half_sum() const { return half_sum_.get(); }
  [[nodiscard]] uint32_t max_rows() const { return max_rows_; }
  // At least what was asked for: padded so that rows do not share cache sets.
  [[nodiscard]] uint32_t max_blocks() const { return max_blocks_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  uint32_t max_rows_;
  uint32_t max_blocks_;
  std::unique_ptr<std::byte[], Free> data_;
  std::unique_ptr<float[]> scale_;
  std::unique_ptr<int32_t[]> sum_;
  std::unique_ptr<int32_t[]> half_sum_;
};

// Rows [row_begin, row_end) of x ([rows, x_stride] fp32, row_elements used) into `out`.
// kInt8: per block d = amax/127, q = rne(x·(1/d)), Σq; a block whose amax is under 2^-100 is zeros.
// A block with a NaN or an infinity gets scale NaN and q 0, so that whatever it meets is NaN.
void PrepareActs(Isa isa, ActKind kind, const KPlan& plan, const float* x, size_t x_stride,
                 uint32_t row_begin, uint32_t row_end, ActBuffer* out);

// Two terms for inputs whose rounding shows in the answer (docs/arithmetic.md): row r of x becomes
// rows 2r and 2r + 1 of `out`: its int8 blocks as above, and those of what they leave, x - q·d.
// int8 only.
void PrepareTwoTerms(Isa isa, const KPlan& plan, const float* x, size_t x_stride,
                     uint32_t row_begin, uint32_t row_end, ActBuffer* out);

// How a buffer's rows are read: each by itself; or pairs of PrepareTwoTerms, by their first term
// alone, or by both, whose chains (row-parallel: whose integers) are added at the end.
enum class ActTerms { kOne, kFirstOfTwo, kTwo };

// Column-parallel: y[row][16·g + lane] for groups [group_begin, group_end) and rows [0, rows).
// One chain over all blocks. y is [rows, y_stride] fp32; columns past w.rows() are not written.
// Row 0 is the buffer's row (of terms: its pair) `first_row`.
void MatmulColumn(Isa isa, const PackedMatrix& w, const ActBuffer& a, uint32_t rows,
                  uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride,
                  ActTerms terms = ActTerms::kOne, uint32_t first_row = 0);

// Row-parallel: per output, each sum group's fp32 chain becomes an integer count of quanta by
// rne(sum · 2^shift[row]) and groups are added as integers. shift[row] = 20 - e for the residual
// row's exponent e (|shift| ≤ 60), or 36 for the absolute quantum of post-norm families.
// Int8 kind: the power of two is folded into the block scale before the chain, float kinds into the
// group's sum; both are exact.
//   wide[row] == 0: the caller knows (RowFitsInt32) that every partial fits int32;
//   otherwise that row's groups are added in int64.
// totals is [rows, stride] int64, written whole for groups in range (int32 sums are widened).
void MatmulRow(Isa isa, const PackedMatrix& w, const ActBuffer& a, uint32_t rows,
               const int32_t* shift, const uint8_t* wide, uint32_t group_begin, uint32_t group_end,
               int64_t* totals, size_t stride, ActTerms terms = ActTerms::kOne);

// The tokens of one expert of a mixture, in any order (kernels/moe.h makes them). Row r of the
// expert's activations, row (of terms: pair) first + r of their buffer, belongs to row token[r] of
// the totals.
struct ExpertRows {
  uint32_t rows = 0;
  uint32_t first = 0;
  const uint32_t* token = nullptr;  // [rows]
  const float* gate = nullptr;      // [rows]
  const uint8_t* wide = nullptr;    // [rows]; as above, for RowBound · |gate|
  const int32_t* shift = nullptr;   // [rows of totals]
};

// Row-parallel, one expert: adds gate[r] times row r's product, in quanta, to row token[r] of the
// totals, which the caller cleared before the step's first expert. The gate multiplies what 2^shift
// multiplies (int8: the block scale; else the group's sum), rounded once with it, so experts add as
// groups do: in any order, however they and their columns are split. Threads split output groups,
// each for all experts: two threads never add to the same total.
void MatmulExpert(Isa isa, const PackedMatrix& w, const ActBuffer& a, const ExpertRows& expert,
                  uint32_t group_begin, uint32_t group_end, int64_t* totals, size_t stride,
                  ActTerms terms = ActTerms::kOne);

// What no partial sum of a row of the buffer exceeds, in quanta: ‖a‖₂ · max_row_norm · 2^shift,
// with ‖a‖₂ taken over the prepared values of the row. Of a pair ask for the first term's, 2r: what
// it leaves is smaller. NaN or infinite where the row is. Bounds of experts, each times its |gate|,
// add up to the bound of a token's total.
double RowBound(ActKind kind, const ActBuffer& a, const KPlan& plan, uint32_t row,
                float max_row_norm, int32_t shift);
// Sums whose bound is under it fit int32, whatever their groups' rounding adds.
inline constexpr double kNarrowBound = 0x1p30;
// Whether int32 surely holds every partial sum of a row: RowBound < 2^30. False for NaN.
bool RowFitsInt32(ActKind kind, const ActBuffer& a, const KPlan& plan, uint32_t row,
                  float max_row_norm, int32_t shift);

// Rows source_rows[r] of `from` to rows r of `to`, r in [row_begin, row_end): as if their floats
// had been gathered and prepared by `plan`. Different buffers; rows of pairs are asked for one by
// one.
void GatherActs(ActKind kind, const ActBuffer& from, const KPlan& plan, const uint32_t* source_rows,
                uint32_t row_begin, uint32_t row_end, ActBuffer* to);

}  // namespace cleave

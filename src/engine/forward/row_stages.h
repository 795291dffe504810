#pragma once
// RowStages: rows on their way into a matrix product: normed, prepared as the matrix wants them,
// with the quanta of their sums.
//
// All threads share one stage for many rows, each preparing its share, and meet; for few rows each
// thread prepares all of them for itself, which costs less than a meeting. Of a large step's rows
// each tp rank norms a share, where the layers' stages are told so (normed_rows.h).
// Owner: a part of the forward pass. Calls inside ThreadPool::Run, from every thread with equal
// arguments. No allocation after construction.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/forward/normed_rows.h"
#include "engine/forward/rank_context.h"
#include "kernels/matmul.h"

namespace cleave {

class RowStages {
 public:
  // At most so many rows are prepared by every thread for itself.
  static constexpr uint32_t kPrivateRows = 2;

  struct Stage {
    Stage(uint32_t rows, uint32_t hidden_size);
    std::vector<float> hidden;  // [rows, D] normed
    // By ActKind, those the matrices want. int8 has two rows for each: some inputs take two terms.
    NormedRows::Prepared prepared;
    std::vector<int32_t> shift;  // [rows] quanta of the residual rows
    std::vector<uint8_t> wide;   // [rows] 1 = int64 sums
  };

  // Whether tp ranks share the rows that they norm. x then needs their own rows only.
  enum class Norms : uint8_t { kWhole, kShared };

  // `matrices`: all that will be multiplied.
  RowStages(const RankContext& context, uint32_t max_rows,
            std::span<const PackedMatrix* const> matrices, Norms norms);
  ~RowStages();
  RowStages(const RowStages&) = delete;
  RowStages& operator=(const RowStages&) = delete;

  Stage& Of(uint32_t rows, uint32_t thread);
  // The rows a thread prepares.
  [[nodiscard]] ThreadPool::Share ShareOf(uint32_t rows, uint32_t thread) const;

  // stage.hidden = norm(x) row by row, prepared for `matrices`, which take one K; remembers the
  // rows' quanta. `row_of` names the rows of x to take; null: 0, 1, ….
  void Norm(Stage* stage, const float* x, const uint32_t* row_of, uint32_t rows,
            const std::vector<float>& norm, std::span<const PackedMatrix* const> matrices,
            ActTerms terms, uint32_t thread);
  // Rows of a row-parallel product's input, and which of them need int64 sums.
  void PrepareSum(Stage* stage, const float* source, size_t stride, uint32_t rows,
                  const PackedMatrix& w, ActTerms terms, uint32_t thread);
  // y = stage·wᵀ, this thread's share of the columns.
  void Column(const PackedMatrix& w, const Stage& stage, uint32_t rows, ActTerms terms, float* y,
              uint32_t thread) const;

  // Calls fn(begin, end) for this thread's groups of w's rows, so many at a time that the rank
  // gives a sign of life about every 2^30 products: a large batch's product may take longer than a
  // hang's deadline.
  template <typename Fn>
  static void ForGroups(const RankContext& context, const PackedMatrix& w, uint32_t rows,
                        uint32_t thread, Fn&& fn) {
    const ThreadPool::Share groups = context.pool->ShareOf(w.groups(), thread);
    const uint64_t products_a_group = uint64_t{32 * kRowsPerGroup} * w.plan().blocks.size() * rows;
    const uint64_t most =
        std::max<uint64_t>((1U << 30U) / std::max<uint64_t>(products_a_group, 1), 1);
    for (uint32_t begin = groups.begin; begin < groups.end;) {
      const auto end = static_cast<uint32_t>(std::min<uint64_t>(groups.end, begin + most));
      if (thread == 0) context.comm.Beat();
      fn(begin, end);
      begin = end;
    }
  }

  // Of the exchange of normed rows.
  [[nodiscard]] Status status() const;
  [[nodiscard]] WireCounts normed_rows() const;

  [[nodiscard]] static const ActBuffer& ActsFor(const Stage& stage, const PackedMatrix& w);
  // Only int8 activations have a second term.
  [[nodiscard]] static ActTerms TermsFor(const PackedMatrix& w, ActTerms wanted);

 private:
  void Prepare(Stage* stage, const PackedMatrix& w, const float* source, size_t stride,
               ActTerms terms, ThreadPool::Share rows) const;
  // Once for each kind.
  void PrepareNormed(Stage* stage, std::span<const PackedMatrix* const> matrices, ActTerms terms,
                     ThreadPool::Share rows) const;
  void GatherNormed(Stage* stage, std::span<const PackedMatrix* const> matrices, ActTerms terms,
                    uint32_t rows, RowWire wire, uint32_t thread);
  void Meet(uint32_t rows);

  const RankContext& context_;
  const SumRule sum_rule_;
  std::unique_ptr<NormedRows> exchange_;  // null: every rank norms all rows
  std::unique_ptr<Stage> shared_;
  std::vector<std::unique_ptr<Stage>> private_;  // [threads]
};

}  // namespace cleave

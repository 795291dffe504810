#pragma once
// RowSum: a row-parallel product, added to the residual rows.
//
//   x += stage·wᵀ, summed over the ranks that hold parts of its K, as integers
//   (docs/arithmetic.md); post-norm families: x += norm(stage·wᵀ)
// Where tp ranks share a large step's rows (TpSharesRows), a rank adds up its own; in the others x
// is no longer true.
//
// Owner: the decoder. Add and AddTotals are called inside ThreadPool::Run by every thread with
// equal arguments, and end with all of them having met. No allocation after construction. An error
// of the group is kept in status(): the rows then mean nothing.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/forward/rank_context.h"
#include "engine/forward/row_stages.h"

namespace cleave {

// Quanta of rows of totals, and which of them may pass int32.
struct RowQuanta {
  const int32_t* shift = nullptr;  // [rows]
  const uint8_t* wide = nullptr;   // [rows]
};

class RowSum {
 public:
  explicit RowSum(const RankContext& context);
  virtual ~RowSum() = default;

  // x: [rows, D]. post_norm: [D] or empty.
  void Add(const PackedMatrix& w, const RowStages::Stage& stage, uint32_t rows,
           const std::vector<float>& post_norm, ActTerms terms, float* x, uint32_t thread);

  // The same for a product that the caller made: thread t left columns ColumnsOf(t) of totals().
  virtual void AddTotals(const RowQuanta& quanta, uint32_t rows,
                         const std::vector<float>& post_norm, float* x, uint32_t thread) = 0;
  [[nodiscard]] int64_t* totals() { return totals_.data(); }  // [T of all teams, D]
  [[nodiscard]] ThreadPool::Share ColumnsOf(uint32_t thread) const;

  [[nodiscard]] virtual Status status() const { return OkStatus(); }
  // Rows that this rank put into reductions as int64, since the start.
  [[nodiscard]] virtual uint64_t wide_rows() const { return 0; }

 protected:
  const RankContext& context_;
  std::vector<int64_t> totals_;
};

// Alone, or over the tp group: chosen by the context.
std::unique_ptr<RowSum> MakeRowSum(const RankContext& context);

// x += norm(y) for a thread's share of these rows ([rows.end, D]; y is overwritten); then all meet.
void AddNormedRows(const RankContext& context, const std::vector<float>& post_norm, Range rows,
                   float* y, float* x, uint32_t thread);

}  // namespace cleave

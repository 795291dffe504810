#pragma once
// RowSum: a row-parallel product, added to the residual rows.
//
//   x += stage·wᵀ, summed over the ranks that hold parts of its K, as integers
//   (docs/arithmetic.md); post-norm families: x += norm(stage·wᵀ)
//
// Owner: the decoder. Add is called inside ThreadPool::Run by every thread with equal arguments,
// and ends with all of them having met. No allocation after construction. An error of the group is
// kept in status(): the rows then mean nothing.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/forward/rank_context.h"
#include "engine/forward/row_stages.h"

namespace cleave {

class RowSum {
 public:
  virtual ~RowSum() = default;
  // x: [rows, D]. post_norm: [D] or empty.
  virtual void Add(const PackedMatrix& w, const RowStages::Stage& stage, uint32_t rows,
                   const std::vector<float>& post_norm, ActTerms terms, float* x,
                   uint32_t thread) = 0;
  [[nodiscard]] virtual Status status() const { return OkStatus(); }
  // Rows that this rank put into reductions as int64, since the start.
  [[nodiscard]] virtual uint64_t wide_rows() const { return 0; }
};

// Alone, or over the tp group: chosen by the context.
std::unique_ptr<RowSum> MakeRowSum(const RankContext& context);

}  // namespace cleave

#pragma once
// DenseFfn: the second half of a layer, with the FFN columns a rank holds.
//
//   h = norm(x)   f = act(h·Wgateᵀ) · (h·Wupᵀ)   x += f·Wdownᵀ, over the ranks (row_sum.h)
//
// Owner: the decoder. Run is called inside ThreadPool::Run on every thread. No allocation after
// construction.

#include <cstdint>
#include <vector>

#include "engine/forward/rank_context.h"
#include "engine/forward/row_stages.h"
#include "engine/forward/row_sum.h"

namespace cleave {

class DenseFfn {
 public:
  DenseFfn(const RankContext& context, RowStages* stages, RowSum* sum);
  // `layer` counts from the rank's first one. x: [rows, D].
  void Run(uint32_t layer, uint32_t rows, float* x, uint32_t thread);

 private:
  const RankContext& context_;
  RowStages* const stages_;
  RowSum* const sum_;
  const uint32_t columns_;   // F of this rank
  std::vector<float> gate_;  // [T, F]
  std::vector<float> up_;    // [T, F]
};

}  // namespace cleave

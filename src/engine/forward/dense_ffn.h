#pragma once
// DenseFfn: the second half of a dense layer, with the FFN columns a rank holds.
//
//   h = norm(x)   f = act(h·Wgateᵀ) · (h·Wupᵀ)   x += f·Wdownᵀ, over the ranks (row_sum.h)

#include <cstdint>
#include <vector>

#include "engine/forward/ffn.h"

namespace cleave {

class DenseFfn final : public Ffn {
 public:
  DenseFfn(const RankContext& context, RowStages* stages, RowSum* sum);
  void Run(uint32_t layer, uint32_t rows, float* x, uint32_t thread) override;

 private:
  const RankContext& context_;
  RowStages* const stages_;
  RowSum* const sum_;
  const uint32_t columns_;   // F of this rank
  std::vector<float> gate_;  // [T, F]
  std::vector<float> up_;    // [T, F]
};

}  // namespace cleave

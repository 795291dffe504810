#pragma once
// Router: from residual rows to the experts they go to. Never split: a rank routes whole rows.
//
// Owner: a mixture's Ffn. Run is called inside ThreadPool::Run on every thread with equal arguments
// and ends with all of them having met. No allocation after construction.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward/rank_context.h"
#include "engine/forward/row_stages.h"
#include "kernels/moe.h"

namespace cleave {

class Router {
 public:
  // Routes at most max_rows rows at once.
  Router(const RankContext& context, RowStages* stages, uint32_t max_rows);

  // Rows of x ([rows, D]): normed and prepared, in the stage returned, for the router and, with
  // kExperts, for the gates and ups of the experts held here; then chosen and gated.
  enum class Inputs { kRouter, kExperts };
  RowStages::Stage& Run(uint32_t layer, Inputs inputs, uint32_t rows, const float* x,
                        uint32_t thread);

  [[nodiscard]] const RouterShape& shape() const { return shape_; }
  // [rows][top_k] of the last Run.
  [[nodiscard]] const uint32_t* chosen() const { return chosen_.data(); }
  [[nodiscard]] const float* gates() const { return gates_.data(); }

 private:
  const RankContext& context_;
  RowStages* const stages_;
  const RouterShape shape_;
  // [layers] the router, and of the experts' gates and ups one of each kind of input.
  std::vector<std::vector<const PackedMatrix*>> inputs_;
  std::vector<float> logits_;     // [T, E]
  std::vector<uint32_t> chosen_;  // [T, k]
  std::vector<float> gates_;      // [T, k]
};

}  // namespace cleave

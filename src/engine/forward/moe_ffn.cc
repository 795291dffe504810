#include "engine/forward/moe_ffn.h"

namespace cleave {

MoeFfn::MoeFfn(const RankContext& context, RowStages* stages, RowSum* sum)
    : context_(context),
      sum_(sum),
      router_(context, stages, context.max_batch_tokens),
      experts_(context, context.max_batch_tokens),
      tokens_(context.config->num_experts) {}

// All tp ranks have these rows; so do all cp ranks, unless they share them out.
void MoeFfn::Plan(const StepRows& step) {
  const RankCoord& coord = context_.mine().coord;
  counts_ = coord.tp == 0 && (coord.cp == 0 || step.shared);
}

void MoeFfn::Run(uint32_t layer, uint32_t rows, float* x, uint32_t thread) {
  const LayerWeights& w = context_.weights->layers[layer];
  const RowStages::Stage& stage = router_.Run(layer, Router::Inputs::kExperts, rows, x, thread);
  if (thread == 0) {
    experts_.Assign(router_.chosen(), router_.gates(), rows);
    const size_t pairs = counts_ ? static_cast<size_t>(rows) * router_.shape().top_k : 0;
    for (size_t i = 0; i < pairs; ++i) ++tokens_[router_.chosen()[i]];
  }
  context_.pool->Barrier();
  experts_.Run(layer, stage.prepared, stage.shift.data(), sum_->ColumnsOf(thread), sum_->totals(),
               thread);
  sum_->AddTotals({.shift = stage.shift.data(), .wide = experts_.wide()}, rows, w.ffn_post_norm, x,
                  thread);
}

}  // namespace cleave

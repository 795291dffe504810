#include "engine/forward/router.h"

#include <algorithm>

namespace cleave {
namespace {

RouterShape RouterShapeOf(const ModelConfig& config) {
  return {.experts = config.num_experts,
          .top_k = config.experts_per_token,
          .rule = config.norm_topk_prob ? GateRule::kSoftmaxOfChosen : GateRule::kSoftmaxOfAll};
}

std::vector<const PackedMatrix*> InputsOf(const LayerWeights& w) {
  std::vector<const PackedMatrix*> inputs{&w.router};
  for (const ExpertWeights& expert : w.experts) {
    for (const PackedMatrix* m : {&expert.gate, &expert.up}) {
      const auto same = [m](const PackedMatrix* other) {
        return ActKindOf(other->dtype()) == ActKindOf(m->dtype());
      };
      if (std::none_of(inputs.begin(), inputs.end(), same)) inputs.push_back(m);
    }
  }
  return inputs;
}

}  // namespace

Router::Router(const RankContext& context, RowStages* stages, uint32_t max_rows)
    : context_(context),
      stages_(stages),
      shape_(RouterShapeOf(*context.config)),
      logits_(static_cast<size_t>(max_rows) * shape_.experts),
      chosen_(static_cast<size_t>(max_rows) * shape_.top_k),
      gates_(chosen_.size()) {
  for (const LayerWeights& w : context.weights->layers) inputs_.push_back(InputsOf(w));
}

RowStages::Stage& Router::Run(uint32_t layer, Inputs inputs, uint32_t rows, const float* x,
                              uint32_t thread) {
  const LayerWeights& w = context_.weights->layers[layer];
  RowStages::Stage& stage = stages_->Of(rows, thread);
  std::span<const PackedMatrix* const> matrices = inputs_[layer];
  if (inputs == Inputs::kRouter) matrices = matrices.first(1);
  stages_->Norm(&stage, x, nullptr, rows, w.ffn_norm, matrices, ActTerms::kOne, thread);
  stages_->Column(w.router, stage, rows, ActTerms::kOne, logits_.data(), thread);
  context_.pool->Barrier();
  const ThreadPool::Share share = context_.pool->ShareOf(rows, thread);
  RouteTokens(context_.isa, shape_, logits_.data(), shape_.experts, share.begin, share.end,
              chosen_.data(), gates_.data());
  context_.pool->Barrier();
  return stage;
}

}  // namespace cleave

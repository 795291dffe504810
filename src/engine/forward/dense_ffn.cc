#include "engine/forward/dense_ffn.h"

#include <algorithm>
#include <array>

#include "kernels/vector_ops.h"

namespace cleave {

DenseFfn::DenseFfn(const RankContext& context, RowStages* stages, RowSum* sum)
    : context_(context),
      stages_(stages),
      sum_(sum),
      columns_(context.mine().ffn_columns.size()),
      gate_(static_cast<size_t>(context.max_batch_tokens) * columns_),
      up_(gate_.size()) {}

void DenseFfn::Run(uint32_t layer, uint32_t rows, float* x, uint32_t thread) {
  const LayerWeights& w = context_.weights->layers[layer];
  RowStages::Stage& stage = stages_->Of(rows, thread);
  const std::array<const PackedMatrix*, 2> inputs{&w.gate, &w.up};
  stages_->Norm(&stage, x, nullptr, rows, w.ffn_norm, inputs, ActTerms::kOne, thread);
  stages_->Column(w.gate, stage, rows, ActTerms::kOne, gate_.data(), thread);
  stages_->Column(w.up, stage, rows, ActTerms::kOne, up_.data(), thread);
  // gate and up have the same groups, so a thread finishes the columns it just made.
  const ThreadPool::Share groups = context_.pool->ShareOf(w.gate.groups(), thread);
  const uint32_t begin = groups.begin * kRowsPerGroup;
  const uint32_t end = std::min(groups.end * kRowsPerGroup, columns_);
  for (uint32_t row = 0; row < rows; ++row) {
    const size_t at = static_cast<size_t>(row) * columns_ + begin;
    GatedActivation(context_.isa, context_.config->activation, &gate_[at], &up_[at], end - begin,
                    &gate_[at]);
  }
  context_.pool->Barrier();
  stages_->PrepareSum(&stage, gate_.data(), columns_, rows, w.down, ActTerms::kTwo, thread);
  sum_->Add(w.down, stage, rows, w.ffn_post_norm, ActTerms::kTwo, x, thread);
}

}  // namespace cleave

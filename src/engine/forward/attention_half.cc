#include "engine/forward/attention_half.h"

#include <algorithm>
#include <array>

namespace cleave {
AttentionHalf::AttentionHalf(const RankContext& context, KvCache* kv, RowStages* stages,
                             RowSum* sum)
    : context_(context),
      stages_(stages),
      sum_(sum),
      core_(MakeAttentionCore(context, kv)),
      heads_(context.mine().q_heads.size()),
      kv_heads_(context.mine().kv_heads.size()) {
  const size_t tokens = context.max_batch_tokens;
  const size_t d = context.config->head_dim;
  rows_.q.resize(tokens * heads_ * d);
  rows_.k.resize(tokens * kv_heads_ * d);
  rows_.v.resize(tokens * kv_heads_ * d);
  rows_.out.resize(tokens * heads_ * d);
  FindRopeSettings();
  rope_rows_.resize(ropes_.size() * tokens * d);
}

void AttentionHalf::FindRopeSettings() {
  // Layers with the same rotary settings share their rows.
  const Range layers = context_.mine().layers;
  std::vector<const LayerConfig*> seen;
  for (uint32_t i = layers.begin; i < layers.end; ++i) {
    const LayerConfig& layer = context_.config->layers[i];
    const auto same = std::find_if(seen.begin(), seen.end(), [&](const LayerConfig* other) {
      return other->rope_theta == layer.rope_theta && other->rope_scaling == layer.rope_scaling;
    });
    rope_of_layer_.push_back(static_cast<uint32_t>(same - seen.begin()));
    if (same != seen.end()) continue;
    seen.push_back(&layer);
    ropes_.emplace_back(layer.rope_theta, layer.rope_scaling, context_.config->head_dim);
  }
}

float* AttentionHalf::RopeRow(uint32_t rope, uint32_t row) {
  const size_t index = static_cast<size_t>(rope) * context_.max_batch_tokens + row;
  return &rope_rows_[index * context_.config->head_dim];
}

// The rows that FinishRow takes on the same thread: nobody has to wait for them.
void AttentionHalf::MakeRopeRows(const StepRows& step, uint32_t thread) {
  const ThreadPool::Share share = context_.pool->ShareOf(step.own.size(), thread);
  for (uint32_t i = share.begin; i < share.end; ++i) {
    const uint32_t row = step.own.begin + i;
    for (uint32_t rope = 0; rope < ropes_.size(); ++rope) {
      ropes_[rope].MakeRow(step.position_of[row], RopeRow(rope, row));
    }
  }
}

void AttentionHalf::Run(uint32_t layer, const StepRows& step, float* x, uint32_t thread) {
  const LayerWeights& w = context_.weights->layers[layer];
  const size_t d = context_.config->head_dim;
  const uint32_t own = step.own.size();
  const size_t q_at = step.own.begin * heads_ * d;
  const size_t kv_at = step.own.begin * kv_heads_ * d;
  float* own_x = x + static_cast<size_t>(step.own.begin) * context_.hidden_size();
  RowStages::Stage& stage = stages_->Of(own, thread);
  const std::array<const PackedMatrix*, 3> inputs{&w.q, &w.k, &w.v};
  // V's rounding goes into the residual undamped, that of Q and K only through the softmax.
  stages_->Norm(&stage, own_x, nullptr, own, w.attn_norm, inputs, ActTerms::kTwo, thread);
  stages_->Column(w.q, stage, own, ActTerms::kFirstOfTwo, &rows_.q[q_at], thread);
  stages_->Column(w.k, stage, own, ActTerms::kFirstOfTwo, &rows_.k[kv_at], thread);
  stages_->Column(w.v, stage, own, ActTerms::kTwo, &rows_.v[kv_at], thread);
  context_.pool->Barrier();
  const ThreadPool::Share share = context_.pool->ShareOf(own, thread);
  for (uint32_t i = share.begin; i < share.end; ++i) FinishRow(layer, step.own.begin + i);
  core_->Run(layer, step, &rows_, thread);
  stages_->PrepareSum(&stage, &rows_.out[q_at], heads_ * d, own, w.o, ActTerms::kOne, thread);
  sum_->Add(w.o, stage, own, w.attn_post_norm, ActTerms::kOne, own_x, thread);
}

void AttentionHalf::FinishRow(uint32_t layer, uint32_t row) {
  const LayerWeights& w = context_.weights->layers[layer];
  const Isa isa = context_.isa;
  const uint32_t d = context_.config->head_dim;
  float* q = &rows_.q[static_cast<size_t>(row) * heads_ * d];
  float* k = &rows_.k[static_cast<size_t>(row) * kv_heads_ * d];
  float* v = &rows_.v[static_cast<size_t>(row) * kv_heads_ * d];
  if (!w.q_bias.empty()) {
    AddInPlace(isa, q, w.q_bias.data(), heads_ * d);
    AddInPlace(isa, k, w.k_bias.data(), kv_heads_ * d);
    AddInPlace(isa, v, w.v_bias.data(), kv_heads_ * d);
  }
  if (!w.q_norm.empty()) {
    const float eps = context_.norm_eps();
    for (uint32_t h = 0; h < heads_; ++h) {
      RmsNorm(isa, q + h * d, w.q_norm.data(), d, eps, q + h * d);
    }
    for (uint32_t h = 0; h < kv_heads_; ++h) {
      RmsNorm(isa, k + h * d, w.k_norm.data(), d, eps, k + h * d);
    }
  }
  const float* rope = RopeRow(rope_of_layer_[layer], row);
  ApplyRope(isa, q, heads_, d, rope);
  ApplyRope(isa, k, kv_heads_, d, rope);
}

}  // namespace cleave

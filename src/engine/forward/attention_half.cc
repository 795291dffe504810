#include "engine/forward/attention_half.h"

#include <algorithm>
#include <array>

namespace cleave {
namespace {

// Query tokens of one item: enough to reuse a run's keys, small enough to share out.
constexpr uint32_t kTile = 32;

}  // namespace

AttentionHalf::AttentionHalf(const RankContext& context, KvCache* kv, RowStages* stages,
                             RowSum* sum)
    : context_(context),
      kv_(kv),
      stages_(stages),
      sum_(sum),
      heads_(context.mine().q_heads.size()),
      kv_heads_(context.mine().kv_heads.size()),
      next_item_(context.mine().layers.size()) {
  const RankLayout& mine = context.mine();
  const uint32_t q_per_kv = context.config->q_per_kv();
  for (uint32_t kv_head = mine.kv_heads.begin; kv_head < mine.kv_heads.end; ++kv_head) {
    const Range absolute = mine.QueriesOf(kv_head, q_per_kv);
    queries_of_.push_back({absolute.begin - mine.q_heads.begin, absolute.end - mine.q_heads.begin});
  }
  const size_t tokens = context.max_batch_tokens;
  const size_t d = context.config->head_dim;
  items_.reserve(tokens * kv_heads_);
  q_.resize(tokens * heads_ * d);
  k_.resize(tokens * kv_heads_ * d);
  v_.resize(tokens * kv_heads_ * d);
  out_.resize(tokens * heads_ * d);
  for (uint32_t thread = 0; thread < context.pool->size(); ++thread) {
    scratch_.emplace_back(context.config->head_dim);
  }
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
  const ThreadPool::Share rows = context_.pool->ShareOf(step.tokens, thread);
  for (uint32_t row = rows.begin; row < rows.end; ++row) {
    for (uint32_t rope = 0; rope < ropes_.size(); ++rope) {
      ropes_[rope].MakeRow(step.position_of[row], RopeRow(rope, row));
    }
  }
}

void AttentionHalf::Plan(const StepRows& step) {
  items_.clear();
  uint32_t row = 0;
  for (uint32_t s = 0; s < step.sequences.size(); ++s) {
    const BatchSequence& sequence = step.sequences[s];
    // Later tiles see more positions: the long ones go out first.
    for (uint32_t end = sequence.tokens; end > 0;) {
      const uint32_t begin = (end - 1) / kTile * kTile;
      for (uint32_t head = 0; head < kv_heads_; ++head) {
        items_.push_back({s, head, row + begin, end - begin, sequence.first_position + begin});
      }
      end = begin;
    }
    row += sequence.tokens;
  }
  for (std::atomic<uint32_t>& next : next_item_) next.store(0, std::memory_order_relaxed);
}

void AttentionHalf::Run(uint32_t layer, const StepRows& step, float* x, uint32_t thread) {
  const LayerWeights& w = context_.weights->layers[layer];
  RowStages::Stage& stage = stages_->Of(step.tokens, thread);
  const std::array<const PackedMatrix*, 3> inputs{&w.q, &w.k, &w.v};
  // V's rounding goes into the residual undamped, that of Q and K only through the softmax.
  stages_->Norm(&stage, x, nullptr, step.tokens, w.attn_norm, inputs, ActTerms::kTwo, thread);
  stages_->Column(w.q, stage, step.tokens, ActTerms::kFirstOfTwo, q_.data(), thread);
  stages_->Column(w.k, stage, step.tokens, ActTerms::kFirstOfTwo, k_.data(), thread);
  stages_->Column(w.v, stage, step.tokens, ActTerms::kTwo, v_.data(), thread);
  context_.pool->Barrier();
  const ThreadPool::Share rows = context_.pool->ShareOf(step.tokens, thread);
  for (uint32_t row = rows.begin; row < rows.end; ++row) FinishRow(layer, step, row);
  context_.pool->Barrier();
  Attend(layer, step, thread);
  context_.pool->Barrier();
  const size_t stride = static_cast<size_t>(heads_) * context_.config->head_dim;
  stages_->PrepareSum(&stage, out_.data(), stride, step.tokens, w.o, ActTerms::kOne, thread);
  sum_->Add(w.o, stage, step.tokens, w.attn_post_norm, ActTerms::kOne, x, thread);
}

void AttentionHalf::FinishRow(uint32_t layer, const StepRows& step, uint32_t row) {
  const LayerWeights& w = context_.weights->layers[layer];
  const Isa isa = context_.isa;
  const uint32_t d = context_.config->head_dim;
  float* q = &q_[static_cast<size_t>(row) * heads_ * d];
  float* k = &k_[static_cast<size_t>(row) * kv_heads_ * d];
  float* v = &v_[static_cast<size_t>(row) * kv_heads_ * d];
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
  const uint32_t position = step.position_of[row];
  const float* rope = RopeRow(rope_of_layer_[layer], row);
  ApplyRope(isa, q, heads_, d, rope);
  ApplyRope(isa, k, kv_heads_, d, rope);

  const uint32_t block_tokens = kv_->shape().block_tokens;
  const BatchSequence& sequence = step.sequences[step.sequence_of[row]];
  const auto block = static_cast<size_t>(sequence.block_table[position / block_tokens]);
  for (uint32_t h = 0; h < kv_heads_; ++h) {
    StoreKv(isa, kv_->shape(), k + h * d, v + h * d, position % block_tokens,
            kv_->head_base(layer, h) + block * kv_->block_stride());
  }
}

void AttentionHalf::Attend(uint32_t layer, const StepRows& step, uint32_t thread) {
  const uint32_t d = context_.config->head_dim;
  const size_t row_floats = static_cast<size_t>(heads_) * d;
  AttentionJob job;
  job.q_stride = row_floats;
  job.out_stride = row_floats;
  job.window = context_.config->layers[context_.mine().layers.begin + layer].window;
  job.scale = static_cast<float>(context_.config->attention_scale);
  job.block_stride = kv_->block_stride();
  for (;;) {
    const uint32_t i = next_item_[layer].fetch_add(1, std::memory_order_relaxed);
    if (i >= items_.size()) return;
    // A long prompt's layer may take longer than a hang's deadline.
    if (thread == 0) context_.comm.Beat();
    const Item& item = items_[i];
    const Range queries = queries_of_[item.kv_head];
    const size_t start = item.token * row_floats + static_cast<size_t>(queries.begin) * d;
    job.q = &q_[start];
    job.out = &out_[start];
    job.heads = queries.size();
    job.tokens = item.tokens;
    job.first_position = item.position;
    job.block_table = step.sequences[item.sequence].block_table;
    job.kv = kv_->head_base(layer, item.kv_head);
    Attention(context_.isa, kv_->shape(), job, &scratch_[thread]);
  }
}

}  // namespace cleave

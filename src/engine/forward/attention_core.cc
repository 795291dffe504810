#include "engine/forward/attention_core.h"

#include <algorithm>

#include "engine/forward/context_attention.h"

namespace cleave {
namespace {

// Query tokens of one item: enough to reuse a run's keys, small enough to share out.
constexpr uint32_t kTile = 32;

// Every position is here.
class LocalAttention final : public AttentionCore {
 public:
  LocalAttention(const RankContext& context, KvCache* kv)
      : AttentionCore(context, kv, context.mine().q_heads) {}

  void Run(uint32_t layer, const StepRows& step, AttentionRows* rows, uint32_t thread) override {
    const ThreadPool::Share share = context_.pool->ShareOf(step.tokens, thread);
    for (uint32_t row = share.begin; row < share.end; ++row) StoreRow(layer, step, *rows, row);
    context_.pool->Barrier();
    while (const Item* item = Take(layer, thread)) {
      AttentionJob job = JobOf(layer, step, *item, rows->q.data());
      job.out = rows->out.data() + (job.q - rows->q.data());
      job.out_stride = job.q_stride;
      Attention(context_.isa, kv_->shape(), job, &scratch_[thread]);
    }
    context_.pool->Barrier();
  }
};

}  // namespace

AttentionCore::AttentionCore(const RankContext& context, KvCache* kv, Range queries)
    : context_(context),
      kv_(kv),
      queries_(queries.size()),
      kv_heads_(context.mine().kv_heads.size()),
      next_item_(context.mine().layers.size()) {
  const Range kv_heads = context.mine().kv_heads;
  const uint32_t q_per_kv = context.config->q_per_kv();
  for (uint32_t kv_head = kv_heads.begin; kv_head < kv_heads.end; ++kv_head) {
    const uint32_t begin = std::max(kv_head * q_per_kv, queries.begin);
    const uint32_t end = std::min((kv_head + 1) * q_per_kv, queries.end);
    queries_of_.push_back({begin - queries.begin, end - queries.begin});
  }
  items_.reserve(static_cast<size_t>(context.max_batch_tokens) * kv_heads_);
  for (uint32_t thread = 0; thread < context.pool->size(); ++thread) {
    scratch_.emplace_back(context.config->head_dim);
  }
}

void AttentionCore::Plan(const StepRows& step) {
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

void AttentionCore::StoreRow(uint32_t layer, const StepRows& step, const AttentionRows& rows,
                             uint32_t row) {
  const uint32_t d = context_.config->head_dim;
  const uint32_t position = step.position_of[row];
  const uint32_t block_tokens = kv_->shape().block_tokens;
  const BatchSequence& sequence = step.sequences[step.sequence_of[row]];
  const int32_t block = sequence.block_table[position / block_tokens] - kv_->first_block();
  const size_t at = static_cast<size_t>(row) * kv_heads_ * d;
  for (uint32_t h = 0; h < kv_heads_; ++h) {
    StoreKv(context_.isa, kv_->shape(), &rows.k[at + size_t{h} * d], &rows.v[at + size_t{h} * d],
            position % block_tokens,
            kv_->head_base(layer, h) + static_cast<size_t>(block) * kv_->block_stride());
  }
}

const AttentionCore::Item* AttentionCore::Take(uint32_t layer, uint32_t thread) {
  const uint32_t i = next_item_[layer].fetch_add(1, std::memory_order_relaxed);
  if (i >= items_.size()) return nullptr;
  // A long prompt's layer may take longer than a hang's deadline.
  if (thread == 0) context_.comm.Beat();
  return &items_[i];
}

AttentionJob AttentionCore::JobOf(uint32_t layer, const StepRows& step, const Item& item,
                                  const float* q) const {
  const uint32_t d = context_.config->head_dim;
  const Range queries = QueriesOf(item);
  AttentionJob job;
  job.q_stride = static_cast<size_t>(queries_) * d;
  job.q = q + item.token * job.q_stride + static_cast<size_t>(queries.begin) * d;
  job.tokens = item.tokens;
  job.first_position = item.position;
  job.heads = queries.size();
  job.window = context_.config->layers[context_.mine().layers.begin + layer].window;
  job.scale = static_cast<float>(context_.config->attention_scale);
  job.block_table = step.sequences[item.sequence].block_table;
  job.first_block = kv_->first_block();
  job.kv = kv_->head_base(layer, item.kv_head);
  job.block_stride = kv_->block_stride();
  return job;
}

std::unique_ptr<AttentionCore> MakeAttentionCore(const RankContext& context, KvCache* kv) {
  if (context.comm.cp == nullptr && context.comm.dcp == nullptr) {
    return std::make_unique<LocalAttention>(context, kv);
  }
  return std::make_unique<ContextAttention>(context, kv);
}

}  // namespace cleave

#include "engine/forward/context_attention.h"

#include <algorithm>
#include <span>

#include "base/checked.h"

namespace cleave {
namespace {

// Records that the others of the cp group may send: those of own rows, or of so few rows that they
// are not shared out (then own records come back too).
size_t MostReceivedOverCp(const RankContext& context, uint32_t heads) {
  const Split& split = context.layout->split;
  const size_t shared = CeilDiv(context.max_batch_tokens, split.cp) * size_t{split.cp - 1};
  const size_t all =
      std::min<size_t>(context.max_batch_tokens, (size_t{kCpRowsWorthSharing} + 1) * split.cp) *
      split.cp;
  return std::max(shared, all) * heads;
}

}  // namespace

ContextAttention::ContextAttention(const RankContext& context, KvCache* kv)
    : AttentionCore(context, kv, context.layout->DcpQueries(context.mine().coord)),
      queries_range_(context.layout->DcpQueries(context.mine().coord)),
      heads_(context.mine().q_heads.size()),
      runs_{.count = KvPartitionsOf(context.layout->split),
            .index = KvPartitionOf(context.layout->split, context.mine().coord)},
      share_(context, Axis::kCp),
      partials_(context.max_batch_tokens, queries_, context.config->head_dim) {
  for (uint32_t thread = 0; thread < context.pool->size(); ++thread) {
    sums_.emplace_back(context.config->head_dim);
  }
  bool fits = partials_.ok();
  if (context.comm.dcp != nullptr) MakeDcp();
  if (context.comm.cp != nullptr) {
    cp_.emplace(context, context.comm.cp, heads_, MostReceivedOverCp(context, heads_));
    row_parts_.reserve(context.cp_size());
    if (dcp_) {
      merged_ = Partials(context.max_batch_tokens, heads_, context.config->head_dim);
      fits = fits && merged_.ok();
    }
  }
  if (!fits) {
    status_ = ResourceExhausted(
        "no address space for the partial attentions of a batch; lower --max-num-batched-tokens");
  }
}

void ContextAttention::MakeDcp() {
  const size_t tokens = context_.max_batch_tokens;
  const size_t d = context_.config->head_dim;
  RankCoord coord = context_.mine().coord;
  const uint32_t dcp = context_.layout->split.dcp;
  const uint32_t first = coord.tp / dcp * dcp;
  for (uint32_t member = 0; member < dcp; ++member) {
    coord.tp = first + member;
    const Range heads = context_.layout->of(coord).q_heads;
    heads_of_.push_back({heads.begin - queries_range_.begin, heads.end - queries_range_.begin});
    head_parts_.push_back({.rows = {}, .heads = heads_of_.back()});
  }
  query_sizes_.resize(dcp);
  gathered_q_.resize(tokens * queries_ * d);
  group_q_.resize(gathered_q_.size());
  dcp_.emplace(context_, context_.comm.dcp, queries_, tokens * heads_ * (dcp - 1));
}

Status ContextAttention::status() const {
  RETURN_IF_ERROR(status_);
  if (dcp_) RETURN_IF_ERROR(dcp_->status());
  return cp_ ? cp_->status() : OkStatus();
}

CpCounts ContextAttention::cp_counts() const {
  CpCounts sum;
  for (const std::optional<PartialExchange>* exchange : {&dcp_, &cp_}) {
    if (!*exchange) continue;
    const CpCounts& more = (*exchange)->counts();
    sum.gathers += more.gathers;
    sum.gathered.narrow += more.gathered.narrow;
    sum.gathered.wide += more.gathered.wide;
    sum.exchanged.narrow += more.exchanged.narrow;
    sum.exchanged.wide += more.exchanged.wide;
  }
  return sum;
}

void ContextAttention::Run(uint32_t layer, const StepRows& step, AttentionRows* rows,
                           uint32_t thread) {
  context_.pool->Barrier();
  if (thread == 0 && status().ok()) status_ = Collect(step, rows);
  context_.pool->Barrier();
  const ThreadPool::Share share = context_.pool->ShareOf(step.tokens, thread);
  for (uint32_t row = share.begin; row < share.end; ++row) {
    if (dcp_) PlaceQueries(row, step.tokens);
    const uint32_t run = step.position_of[row] / kRunPositions;
    if (run % runs_.count == runs_.index) StoreRow(layer, step, *rows, row);
  }
  context_.pool->Barrier();
  Attend(layer, step, dcp_ ? group_q_.data() : rows->q.data(), thread);
  context_.pool->Barrier();
  if (dcp_) {
    MergeHeads(step.tokens, thread);
    if (!cp_) FinishHeads(step, rows, thread);
  }
  if (cp_) FinishRows(step, rows, thread);
  context_.pool->Barrier();
}

Status ContextAttention::Collect(const StepRows& step, AttentionRows* rows) {
  const uint32_t d = context_.config->head_dim;
  if (step.shared) {
    RETURN_IF_ERROR(share_.Gather(step.tokens, heads_ * d, rows->q.data()));
    RETURN_IF_ERROR(share_.Gather(step.tokens, kv_heads_ * d, rows->k.data()));
    RETURN_IF_ERROR(share_.Gather(step.tokens, kv_heads_ * d, rows->v.data()));
  }
  for (Part& part : head_parts_) part.rows = {0, step.tokens};
  row_parts_.clear();
  for (uint32_t member = 0; member < (step.shared ? context_.cp_size() : 1U); ++member) {
    row_parts_.push_back(
        {.rows = CpRowsOf(context_.layout->split, member, step.tokens), .heads = {0, heads_}});
  }
  return dcp_ ? GatherQueries(step, *rows) : OkStatus();
}

Status ContextAttention::GatherQueries(const StepRows& step, const AttentionRows& rows) {
  const size_t row_bytes = context_.config->head_dim * sizeof(float);
  for (size_t member = 0; member < heads_of_.size(); ++member) {
    query_sizes_[member] = size_t{step.tokens} * heads_of_[member].size() * row_bytes;
  }
  const std::span<const float> mine(rows.q.data(),
                                    size_t{step.tokens} * heads_ * context_.config->head_dim);
  return context_.comm.dcp->AllGather(std::as_bytes(mine), query_sizes_,
                                      reinterpret_cast<std::byte*>(gathered_q_.data()));
}

void ContextAttention::PlaceQueries(uint32_t row, uint32_t tokens) {
  const size_t d = context_.config->head_dim;
  const size_t out = static_cast<size_t>(row) * queries_ * d;
  for (const Range& heads : heads_of_) {
    // All heads before these, of all rows; then theirs, row by row.
    const size_t from = (size_t{heads.begin} * tokens + size_t{heads.size()} * row) * d;
    std::copy_n(&gathered_q_[from], heads.size() * d, &group_q_[out + heads.begin * d]);
  }
}

void ContextAttention::Attend(uint32_t layer, const StepRows& step, const float* q,
                              uint32_t thread) {
  while (const Item* item = Take(layer, thread)) {
    AttentionPartial(context_.isa, kv_->shape(), JobOf(layer, step, *item, q), runs_,
                     partials_.At(item->token, QueriesOf(*item).begin), &scratch_[thread]);
  }
}

void ContextAttention::MergeHeads(uint32_t tokens, uint32_t thread) {
  dcp_->Run(partials_, tokens, head_parts_, thread);
  if (!cp_ || !dcp_->status().ok()) return;
  const Range own = heads_of_[context_.comm.dcp->rank()];
  const ThreadPool::Share share = context_.pool->ShareOf(tokens * heads_, thread);
  for (uint32_t i = share.begin; i < share.end; ++i) {
    dcp_->AddUp(partials_, i / heads_, own.begin + i % heads_, &sums_[thread]);
    merged_.codes[i] = sums_[thread].Export(&merged_.counts[i * merged_.record],
                                            &merged_.wide[i * merged_.record]);
  }
  context_.pool->Barrier();
}

void ContextAttention::FinishHeads(const StepRows& step, AttentionRows* rows, uint32_t thread) {
  if (!dcp_->status().ok()) return;
  const size_t d = context_.config->head_dim;
  const Range own = heads_of_[context_.comm.dcp->rank()];
  const ThreadPool::Share share = context_.pool->ShareOf(step.tokens * heads_, thread);
  for (uint32_t i = share.begin; i < share.end; ++i) {
    dcp_->AddUp(partials_, i / heads_, own.begin + i % heads_, &sums_[thread]);
    sums_[thread].Finish(context_.isa, &rows->out[i * d]);
  }
}

void ContextAttention::FinishRows(const StepRows& step, AttentionRows* rows, uint32_t thread) {
  const Partials& from = dcp_ ? merged_ : partials_;
  cp_->Run(from, step.tokens, row_parts_, thread);
  if (!cp_->status().ok()) return;
  const size_t d = context_.config->head_dim;
  const ThreadPool::Share share = context_.pool->ShareOf(step.own.size() * heads_, thread);
  for (uint32_t i = share.begin; i < share.end; ++i) {
    const uint32_t row = step.own.begin + i / heads_;
    cp_->AddUp(from, row, i % heads_, &sums_[thread]);
    sums_[thread].Finish(context_.isa, &rows->out[from.IndexOf(row, i % heads_) * d]);
  }
}

}  // namespace cleave

#include "engine/forward/decoder.h"

#include <fmt/format.h>

#include <span>

namespace cleave {
namespace {

std::vector<const PackedMatrix*> MatricesOf(const ModelWeights& weights) {
  std::vector<const PackedMatrix*> matrices;
  for (const LayerWeights& w : weights.layers) {
    matrices.insert(matrices.end(), {&w.q, &w.k, &w.v, &w.o});
    if (w.experts.empty()) {
      matrices.insert(matrices.end(), {&w.gate, &w.up, &w.down});
      continue;
    }
    matrices.push_back(&w.router);
    // Their down projections have buffers of their own.
    for (const ExpertWeights& e : w.experts) matrices.insert(matrices.end(), {&e.gate, &e.up});
  }
  return matrices;
}

}  // namespace

Decoder::Decoder(const RankContext& context, KvCache* kv)
    : context_(context),
      kv_(kv),
      x_(static_cast<size_t>(context.max_batch_tokens) * context.hidden_size()),
      stages_(context, context.max_batch_tokens, MatricesOf(*context.weights),
              RowStages::Norms::kShared),
      sum_(MakeRowSum(context)),
      cp_share_(context, Axis::kCp),
      tp_share_(context, Axis::kTp),
      embedder_(context),
      attention_(context, kv, &stages_, sum_.get()),
      ffn_(MakeFfn(context, &stages_, sum_.get())) {
  step_.position_of.resize(context.max_batch_tokens);
  step_.sequence_of.resize(context.max_batch_tokens);
}

Decoder::~Decoder() = default;

Status Decoder::CheckBatch(const ForwardBatch& batch, std::span<const Range> teams) const {
  uint64_t tokens = 0;
  for (const Range& rows : teams) {
    tokens += rows.size();
    if (rows.size() <= context_.max_batch_tokens) continue;
    return InvalidArgument(
        fmt::format("a batch of {} tokens; 1 to {} fit", rows.size(), context_.max_batch_tokens));
  }
  if (tokens == 0) {
    return InvalidArgument(
        fmt::format("a batch of 0 tokens; 1 to {} fit", context_.max_batch_tokens));
  }
  const uint32_t vocab_size = context_.config->vocab_size;
  for (const int32_t id : batch.token_ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= vocab_size) {
      return InvalidArgument(
          fmt::format("token id {} is outside the vocabulary of {}", id, vocab_size));
    }
  }
  const uint32_t block_tokens = kv_->shape().block_tokens;
  for (const BatchSequence& s : batch.sequences) {
    const uint64_t end = static_cast<uint64_t>(s.first_position) + s.tokens;
    if (s.tokens == 0 || end > context_.max_positions ||
        end > static_cast<uint64_t>(s.block_table.size()) * block_tokens) {
      return InvalidArgument(fmt::format(
          "a sequence's positions {} to {} pass its {} blocks of {} or the limit of {}",
          s.first_position, end, s.block_table.size(), block_tokens, context_.max_positions));
    }
    RETURN_IF_ERROR(CheckBlocks(s.block_table));
  }
  return OkStatus();
}

// Block i lies in the pool of the ranks that hold its positions.
Status Decoder::CheckBlocks(std::span<const int32_t> table) const {
  const uint32_t partitions = KvPartitionsOf(context_.layout->split);
  const uint32_t blocks = kv_->num_blocks();
  const uint32_t blocks_a_run = kRunPositions / kv_->shape().block_tokens;
  for (size_t i = 0; i < table.size(); ++i) {
    const uint64_t pool = i / blocks_a_run % partitions;
    const int64_t local = table[i] - static_cast<int64_t>(pool * blocks);
    if (local >= 0 && local < int64_t{blocks}) continue;
    return InvalidArgument(fmt::format("KV block {} of {} in pool {} for the positions from {}",
                                       table[i], blocks, pool, i * kv_->shape().block_tokens));
  }
  return OkStatus();
}

void Decoder::PlanBatch(const ForwardBatch& batch, std::span<const Range> teams) {
  step_.teams = teams;
  step_.tokens = static_cast<uint32_t>(batch.token_ids.size());
  step_.token_ids = batch.token_ids;
  step_.sequences = batch.sequences;
  step_.own = cp_share_.OwnOf(step_.tokens);
  step_.shared = cp_share_.Shares(step_.tokens);
  uint32_t row = 0;
  for (uint32_t s = 0; s < step_.sequences.size(); ++s) {
    for (uint32_t t = 0; t < step_.sequences[s].tokens; ++t, ++row) {
      step_.sequence_of[row] = s;
      step_.position_of[row] = step_.sequences[s].first_position + t;
    }
  }
  attention_.Plan(step_);
  ffn_->Plan(step_);
}

Status Decoder::status() const {
  // What fails first makes the others fail.
  RETURN_IF_ERROR(embedder_.status());
  RETURN_IF_ERROR(stages_.status());
  RETURN_IF_ERROR(attention_.status());
  RETURN_IF_ERROR(sum_->status());
  RETURN_IF_ERROR(share_status_);
  return ffn_->status();
}

Status Decoder::Forward(const ForwardBatch& part, std::span<const Range> teams) {
  RETURN_IF_ERROR(CheckBatch(part, teams));
  PlanBatch(part, teams);
  if (!context_.mine().first_stage) RETURN_IF_ERROR(ReceiveRows());
  context_.pool->Run([this](uint32_t thread) { RunLayers(thread); });
  RETURN_IF_ERROR(status());
  return context_.mine().last_stage ? OkStatus() : SendRows();
}

void Decoder::RunLayers(uint32_t thread) {
  const bool has_rows = step_.tokens > 0;
  attention_.MakeRopeRows(step_, thread);
  if (has_rows && context_.mine().first_stage) embedder_.Run(step_, x_.data(), thread);
  const uint32_t layers = context_.mine().layers.size();
  const bool whole_ffn = context_.comm.ep != nullptr;  // shares the work out itself
  const Range ffn_rows = whole_ffn ? Range{0, step_.tokens} : step_.own;
  float* ffn_x = &x_[static_cast<size_t>(ffn_rows.begin) * context_.hidden_size()];
  for (uint32_t layer = 0; layer < layers; ++layer) {
    if (thread == 0) context_.comm.Beat();
    if (has_rows) attention_.Run(layer, step_, x_.data(), thread);
    if (step_.shared && whole_ffn) GatherRows(&cp_share_, {0, step_.tokens}, thread);
    if (thread == 0) context_.comm.Beat();
    ffn_->Run(layer, ffn_rows.size(), ffn_x, thread);
  }
  if (has_rows && tp_share_.Shares(step_.own.size())) GatherRows(&tp_share_, step_.own, thread);
  if (step_.shared && !whole_ffn) GatherRows(&cp_share_, {0, step_.tokens}, thread);
}

// All threads have met, and meet again.
void Decoder::GatherRows(RowShare* share, Range rows, uint32_t thread) {
  if (thread == 0 && share_status_.ok()) {
    const uint32_t size = context_.hidden_size();
    share_status_ = share->Gather(rows.size(), size, &x_[static_cast<size_t>(rows.begin) * size]);
  }
  context_.pool->Barrier();
}

Status Decoder::ReceiveRows() {
  if (step_.tokens == 0) return OkStatus();
  const auto rows = std::span(x_).first(static_cast<size_t>(step_.tokens) * context_.hidden_size());
  return context_.comm.pp->Receive(context_.mine().coord.pp - 1, std::as_writable_bytes(rows));
}

Status Decoder::SendRows() {
  if (step_.tokens == 0) return OkStatus();
  const auto rows = std::span(x_).first(static_cast<size_t>(step_.tokens) * context_.hidden_size());
  return context_.comm.pp->Send(context_.mine().coord.pp + 1, std::as_bytes(rows));
}

}  // namespace cleave

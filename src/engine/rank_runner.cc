#include "engine/rank_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cleave {
namespace {

// Of logits in memory at a time: a quarter of a million tokens times a hundred sequences would be
// more than a small model.
constexpr uint64_t kLogitsBytes = 32 << 20;
constexpr uint64_t kFewestRows = 8;

}  // namespace

uint32_t RowsAtOnce(const ModelConfig& config, uint32_t max_sequences) {
  const uint64_t fit = kLogitsBytes / (uint64_t{config.vocab_size} * sizeof(float));
  return static_cast<uint32_t>(std::min<uint64_t>(max_sequences, std::max(kFewestRows, fit)));
}

RankRunner::RankRunner(std::unique_ptr<Checkpoint> checkpoint, const RankOptions& options,
                       const Layout& layout)
    : options_(options),
      checkpoint_(std::move(checkpoint)),
      layout_(layout),
      rows_at_once_(RowsAtOnce(checkpoint_->config(), options.max_sequences)),
      pool_(options.threads, options.cpus) {}

RankRunner::~RankRunner() = default;

Result<std::unique_ptr<RankRunner>> RankRunner::Create(std::unique_ptr<Checkpoint> checkpoint,
                                                       const RankOptions& options,
                                                       const Layout& layout, uint32_t rank,
                                                       const RankComm& comm,
                                                       const LoadProgress& progress) {
  RETURN_IF_ERROR(checkpoint->config().Validate());
  std::unique_ptr<RankRunner> runner(new RankRunner(std::move(checkpoint), options, layout));
  const ModelConfig& config = runner->config();
  runner->own_counts_ = std::vector<ExpertCount>(config.num_experts);
  const RankLayout& mine = runner->layout_.ranks[rank];
  KvShape shape = options.kv_shape;
  shape.head_dim = config.head_dim;
  const uint64_t first_block =
      uint64_t{KvPartitionOf(layout.split, mine.coord)} * options.num_blocks;
  if (first_block + options.num_blocks > INT32_MAX) {
    return InvalidArgument(fmt::format("{} KV blocks on each of {} ranks are more than {}",
                                       options.num_blocks, KvPartitionsOf(layout.split),
                                       INT32_MAX));
  }
  ASSIGN_OR_RETURN(KvCache kv,
                   KvCache::Create(shape, mine.layers.size(), mine.kv_heads.size(),
                                   options.num_blocks, static_cast<int32_t>(first_block)));
  runner->kv_ = std::make_unique<KvCache>(std::move(kv));
  ASSIGN_OR_RETURN(runner->weights_, LoadWeights(*runner->checkpoint_, mine, options.float_type,
                                                 &runner->pool_, progress));
  runner->context_ = {.config = &config,
                      .layout = &runner->layout_,
                      .rank = rank,
                      .weights = &runner->weights_,
                      .pool = &runner->pool_,
                      .comm = comm,
                      .isa = options.isa,
                      .max_batch_tokens = options.max_batch_tokens,
                      .max_positions = options.max_positions};
  if (comm.expert_tokens.size() != config.num_experts) {
    runner->context_.comm.expert_tokens = runner->own_counts_;
  }
  runner->decoder_ = std::make_unique<Decoder>(runner->context_, runner->kv_.get());
  RETURN_IF_ERROR(runner->decoder_->status());
  runner->meter_.emplace(runner->context_, runner->rows_at_once_);
  if (mine.has_head()) {
    runner->head_ = std::make_unique<Head>(runner->context_, runner->rows_at_once_);
  }
  if (layout.split.pp > 1) {
    runner->highest_.resize(runner->rows_at_once_);
    if (rank == 0) runner->logits_.resize(config.vocab_size);
  }
  return runner;
}

Status RankRunner::Forward(const ForwardBatch& batch) {
  const uint64_t start_ns = SteadyNanos();
  RETURN_IF_ERROR(decoder_->Forward(batch));
  WriteExpertTokens();
  meter_->BookForward(batch.token_ids,
                      {.wide_rows = decoder_->wide_rows(),
                       .ep = decoder_->ep_counts(),
                       .cp = decoder_->cp_counts()},
                      SteadyNanos() - start_ns);
  return OkStatus();
}

void RankRunner::WriteExpertTokens() {
  const std::span<const uint64_t> tokens = decoder_->expert_tokens();
  for (size_t i = 0; i < tokens.size(); ++i) {
    context_.comm.expert_tokens[i].store(tokens[i], std::memory_order_relaxed);
  }
}

Status RankRunner::Results(std::span<const WantedRow> wanted, const RowSink& sink) {
  const uint64_t start_ns = SteadyNanos();
  RETURN_IF_ERROR(GiveResults(wanted, sink));
  meter_->BookResults(wanted, SteadyNanos() - start_ns);
  return OkStatus();
}

Status RankRunner::GiveResults(std::span<const WantedRow> wanted, const RowSink& sink) {
  const bool leads = context_.rank == 0;
  // All cp ranks have the same rows: one of them is enough.
  if (context_.mine().coord.cp != 0) return OkStatus();
  for (uint32_t first = 0; first < wanted.size(); first += rows_at_once_) {
    const auto count = std::min<size_t>(rows_at_once_, wanted.size() - first);
    const auto group = wanted.subspan(first, count);
    if (head_ == nullptr) {
      if (leads) RETURN_IF_ERROR(ReceiveResults(group, first, sink));
      continue;
    }
    RETURN_IF_ERROR(head_->Run(decoder_->hidden(), group));
    context_.comm.Beat();
    if (leads) {
      for (uint32_t i = 0; i < count; ++i) RETURN_IF_ERROR(sink(first + i, head_->result(i)));
    } else if (context_.mine().coord.tp == 0) {
      RETURN_IF_ERROR(SendResults(group));
    }
  }
  return OkStatus();
}

// From the last stage's tp 0 to the leader: all highest logits in one piece, then each row that is
// wanted whole.
Status RankRunner::SendResults(std::span<const WantedRow> wanted) {
  size_t highest = 0;
  for (uint32_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].use == RowUse::kHighest) highest_[highest++] = head_->result(i).highest;
  }
  if (highest > 0) {
    RETURN_IF_ERROR(context_.comm.pp->Send(0, std::as_bytes(std::span(highest_).first(highest))));
  }
  for (uint32_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].use == RowUse::kHighest) continue;
    const std::span<const float> row(head_->result(i).logits, config().vocab_size);
    RETURN_IF_ERROR(context_.comm.pp->Send(0, std::as_bytes(row)));
  }
  return OkStatus();
}

Status RankRunner::ReceiveResults(std::span<const WantedRow> wanted, uint32_t first,
                                  const RowSink& sink) {
  const uint32_t last_stage = layout_.split.pp - 1;
  const auto highest = static_cast<size_t>(std::count_if(
      wanted.begin(), wanted.end(), [](const WantedRow& r) { return r.use == RowUse::kHighest; }));
  if (highest > 0) {
    RETURN_IF_ERROR(context_.comm.pp->Receive(
        last_stage, std::as_writable_bytes(std::span(highest_).first(highest))));
  }
  size_t next = 0;
  for (uint32_t i = 0; i < wanted.size(); ++i) {
    RowResult result;
    if (wanted[i].use == RowUse::kHighest) {
      result.highest = highest_[next++];
    } else {
      RETURN_IF_ERROR(
          context_.comm.pp->Receive(last_stage, std::as_writable_bytes(std::span(logits_))));
      result.logits = logits_.data();
    }
    RETURN_IF_ERROR(sink(first + i, result));
  }
  return OkStatus();
}

}  // namespace cleave

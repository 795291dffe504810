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
      pool_(options.threads, options.cpus),
      teams_(layout.split.teams) {}

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
  ASSIGN_OR_RETURN(runner->weights_,
                   LoadWeights(*runner->checkpoint_, mine, options.float_type, &runner->pool_,
                               progress, options.repacked_cache_dir));
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
  runner->results_.emplace(runner->context_, runner->rows_at_once_);
  return runner;
}

Status RankRunner::Forward(const ForwardBatch& batch) {
  const uint64_t start_ns = SteadyNanos();
  RETURN_IF_ERROR(teams_.Assign(batch));
  const ForwardBatch part = teams_.PartOf(context_.mine().coord.team, batch);
  RETURN_IF_ERROR(decoder_->Forward(part, teams_.all()));
  WriteExpertTokens();
  meter_->BookForward(part.token_ids, static_cast<uint32_t>(batch.token_ids.size()),
                      {.wide_rows = decoder_->wide_rows(),
                       .normed_rows = decoder_->normed_rows(),
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
  RETURN_IF_ERROR(results_->Run(decoder_->hidden(), teams_, wanted, sink));
  meter_->BookResults(wanted, teams_, SteadyNanos() - start_ns);
  return OkStatus();
}

}  // namespace cleave

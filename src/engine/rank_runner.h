#pragma once
// RankRunner: one rank's part of the model: its weights, cache, threads and forward pass.
//
// Every rank of a replica runs the same batches in the same order: Forward, then Results. On the
// leader (rank 0: stage 0, tp 0) Results hands over what was wanted; the last stage makes it.
//
// Owner: an executor, or a worker that follows one. Thread: one, holding a ScopedFpMode.
// Fails at Create: what cannot be read or does not fit, with the numbers and the flag that helps;
// later: what a group says when another rank is lost.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "engine/forward/decoder.h"
#include "engine/forward/rank_context.h"
#include "engine/forward/result_route.h"
#include "engine/kv_cache.h"
#include "engine/model_weights.h"
#include "engine/rank_meter.h"
#include "engine/team_rows.h"
#include "split/layout.h"

namespace cleave {

struct RankOptions {
  Isa isa = Isa::kScalar;
  uint32_t threads = 1;
  std::vector<int> cpus;            // to pin to; empty = not pinned
  uint32_t max_batch_tokens = 512;  // of a team
  uint32_t max_sequences = 64;      // likewise
  uint32_t max_positions = 0;
  KvShape kv_shape;                 // head_dim is filled in
  std::optional<DType> float_type;  // unquantised matrices are rounded to it; nothing = as stored
  uint32_t num_blocks = 0;
  std::string repacked_cache_dir;  // where repacked weights are kept; empty = nowhere
};

// Rows of results that are made at a time, so that their logits stay within 32 MiB (and are at
// least 8).
uint32_t RowsAtOnce(const ModelConfig& config, uint32_t max_sequences);

class RankRunner {
 public:
  // Null groups in `comm`: alone on that axis. The groups outlive the runner.
  static Result<std::unique_ptr<RankRunner>> Create(std::unique_ptr<Checkpoint> checkpoint,
                                                    const RankOptions& options,
                                                    const Layout& layout, uint32_t rank,
                                                    const RankComm& comm,
                                                    const LoadProgress& progress);
  ~RankRunner();

  // The batch through this rank's layers.
  Status Forward(const ForwardBatch& batch);
  // What was wanted of the batch that Forward ran last (on the leader of a pipeline: of the oldest
  // whose results it has not taken). `sink` is called on the leader only.
  Status Results(std::span<const WantedRow> wanted, const RowSink& sink);

  // Says what the rank is at, where somebody watches (comm/life.h).
  void Enter(RankPhase phase) {
    if (context_.comm.line != nullptr) context_.comm.line->Enter(phase, SteadyNanos());
  }

  [[nodiscard]] const RankOptions& options() const { return options_; }
  [[nodiscard]] const ModelConfig& config() const { return checkpoint_->config(); }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const ModelWeights& weights() const { return weights_; }
  [[nodiscard]] uint64_t wide_rows() const { return decoder_->wide_rows(); }
  // Of the steps that ended. Any thread.
  [[nodiscard]] ExpertTokens expert_tokens() const {
    return ReadCounts(context_.comm.expert_tokens);
  }

 private:
  RankRunner(std::unique_ptr<Checkpoint> checkpoint, const RankOptions& options,
             const Layout& layout);
  void WriteExpertTokens();
  Status GiveResults(std::span<const WantedRow> wanted, const RowSink& sink);
  Status SendResults(std::span<const WantedRow> wanted);
  Status ReceiveResults(std::span<const WantedRow> wanted, uint32_t first, const RowSink& sink);

  const RankOptions options_;
  const std::unique_ptr<Checkpoint> checkpoint_;
  const Layout layout_;
  const uint32_t rows_at_once_;
  ThreadPool pool_;
  ModelWeights weights_;
  RankContext context_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Decoder> decoder_;
  TeamRows teams_;  // of the batch that Forward ran last
  std::optional<ResultRoute> results_;
  std::optional<RankMeter> meter_;
  std::vector<ExpertCount> own_counts_;  // [E] where nobody gave it a place for them
};

}  // namespace cleave

#pragma once
// InlineExecutor: a world of one rank, run on the engine's own thread and its pool.
//
// Owner: the engine. Fails at Create as RankRunner does, and for a layout of more ranks.

#include <memory>
#include <vector>

#include "engine/executor.h"
#include "engine/rank_runner.h"

namespace cleave {

class InlineExecutor final : public Executor {
 public:
  explicit InlineExecutor(std::unique_ptr<RankRunner> runner);
  static Result<std::unique_ptr<InlineExecutor>> Create(std::unique_ptr<Checkpoint> checkpoint,
                                                        const RankOptions& options,
                                                        const Layout& layout,
                                                        const LoadProgress& progress);

  [[nodiscard]] uint32_t max_batch_tokens() const override {
    return runner_->options().max_batch_tokens;
  }
  [[nodiscard]] uint32_t max_sequences() const override { return runner_->options().max_sequences; }
  [[nodiscard]] uint32_t vocab_size() const override { return runner_->config().vocab_size; }
  Status Submit(const ForwardBatch& batch) override;
  Status Collect(const RowSink& sink) override;

  [[nodiscard]] ExpertTokens expert_tokens() const override { return runner_->expert_tokens(); }

  [[nodiscard]] const ModelWeights& weights() const { return runner_->weights(); }

 private:
  const std::unique_ptr<RankRunner> runner_;
  std::vector<WantedRow> wanted_;  // of the batch under way
};

}  // namespace cleave

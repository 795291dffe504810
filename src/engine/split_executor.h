#pragma once
// SplitExecutor: a replica of several ranks, seen from its leader (rank 0), and FollowPlans, what
// the other ranks run. The leader publishes each batch, computes its own part and takes the
// results; the others read, compute, and speak to each other through their groups.
//
// Owner: the engine in rank 0; the worker's main in others. Fails as RankRunner and BroadcastRing.

#include <memory>
#include <vector>

#include "comm/broadcast_ring.h"
#include "engine/executor.h"
#include "engine/plan_message.h"
#include "engine/rank_runner.h"

namespace cleave {

class SplitExecutor final : public Executor {
 public:
  // The ring's memory outlives the executor.
  SplitExecutor(std::unique_ptr<RankRunner> runner, BroadcastRing ring);
  ~SplitExecutor() override;  // tells the others that there are no more plans
  SplitExecutor(const SplitExecutor&) = delete;
  SplitExecutor& operator=(const SplitExecutor&) = delete;

  [[nodiscard]] uint32_t max_batch_tokens() const override {
    return runner_->options().max_batch_tokens;
  }
  [[nodiscard]] uint32_t max_sequences() const override { return runner_->options().max_sequences; }
  [[nodiscard]] uint32_t max_in_flight() const override { return runner_->layout().split.pp; }
  [[nodiscard]] uint32_t vocab_size() const override { return runner_->config().vocab_size; }
  Status Submit(const ForwardBatch& batch) override;
  Status Collect(const RowSink& sink) override;

  [[nodiscard]] const RankRunner& runner() const { return *runner_; }

 private:
  const std::unique_ptr<RankRunner> runner_;
  BroadcastRing ring_;
  std::vector<std::byte> message_;
  std::vector<std::vector<WantedRow>> wanted_;  // a ring: of the batches under way
  size_t oldest_ = 0;
  size_t under_way_ = 0;
};

// Runs the plans of the ring until the leader says there are no more. kUnavailable when the
// replica's epoch is over.
Status FollowPlans(RankRunner* runner, BroadcastRing* ring);

}  // namespace cleave

#pragma once
// FakeExecutor: a model whose answer depends on every token before, found through the block table.
//
// Submit stores each token and its position in the KV slot its table names; the logits of a row are
// a hash of all tokens read back through the table. A wrong block, a stale one, a wrong
// position or a missing token therefore changes the answer, and anything outside the executor's
// contract fails the step, a block in another partition than its positions' too. For tests.

#include <functional>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/request.h"

namespace cleave {

struct FakeExecutorOptions {
  uint32_t num_blocks = 64;  // of all teams and partitions
  uint32_t teams = 1;
  uint32_t kv_partitions = 1;
  uint32_t block_size = 4;
  uint32_t vocab_size = 64;
  uint32_t max_batch_tokens = 512;  // of a team
  uint32_t max_sequences = 64;      // likewise
  uint32_t max_in_flight = 1;
  std::function<Status()> before_forward = nullptr;  // on the engine thread
};

// A greedy-or-not request of its own, told by its id; it ends at max_tokens.
SequenceSpec FakeSequence(SequenceId id, size_t prompt, uint32_t max_tokens);

class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(FakeExecutorOptions options);

  [[nodiscard]] uint32_t max_batch_tokens() const override { return options_.max_batch_tokens; }
  [[nodiscard]] uint32_t max_sequences() const override { return options_.max_sequences; }
  [[nodiscard]] uint32_t vocab_size() const override { return options_.vocab_size; }
  [[nodiscard]] uint32_t max_in_flight() const override { return options_.max_in_flight; }
  Status Submit(const ForwardBatch& batch) override;
  Status Collect(const RowSink& sink) override;

 private:
  struct Slot {
    int32_t token = -1;
    uint32_t position = 0;
  };

  // A wanted row on its way: the hash of its token's history.
  struct Pending {
    uint64_t hidden;
    RowUse use;
  };

  [[nodiscard]] Status CheckTable(std::span<const int32_t> table) const;
  [[nodiscard]] uint32_t blocks_of_team() const { return options_.num_blocks / options_.teams; }
  [[nodiscard]] Status CheckBatch(const ForwardBatch& batch) const;
  [[nodiscard]] Status CheckTeam(uint32_t team, const ForwardBatch& batch) const;
  Status KeepWanted(const ForwardBatch& batch);
  void MakeLogits(uint64_t hidden);
  Slot& At(const BatchSequence& sequence, uint32_t position);

  const FakeExecutorOptions options_;
  std::vector<Slot> kv_;          // [num_blocks][block_size], by teams
  std::vector<uint64_t> hidden_;  // of each token of the last batch: the hash of its history
  std::vector<std::vector<Pending>> in_flight_;  // a ring of max_in_flight batches
  size_t oldest_ = 0;
  size_t batches_ = 0;
  std::vector<float> logits_;  // [vocab_size]
};

}  // namespace cleave

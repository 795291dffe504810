#pragma once
// FakeExecutor: a model whose answer depends on every token before, found through the block table.
//
// Forward stores each token and its position in the KV slot its table names; the logits of a row
// are a hash of all tokens read back through the table. A wrong block, a stale one, a wrong
// position or a missing token therefore changes the answer, and anything outside the executor's
// contract fails the step. For tests.

#include <functional>
#include <vector>

#include "engine/executor.h"

namespace cleave {

struct FakeExecutorOptions {
  uint32_t num_blocks = 64;
  uint32_t block_size = 4;
  uint32_t vocab_size = 64;
  uint32_t max_batch_tokens = 512;
  uint32_t max_sequences = 64;
  std::function<Status()> before_forward = nullptr;  // on the engine thread
};

class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(FakeExecutorOptions options);

  [[nodiscard]] uint32_t max_batch_tokens() const override { return options_.max_batch_tokens; }
  [[nodiscard]] uint32_t max_sequences() const override { return options_.max_sequences; }
  [[nodiscard]] uint32_t vocab_size() const override { return options_.vocab_size; }
  Status Forward(const ForwardBatch& batch) override;
  Status Logits(std::span<const uint32_t> rows, float* out) override;

 private:
  struct Slot {
    int32_t token = -1;
    uint32_t position = 0;
  };

  [[nodiscard]] Status CheckBatch(const ForwardBatch& batch) const;
  Slot& At(const BatchSequence& sequence, uint32_t position);

  const FakeExecutorOptions options_;
  std::vector<Slot> kv_;          // [num_blocks][block_size]
  std::vector<uint64_t> hidden_;  // of each token of the last batch: the hash of its history
};

}  // namespace cleave

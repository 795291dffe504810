#pragma once
// InlineExecutor: a world of one rank, run on the engine's own thread and its pool.
//
// Owner: the engine. Holds the checkpoint, the weights, the KV cache and the threads.
// Fails at Create: what cannot be read or does not fit, with the numbers and the flag that helps.

#include <memory>
#include <optional>
#include <vector>

#include "engine/decoder.h"
#include "engine/executor.h"
#include "engine/kv_cache.h"
#include "engine/model_weights.h"

namespace cleave {

struct InlineExecutorOptions {
  Isa isa = Isa::kScalar;
  uint32_t threads = 1;
  std::vector<int> cpus;  // to pin to; empty = not pinned
  uint32_t max_batch_tokens = 512;
  uint32_t max_sequences = 64;
  uint32_t max_positions = 0;
  KvShape kv_shape;                 // head_dim is filled in
  std::optional<DType> float_type;  // unquantised matrices are rounded to it; nothing = as stored
  uint32_t num_blocks = 0;
};

class InlineExecutor final : public Executor {
 public:
  static Result<std::unique_ptr<InlineExecutor>> Create(std::unique_ptr<Checkpoint> checkpoint,
                                                        const InlineExecutorOptions& options,
                                                        const LoadProgress& progress);
  ~InlineExecutor() override;

  [[nodiscard]] uint32_t max_batch_tokens() const override { return options_.max_batch_tokens; }
  [[nodiscard]] uint32_t max_sequences() const override { return options_.max_sequences; }
  [[nodiscard]] uint32_t vocab_size() const override { return checkpoint_->config().vocab_size; }
  Status Forward(const ForwardBatch& batch) override;
  Status Logits(std::span<const uint32_t> rows, float* out) override;

  [[nodiscard]] const ModelWeights& weights() const { return weights_; }

 private:
  InlineExecutor(std::unique_ptr<Checkpoint> checkpoint, const InlineExecutorOptions& options);

  const InlineExecutorOptions options_;
  const std::unique_ptr<Checkpoint> checkpoint_;
  ThreadPool pool_;
  ModelWeights weights_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace cleave

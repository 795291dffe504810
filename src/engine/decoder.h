#pragma once
// Decoder: the forward pass of every family, over one rank's weights.
//
// One layer, for T tokens (x is [T, D], the residual stream in fp32):
//   h = norm(x)                      q, k, v = h·Wqᵀ, h·Wkᵀ, h·Wvᵀ   (+ biases)
//   q, k: per-head norm, rotary      k, v → KV cache, rounded to its type
//   a = attention(q, cache)          x += a·Woᵀ      (post-norm families: x += norm(a·Woᵀ))
//   h = norm(x)                      f = act(h·Wgateᵀ) · (h·Wupᵀ)
//   x += f·Wdownᵀ                    (post-norm families: x += norm(f·Wdownᵀ))
// The o and down products are row-parallel sums: integer counts of a quantum that the residual row
// sets (docs/arithmetic.md), so that any split of their K gives the same bits.
//
// Owner: the executor. Thread: the executor's caller; work is shared over the pool's threads, which
// meet at barriers. Forward and Logits allocate nothing.
// Fails: kInvalidArgument for a batch that breaks its bounds (a fault of the caller).

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/kv_cache.h"
#include "engine/model_weights.h"
#include "kernels/matmul.h"
#include "kernels/vector_ops.h"

namespace cleave {

struct DecoderOptions {
  Isa isa = Isa::kScalar;
  uint32_t max_batch_tokens = 512;
  uint32_t max_sequences = 64;
  uint32_t max_positions = 0;  // of a sequence
};

class Decoder {
 public:
  // weights, kv and pool outlive the decoder.
  Decoder(const ModelConfig& config, const DecoderOptions& options, const ModelWeights* weights,
          KvCache* kv, ThreadPool* pool);
  ~Decoder();

  Status Forward(const ForwardBatch& batch);
  Status Logits(std::span<const uint32_t> rows, float* out);

 private:
  // Rows on their way into a matrix product. All threads share one for many rows; for few, each
  // thread prepares its own and saves a meeting.
  struct Stage;
  // A stretch of one sequence's queries and one KV head.
  struct AttentionItem {
    uint32_t sequence;
    uint32_t kv_head;
    uint32_t token;  // first, in the batch
    uint32_t tokens;
    uint32_t position;  // of the first
  };
  // Columns [begin, end) of a row-parallel product's output.
  struct Columns {
    uint32_t begin;
    uint32_t end;
  };

  void MakeStages();
  void FindRopeSettings();
  Status CheckBatch(const ForwardBatch& batch) const;
  void PlanBatch(const ForwardBatch& batch);
  void RunLayers(uint32_t thread);
  void Embed(uint32_t thread);
  // Rows of a rotary setting, one for each token of the batch.
  float* RopeRow(uint32_t rope, uint32_t row);
  void AttentionHalf(uint32_t layer, uint32_t thread);
  void FfnHalf(uint32_t layer, uint32_t thread);
  // q, k and v rows: biases, norms, rotary; keys and values into the cache.
  void FinishQkv(uint32_t layer, uint32_t thread);
  void FinishQkvRow(uint32_t layer, uint32_t row);
  void RunAttention(uint32_t layer, uint32_t thread);

  Stage& StageOf(uint32_t thread);
  ThreadPool::Share RowShare(uint32_t thread) const;
  void MeetIfShared();
  // stage.hidden = norm(x), prepared for `matrices` (int8 in one or two terms); remembers the rows'
  // quanta.
  void NormInto(Stage* stage, const std::vector<float>& norm,
                std::span<const PackedMatrix* const> matrices, ActTerms terms, uint32_t thread);
  // Rows [begin, end) of `source` as `w` wants them, into the stage's buffer of that kind.
  void Prepare(Stage* stage, const PackedMatrix& w, const float* source, size_t stride,
               ActTerms terms, ThreadPool::Share rows) const;
  void PrepareRows(Stage* stage, const float* source, size_t stride, const PackedMatrix& w,
                   ActTerms terms, uint32_t thread);
  void Column(const PackedMatrix& w, const Stage& stage, ActTerms terms, float* y, uint32_t thread);
  // x += stage·wᵀ, through `post_norm` when the family has one.
  void RowParallel(const PackedMatrix& w, const Stage& stage, const std::vector<float>& post_norm,
                   ActTerms terms, uint32_t thread);

  const ModelConfig config_;
  const DecoderOptions options_;
  const SumRule sum_rule_;
  const ModelWeights* const weights_;
  KvCache* const kv_;
  ThreadPool* const pool_;
  std::vector<RopeFrequencies> ropes_;  // the distinct ones
  std::vector<uint32_t> rope_of_layer_;

  // The batch being run: set by the caller's thread before the pool starts.
  uint32_t tokens_ = 0;
  std::span<const int32_t> token_ids_;
  std::span<const BatchSequence> sequences_;
  std::vector<uint32_t> position_of_;  // [T]
  std::vector<uint32_t> sequence_of_;  // [T]
  std::vector<AttentionItem> items_;
  std::vector<std::atomic<uint32_t>> next_item_;  // [layers]

  // Activations, row-major.
  std::vector<float> x_;          // [T, D]
  std::vector<float> rope_rows_;  // [ropes, T, d] of the batch's positions
  std::vector<float> q_;          // [T, H·d]
  std::vector<float> k_;          // [T, G·d]
  std::vector<float> v_;          // [T, G·d]
  std::vector<float> attention_;  // [T, H·d]
  std::vector<float> gate_;       // [T, F]
  std::vector<float> up_;         // [T, F]
  std::vector<float> y_;          // [T, D] a block's output before its post norm
  std::vector<int64_t> totals_;   // [T, D]
  std::unique_ptr<Stage> shared_;
  std::vector<std::unique_ptr<Stage>> private_;  // [threads]
  std::vector<AttentionScratch> scratch_;        // [threads]
};

}  // namespace cleave

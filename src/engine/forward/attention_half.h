#pragma once
// AttentionHalf: the first half of a layer, with the heads a rank holds.
//
//   h = norm(x)   q, k, v = h·Wqᵀ, h·Wkᵀ, h·Wvᵀ (+ biases)   per-head norms, rotary
//   k, v → KV cache, rounded to its type                      a = attention(q, cache)
//   x += a·Woᵀ, over the ranks (row_sum.h)
//
// Owner: the decoder. Plan runs on the caller's thread; Run inside ThreadPool::Run on every thread.
// No allocation after construction.

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/forward/rank_context.h"
#include "engine/forward/row_stages.h"
#include "engine/forward/row_sum.h"
#include "engine/forward/step_rows.h"
#include "engine/kv_cache.h"
#include "kernels/attention.h"
#include "kernels/vector_ops.h"

namespace cleave {

class AttentionHalf {
 public:
  // stages and sum are shared with the other half.
  AttentionHalf(const RankContext& context, KvCache* kv, RowStages* stages, RowSum* sum);

  void Plan(const StepRows& step);
  // Before the first layer: this thread's rotary rows.
  void MakeRopeRows(const StepRows& step, uint32_t thread);
  // `layer` counts from the rank's first one.
  void Run(uint32_t layer, const StepRows& step, float* x, uint32_t thread);

 private:
  // A stretch of one sequence's queries and one KV head.
  struct Item {
    uint32_t sequence;
    uint32_t kv_head;  // of the rank's
    uint32_t token;    // first, in the batch
    uint32_t tokens;
    uint32_t position;  // of the first
  };

  void FindRopeSettings();
  // Rows of a rotary setting, one for each token of the batch.
  float* RopeRow(uint32_t rope, uint32_t row);
  // q, k and v rows: biases, norms, rotary; keys and values into the cache.
  void FinishRow(uint32_t layer, const StepRows& step, uint32_t row);
  void Attend(uint32_t layer, const StepRows& step, uint32_t thread);

  const RankContext& context_;
  KvCache* const kv_;
  RowStages* const stages_;
  RowSum* const sum_;
  const uint32_t heads_;                // of this rank
  const uint32_t kv_heads_;             // likewise
  std::vector<Range> queries_of_;       // [kv_heads] of the rank's query heads
  std::vector<RopeFrequencies> ropes_;  // the distinct ones
  std::vector<uint32_t> rope_of_layer_;
  std::vector<float> rope_rows_;  // [ropes, T, d] of the batch's positions
  std::vector<Item> items_;
  std::vector<std::atomic<uint32_t>> next_item_;  // [layers]
  std::vector<float> q_;                          // [T, H·d]
  std::vector<float> k_;                          // [T, G·d]
  std::vector<float> v_;                          // [T, G·d]
  std::vector<float> out_;                        // [T, H·d]
  std::vector<AttentionScratch> scratch_;         // [threads]
};

}  // namespace cleave

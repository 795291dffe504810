#pragma once
// AttentionHalf: the first half of a layer, with the heads a rank holds.
//
//   h = norm(x)   q, k, v = h·Wqᵀ, h·Wkᵀ, h·Wvᵀ (+ biases)   per-head norms, rotary
//   k, v → KV cache, rounded to its type                      a = attention(q, cache)
//                                                             (attention_core.h)
//   x += a·Woᵀ, over the ranks (row_sum.h)
//
// Owner: the decoder. Plan runs on the caller's thread; Run inside ThreadPool::Run on every thread.
// No allocation after construction.

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/forward/attention_core.h"
#include "engine/forward/rank_context.h"
#include "engine/forward/row_stages.h"
#include "engine/forward/row_sum.h"
#include "engine/forward/step_rows.h"
#include "engine/kv_cache.h"
#include "kernels/vector_ops.h"

namespace cleave {

class AttentionHalf {
 public:
  // stages and sum are shared with the other half.
  AttentionHalf(const RankContext& context, KvCache* kv, RowStages* stages, RowSum* sum);

  void Plan(const StepRows& step) { core_->Plan(step); }
  // Before the first layer: this thread's rotary rows.
  void MakeRopeRows(const StepRows& step, uint32_t thread);
  // The step's own rows of x [T, D]. `layer` counts from the rank's first one.
  void Run(uint32_t layer, const StepRows& step, float* x, uint32_t thread);
  [[nodiscard]] Status status() const { return core_->status(); }
  [[nodiscard]] CpCounts cp_counts() const { return core_->cp_counts(); }

 private:
  void FindRopeSettings();
  // Rows of a rotary setting, one for each token of the batch.
  float* RopeRow(uint32_t rope, uint32_t row);
  // q, k and v of a row: biases, norms, rotary.
  void FinishRow(uint32_t layer, uint32_t row);

  const RankContext& context_;
  RowStages* const stages_;
  RowSum* const sum_;
  const std::unique_ptr<AttentionCore> core_;
  const uint32_t heads_;                // of this rank
  const uint32_t kv_heads_;             // likewise
  std::vector<RopeFrequencies> ropes_;  // the distinct ones
  std::vector<uint32_t> rope_of_layer_;
  std::vector<float> rope_rows_;  // [ropes, T, d] of the batch's positions
  AttentionRows rows_;
};

}  // namespace cleave

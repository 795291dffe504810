#pragma once
// Decoder: the forward pass of every family, over one rank's weights.
//
// One layer, for T tokens (x is [T, D], the residual stream in fp32):
//   x += attention(norm(x))·Woᵀ     (attention_half.h)
//   x += ffn(norm(x))·Wdownᵀ        (ffn.h: dense, or of experts)
// The o and down products are row-parallel sums: integer counts of a quantum that the residual row
// sets (docs/arithmetic.md), so that any split of their K gives the same bits.
//
// A rank runs its layers with its heads and columns (split/layout.h). The first stage embeds,
// others receive x; all but the last send x on. In large steps cp ranks run a share of the rows
// each, and gather x at the end (or, where experts are spread over the stage's ranks, before them);
// tp ranks norm and add up a share of their common rows each, and gather x at the end.
// With teams, all this is about the rows of the rank's own; only the experts are everybody's.
//
// Owner: the rank's runner. Thread: the runner's caller; work is shared over the pool's threads,
// which meet at barriers; thread 0 speaks to other ranks. Forward allocates nothing.
// Fails: kInvalidArgument for a batch that breaks its bounds (a fault of the caller); what a group
// says when another rank is lost.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/forward/attention_half.h"
#include "engine/forward/embedder.h"
#include "engine/forward/ffn.h"
#include "engine/forward/rank_context.h"
#include "engine/forward/row_share.h"
#include "engine/forward/row_stages.h"
#include "engine/forward/row_sum.h"
#include "engine/forward/step_rows.h"
#include "engine/kv_cache.h"

namespace cleave {

class Decoder {
 public:
  // context and kv outlive the decoder.
  Decoder(const RankContext& context, KvCache* kv);
  ~Decoder();

  // kResourceExhausted: no room for a batch's buffers; else what Forward ended with.
  [[nodiscard]] Status status() const;
  // Its team's part of a batch through the rank's layers, `wanted` aside; `teams`: the rows of each
  // in the batch. A team without rows has a part in ep alone.
  Status Forward(const ForwardBatch& part, std::span<const Range> teams);
  // [T, D] the residual rows after the rank's last layer.
  [[nodiscard]] const float* hidden() const { return x_.data(); }
  // Rows that this rank put into reductions as int64, since the start.
  [[nodiscard]] uint64_t wide_rows() const { return sum_->wide_rows(); }
  // Own rows that this rank handed to its tp group normed, since the start.
  [[nodiscard]] WireCounts normed_rows() const { return stages_.normed_rows(); }
  // See Ffn.
  [[nodiscard]] EpCounts ep_counts() const { return ffn_->ep_counts(); }
  [[nodiscard]] CpCounts cp_counts() const { return attention_.cp_counts(); }
  [[nodiscard]] std::span<const uint64_t> expert_tokens() const { return ffn_->expert_tokens(); }

 private:
  [[nodiscard]] Status CheckBatch(const ForwardBatch& batch, std::span<const Range> teams) const;
  [[nodiscard]] Status CheckBlocks(std::span<const int32_t> table) const;
  void PlanBatch(const ForwardBatch& batch, std::span<const Range> teams);
  void RunLayers(uint32_t thread);
  void GatherRows(RowShare* share, Range rows, uint32_t thread);
  Status ReceiveRows();
  Status SendRows();

  const RankContext& context_;
  KvCache* const kv_;
  StepRows step_;
  std::vector<float> x_;  // [T, D]
  RowStages stages_;
  const std::unique_ptr<RowSum> sum_;
  RowShare cp_share_;
  RowShare tp_share_;
  Status share_status_;
  Embedder embedder_;
  AttentionHalf attention_;
  const std::unique_ptr<Ffn> ffn_;
};

}  // namespace cleave

#pragma once
// ContextAttention: attention whose keys and values are shared out by position, in runs of 512,
// over the ranks of the cp and dcp groups (split/layout.h says which rank holds which run).
//
//   cp all_gather   q, k and v of all rows, where the ranks computed a share of them each
//   dcp all_gather  q of the other ranks' heads: a rank attends for all heads of its dcp group
//   k, v            of own runs into the cache
//   attention       of every row over own runs: partials (kernels/attention_partial.h)
//   dcp, then cp    partials to the ranks of their heads, of their rows (partial_exchange.h)
//   out             of own rows and heads: what one rank would have made of all runs, to the bit

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/forward/attention_core.h"
#include "engine/forward/partial_exchange.h"
#include "engine/forward/row_share.h"

namespace cleave {

class ContextAttention final : public AttentionCore {
 public:
  ContextAttention(const RankContext& context, KvCache* kv);

  void Run(uint32_t layer, const StepRows& step, AttentionRows* rows, uint32_t thread) override;
  [[nodiscard]] Status status() const override;
  [[nodiscard]] CpCounts cp_counts() const override;

 private:
  using Part = PartialExchange::Part;

  void MakeDcp();
  // On thread 0.
  Status Collect(const StepRows& step, AttentionRows* rows);
  Status GatherQueries(const StepRows& step, const AttentionRows& rows);
  // A row's queries of all heads of the dcp group, side by side.
  void PlaceQueries(uint32_t row, uint32_t tokens);
  void Attend(uint32_t layer, const StepRows& step, const float* q, uint32_t thread);
  // Of all rows and own heads, over the dcp group's runs.
  void MergeHeads(uint32_t tokens, uint32_t thread);
  void FinishHeads(const StepRows& step, AttentionRows* rows, uint32_t thread);
  void FinishRows(const StepRows& step, AttentionRows* rows, uint32_t thread);

  const Range queries_range_;  // that it attends for
  const uint32_t heads_;       // of this rank
  const AttentionRuns runs_;   // of this rank
  RowShare share_;
  Partials partials_;             // [T, queries]
  std::vector<PartialSum> sums_;  // [threads]
  Status status_;

  // Over dcp.
  std::optional<PartialExchange> dcp_;
  std::vector<Range> heads_of_;        // [dcp] among the group's queries
  std::vector<Part> head_parts_;       // [dcp]
  std::vector<uint64_t> query_sizes_;  // [dcp]
  std::vector<float> gathered_q_;      // by member: [T, its heads · d]
  std::vector<float> group_q_;         // [T, queries · d]
  Partials merged_;                    // [T, H], where cp follows

  // Over cp.
  std::optional<PartialExchange> cp_;
  std::vector<Part> row_parts_;  // [cp], or one
};

}  // namespace cleave

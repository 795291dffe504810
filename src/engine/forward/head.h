#pragma once
// Head: from residual rows to what was wanted of them, over the vocabulary rows a rank holds.
//
// Logits stay where they are made: of a row whose highest logit is wanted, (value, id) travels over
// the tp group; only rows whose logits are wanted whole are gathered, on tp rank 0.
// Owner: a rank's runner, on a last stage. Threads: the runner's caller. No allocation after
// construction. Fails with what the group says.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/executor.h"
#include "engine/forward/rank_context.h"
#include "engine/forward/row_stages.h"

namespace cleave {

class Head {
 public:
  Head(const RankContext& context, uint32_t max_rows);

  // x: [T, D]. At most max_rows rows; every tp rank calls with the same ones.
  Status Run(const float* x, std::span<const WantedRow> rows);
  // Of the last Run's row i; on tp rank 0. Logits may be written until the next Run.
  [[nodiscard]] RowResult result(uint32_t i);

 private:
  void Multiply(const float* x, uint32_t thread);
  void KeepHighest(uint32_t begin, uint32_t end, uint32_t thread);
  Status GatherHighest();
  Status GatherLogits();

  const RankContext& context_;
  const uint32_t max_rows_;
  const Range vocab_;  // of this rank
  RowStages stages_;
  // Of the Run under way. Rows wanted whole take the first slots.
  std::span<const WantedRow> rows_;
  uint32_t whole_ = 0;
  std::vector<uint32_t> slot_of_;           // [max_rows] of a wanted row
  std::vector<uint32_t> row_of_;            // [max_rows] batch row of a slot
  std::vector<float> local_;                // [max_rows][vocab_.size()]
  std::vector<MaxLogit> highest_;           // [max_rows] by slot - whole_
  std::vector<MaxLogit> threads_;           // [threads][max_rows]
  std::vector<MaxLogit> gathered_highest_;  // [tp][max_rows]
  std::vector<float> gathered_;             // [tp][whole rows][its vocabulary rows]
  std::vector<float> logits_;               // [max_rows][V]
  std::vector<Range> vocab_of_;             // [tp]
  std::vector<uint64_t> sizes_;             // [tp]
};

}  // namespace cleave

#pragma once
// Traffic: every collective of a step, with its bytes, as a pure function of layout and counts.
// The runtime meters the same operations (comm/stats.h); bill.exact holds the two equal.
//
// Bytes are payload: what a rank hands over for others to read, counted once however many read it.
//   tp all_reduce      narrow(rows) = rows · (1 + columns · 4) is what a reduction would take with
//                      every row int32. At most one_shot_max_bytes: one call of all_reduce,
//                        rows + columns · (4 · rows + 4 · wide)     one byte a row says its width
//                      Larger: one call of reduce_scatter and one of all_gather. Rank i of n owns
//                      columns [round(columns · i / n), round(columns · (i+1) / n)), halves up:
//                        reduce_scatter  rows + (columns - own) · (4 · rows + 4 · wide)
//                        all_gather      own · rows · 4             fp32
//                      wide: this rank's rows of int64.
//   all_gather         the rank's own bytes: embedding rows it holds, fp32; candidates and logits of
//                      sampled rows
//   all_to_all         the bytes for others, not those for itself
//   send               the bytes sent: the residual rows, fp32, to the next stage; results to stage
//                      0. A receiver counts neither call nor bytes.
// A group of one hands nothing over: no calls. Nor does a reduction of no rows or an all_gather of
// no bytes. Splitting into chunks does not show.
// Any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "split/layout.h"

namespace cleave {

enum class CommOp : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSend };
inline constexpr uint32_t kCommOps = 5;
// "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send".
const char* CommOpName(CommOp op);

// Element widths and algorithms of the engine that is priced.
enum class Dialect : uint8_t { kCleave, kVllm };

// What a step did, on one rank. The first five follow from its plan; the others are reported.
struct StepCounts {
  uint32_t tokens = 0;           // rows of the batch
  uint32_t greedy_rows = 0;      // sampled by their highest logit alone
  uint32_t full_rows = 0;        // whose logits rank 0 reads whole
  uint32_t embedded_tokens = 0;  // whose embedding row this rank holds
  uint64_t wide_rows = 0;        // rows that went into a tp reduction as int64, over all layers
};

struct Transfer {
  Axis axis = Axis::kTp;
  CommOp op = CommOp::kAllReduce;
  uint64_t calls = 0;
  uint64_t bytes = 0;
};

struct TrafficOptions {
  Dialect dialect = Dialect::kCleave;
  // Reductions of at most so many payload bytes (rows narrow) go in one shot.
  uint64_t one_shot_max_bytes = 0;
};

// What rank `rank` of the layout hands over in the step; one entry an (axis, op) with calls > 0.
std::vector<Transfer> TrafficOfStep(const Layout& layout, uint32_t rank, const StepCounts& counts,
                                    const TrafficOptions& options);

}  // namespace cleave

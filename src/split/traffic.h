#pragma once
// Traffic: every collective of a step, with its bytes, as a pure function of layout and counts.
// The runtime meters the same operations (comm/stats.h); bill.exact holds the two equal.
//
// Bytes are payload: what a rank hands over for others to read, counted once however many read it.
//   tp all_reduce      one-shot: the rank's packed rows. Past the crossover: reduce_scatter (the
//                      rows' columns that other ranks own) and all_gather (its own columns, fp32).
//                      A row is columns · 4 bytes, or · 8 where its sums escaped to int64, and one
//                      byte for the flag that says which.
//   tp all_gather      embedding rows this rank holds, fp32; candidates and logits of sampled rows
//   pp send            the residual rows, fp32, to the next stage; results back to stage 0
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

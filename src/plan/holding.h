#pragma once
// What a rank holds of a model: weights, and KV by token. Inside of AccountOf. Pure; any thread.
// Fails with kInvalidArgument or kUnsupported: why the split cannot be.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "plan/model_facts.h"
#include "plan/weight_format.h"
#include "split/layout.h"
#include "split/traffic.h"

namespace cleave {

struct RankHolding {
  uint32_t rank = 0;
  double weight_bytes = 0;
  Range layers;
  double kv_layer_bytes = 0;  // of a position in a layer that keeps it, indexer counted
  double state_layer_bytes = 0;
  uint32_t partitions = 1;  // ranks that share a sequence by position
  bool by_runs = false;     // its positions are runs of 512, else every n-th
  RankCoord coord;
};

// Of one replica: each rank of cleave's, and of vLLM's one of each stage, which are alike.
Result<std::vector<RankHolding>> HoldingsOf(const ModelFacts& model, const Split& split,
                                            const WeightFormat& format, double kv_element_bytes,
                                            Dialect dialect);

// Of the rank's layers: a sequence of `tokens` tokens, of which it keeps its positions.
double SequenceBytesOf(const ModelFacts& model, const Split& split, const RankHolding& holding,
                       uint64_t tokens);
// A token's, windows not full.
double TokenBytesOf(const ModelFacts& model, const RankHolding& holding);

// Bytes of the whole model.
double WeightBytes(const ModelFacts& model, const WeightFormat& format);

}  // namespace cleave

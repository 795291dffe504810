#pragma once
// Layout: which rank of a replica holds what. A pure function of model shape, split and costs; the
// planner prices it, the loader reads by it, the runtime runs it.
//
// Shares. Units are shared out in contiguous ranges: n units over weights w₀ … wₖ₋₁ put the border
// before rank i at round(n · (w₀ + … + wᵢ₋₁) / Σw), so that counts need not divide and shares of
// equal weight differ by at most one.
//
//   query heads  units of one head; KV heads follow: those the query heads read
//   FFN columns  units of 64 (a model's last unit may be shorter)
//   vocabulary   units of 16 rows (likewise)
//   layers       contiguous, balanced by cost, or as --pp-layers says
//   experts      whole, over ep ranks, whose weight is their ranks' together, with the redundant
//                copies that the split asks for (expert_placement.h); their columns over the ranks
//                of an ep rank (ExpertPlaceOf), over tp when ep is 1
//   positions    runs of 512: run r is held by cp rank r mod cp, and there by rank (r / cp) mod dcp
//                of each dcp group (KvPartitionOf)
//
// KV heads that two tp ranks need are held by both: replicated_kv_heads counts the extra copies.
// Ranks of a dcp group hold the KV heads of all its query heads, each at its own positions.
//
// Fails with kInvalidArgument: the number that is wrong, its limit, and layouts that would work.
// Any thread.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "split/expert_placement.h"
#include "split/model_shape.h"
#include "split/split.h"

namespace cleave {

inline constexpr uint32_t kFfnUnitColumns = 64;
inline constexpr uint32_t kVocabUnitRows = 16;
inline constexpr uint32_t kRunPositions = 512;

// What a layout may have at most; MakeLayout refuses more.
inline constexpr uint32_t kMaxAxisSize = 4096;
inline constexpr uint32_t kMaxReplicaRanks = 16384;
// That exchange with each other: of an axis but dp, of a stage that shares experts.
inline constexpr uint32_t kMaxGroupRanks = 64;
inline constexpr uint32_t kMaxExperts = 2048;
inline constexpr uint32_t kMaxRedundantExperts = 2048;
inline constexpr double kMaxLayerCost = 1e100;

struct Range {
  uint32_t begin = 0;
  uint32_t end = 0;
  [[nodiscard]] uint32_t size() const { return end - begin; }
  [[nodiscard]] bool contains(uint32_t i) const { return i >= begin && i < end; }
  bool operator==(const Range&) const = default;
};

// Borders of [0, n) in proportion to `weights` (as above, halves rounded up); weights.size()
// ranges. Weights that are all 0 count as even.
std::vector<Range> ShareOut(uint32_t n, const std::vector<uint32_t>& weights);
std::vector<Range> ShareOutWide(uint32_t n, const std::vector<uint64_t>& weights);
// Consecutive ranges of so many each, from 0 on.
std::vector<Range> RangesOf(const std::vector<uint32_t>& counts);
// Range `part` of ShareOut(n, parts equal weights). part < parts.
Range EvenShare(uint32_t n, uint32_t parts, uint32_t part);

struct RankLayout {
  uint32_t rank = 0;  // in its replica
  RankCoord coord;
  Range layers;
  bool first_stage = true;  // embeds
  bool last_stage = true;
  Range q_heads;
  Range kv_heads;                 // those q_heads read; with dcp, those its dcp group's read
  Range ffn_columns;              // of a dense layer, or of each expert it holds; in 64s, or F
  Range vocab_rows;               // of embedding and head, where it has them; in 16s, or V
  std::vector<uint32_t> experts;  // ascending; the same in every layer

  // Of cp ranks, which have the same rows in the end, the first computes their logits.
  [[nodiscard]] bool has_head() const { return last_stage && coord.cp == 0; }
  bool operator==(const RankLayout&) const = default;
};

struct Layout {
  ModelShape shape;
  Split split;
  std::vector<RankLayout> ranks;     // of one replica, by rank
  uint32_t replicated_kv_heads = 0;  // copies beyond the first, a stage's layer
  ExpertPlacement experts;           // where ep > 1

  [[nodiscard]] const RankLayout& of(const RankCoord& coord) const {
    return ranks[RankOf(split, coord)];
  }
  // The query heads of all ranks of a rank's dcp group: those it attends for, at its positions.
  [[nodiscard]] Range DcpQueries(const RankCoord& coord) const;
  // The largest share over the even one, of what a stage's tp ranks compute in each half of a
  // layer: the ceiling of tp's speed-up is tp / (its weighted mean). 1 = perfectly even. Replicated
  // KV heads are work too. With ep: over the stage's ranks, tokens spread over experts as the
  // split's expert_loads say, else evenly.
  [[nodiscard]] double AttentionImbalance() const;
  [[nodiscard]] double FfnImbalance() const;
  // Of a token's work in all experts, evenly chosen, what the ep rank computes: a number of them.
  [[nodiscard]] double ExpertsComputedBy(uint32_t ep_rank) const;
  // That ceiling, both halves weighted by their multiply-adds; exchange costs nothing.
  [[nodiscard]] double TpCeiling() const;
};

// The ranks that share a KV head's positions hold a partition each: run r (positions 512 · r …)
// belongs to partition r mod KvPartitionsOf.
inline uint32_t KvPartitionsOf(const Split& split) { return split.cp * split.dcp; }
inline uint32_t KvPartitionOf(const Split& split, const RankCoord& coord) {
  return coord.tp % split.dcp * split.cp + coord.cp;
}
// Whether the rank keeps the keys and values of run `run` of its KV heads.
bool HoldsRun(const Split& split, const RankCoord& coord, uint32_t run);
// The rows of a step of `tokens` that a rank computes, attention aside: all; or, where cp ranks
// have rows enough for their matrices to be worth it, an even share.
inline constexpr uint32_t kCpRowsWorthSharing = 16;  // of each rank
Range CpRowsOf(const Split& split, uint32_t cp_rank, uint32_t tokens);
inline bool CpSharesRows(const Split& split, uint32_t tokens) {
  return split.cp > 1 && tokens / split.cp >= kCpRowsWorthSharing;
}
// Of `rows` that all ranks of a tp group compute, those that a rank norms and adds up for all: all;
// or, where there are enough and no ep beside tp, an even share.
inline constexpr uint32_t kTpRowsWorthSharing = 16;  // of each rank
inline bool TpSharesRows(const Split& split, uint32_t rows) {
  return split.tp > 1 && split.ep == 1 && rows / split.tp >= kTpRowsWorthSharing;
}
Range TpRowsOf(const Split& split, uint32_t tp_rank, uint32_t rows);
// How many of the positions [0, positions) it keeps.
uint32_t PositionsHeld(const Split& split, const RankCoord& coord, uint32_t positions);

Result<Layout> MakeLayout(const ModelShape& shape, const Split& split, const LayerCosts& costs);

}  // namespace cleave

#include "split/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/rng.h"  // Uint128
#include "split/balance.h"
#include "split/refusal.h"

namespace cleave {
namespace {

// round(n · part / whole), halves up.
uint32_t Border(uint32_t n, uint64_t part, uint64_t whole) {
  const Uint128 twice = static_cast<Uint128>(n) * part * 2 + whole;
  return static_cast<uint32_t>(twice / (static_cast<Uint128>(whole) * 2));
}

// KV heads that query heads [q.begin, q.end) read.
Range KvOf(const Range& q, uint32_t q_per_kv) {
  return {q.begin / q_per_kv, (q.end + q_per_kv - 1) / q_per_kv};
}

std::vector<Range> LayersOfStages(const Split& split, const LayerCosts& costs) {
  return RangesOf(split.pp_layers.empty() ? BalanceLayers(costs, split.pp) : split.pp_layers);
}

// Query heads that tp rank `tp` and the others of its dcp group have.
Range GroupHeads(const StageShares& shares, const Split& split, uint32_t tp) {
  const uint32_t first = tp / split.dcp * split.dcp;
  return {shares.q_heads[first].begin, shares.q_heads[first + split.dcp - 1].end};
}

RankLayout MakeRank(const ModelShape& shape, const Split& split, const StageShares& shares,
                    const ExpertPlacement& placement, const RankCoord& coord) {
  RankLayout rank;
  rank.rank = RankOf(split, coord);
  rank.coord = coord;
  rank.first_stage = coord.pp == 0;
  rank.last_stage = coord.pp + 1 == split.pp;
  rank.q_heads = shares.q_heads[coord.tp];
  rank.kv_heads = KvOf(GroupHeads(shares, split, coord.tp), shape.q_per_kv());
  rank.ffn_columns = shares.ffn_columns[PlaceInStage(split, coord)];
  rank.vocab_rows = shares.vocab_rows[coord.tp];
  if (split.ep > 1) {
    rank.experts = placement.held[ExpertPlaceOf(split, coord).ep_rank];
  } else {
    rank.experts.resize(shape.num_experts);
    std::iota(rank.experts.begin(), rank.experts.end(), 0U);
  }
  return rank;
}

uint32_t ReplicatedKvHeads(const ModelShape& shape, const Split& split, const StageShares& shares) {
  uint32_t held = 0;
  for (uint32_t tp = 0; tp < split.tp; tp += split.dcp) {
    held += KvOf(GroupHeads(shares, split, tp), shape.q_per_kv()).size();
  }
  return held - shape.num_kv_heads;
}

}  // namespace

std::vector<Range> RangesOf(const std::vector<uint32_t>& counts) {
  std::vector<Range> ranges;
  uint32_t begin = 0;
  for (const uint32_t count : counts) {
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

std::vector<Range> ShareOutWide(uint32_t n, const std::vector<uint64_t>& weights) {
  if (weights.empty()) return {};
  const uint64_t sum = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
  if (sum == 0) return ShareOutWide(n, std::vector<uint64_t>(weights.size(), 1));
  std::vector<Range> ranges;
  ranges.reserve(weights.size());
  uint64_t before = 0;
  uint32_t begin = 0;
  for (const uint64_t weight : weights) {
    before += weight;
    const uint32_t end = Border(n, before, sum);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

std::vector<Range> ShareOut(uint32_t n, const std::vector<uint32_t>& weights) {
  return ShareOutWide(n, {weights.begin(), weights.end()});
}

Range EvenShare(uint32_t n, uint32_t parts, uint32_t part) {
  return {Border(n, part, parts), Border(n, part + 1, parts)};
}

double Layout::AttentionImbalance() const {
  uint32_t most = 0;
  for (const RankLayout& rank : ranks) {
    // Q and O of a query head, K and V of a KV head: the same size.
    most = std::max(most, rank.q_heads.size() + rank.kv_heads.size());
  }
  return static_cast<double>(most) * split.tp /
         (static_cast<double>(shape.num_heads) + shape.num_kv_heads);
}

double Layout::FfnImbalance() const {
  // [ep] parts of the tokens' experts.
  std::vector<double> parts(split.ep, 1);
  if (split.ep > 1) {
    const auto load = [&](uint32_t e) {
      return split.expert_loads.empty() ? 1.0 : static_cast<double>(split.expert_loads[e]);
    };
    double sum = 0;
    std::fill(parts.begin(), parts.end(), 0.0);
    for (uint32_t e = 0; e < shape.num_experts; ++e) sum += load(e);
    for (uint32_t ep_rank = 0; ep_rank < split.ep; ++ep_rank) {
      if (sum == 0) parts[ep_rank] = ExpertsComputedBy(ep_rank) / shape.num_experts;
      for (const uint32_t e : sum == 0 ? std::vector<uint32_t>() : experts.held[ep_rank]) {
        parts[ep_rank] += load(e) / sum * experts.turns_of(e, ep_rank) / kExpertTurns;
      }
    }
  }
  double most = 0;
  for (const RankLayout& rank : ranks) {
    const double part = parts[split.ep == 1 ? 0 : ExpertPlaceOf(split, rank.coord).ep_rank];
    most = std::max(most, part * rank.ffn_columns.size());
  }
  const uint32_t sharers = split.ep == 1 ? split.tp : split.ranks_per_stage();
  return most * sharers / shape.ffn_size;
}

double Layout::ExpertsComputedBy(uint32_t ep_rank) const {
  if (split.ep == 1) return shape.num_experts;
  uint64_t turns = 0;
  for (const uint32_t e : experts.held[ep_rank]) turns += experts.turns_of(e, ep_rank);
  return static_cast<double>(turns) / kExpertTurns;
}

double Layout::TpCeiling() const {
  const double attention = shape.AttentionWork();
  const double ffn = shape.FfnWork();
  const double mean = (AttentionImbalance() * attention + FfnImbalance() * ffn) / (attention + ffn);
  return split.tp / mean;
}

Range Layout::DcpQueries(const RankCoord& coord) const {
  RankCoord member = coord;
  member.tp = coord.tp / split.dcp * split.dcp;
  const uint32_t begin = of(member).q_heads.begin;
  member.tp += split.dcp - 1;
  return {begin, of(member).q_heads.end};
}

bool HoldsRun(const Split& split, const RankCoord& coord, uint32_t run) {
  return run % KvPartitionsOf(split) == KvPartitionOf(split, coord);
}

Range CpRowsOf(const Split& split, uint32_t cp_rank, uint32_t tokens) {
  if (!CpSharesRows(split, tokens)) return {0, tokens};
  return EvenShare(tokens, split.cp, cp_rank);
}

Range TpRowsOf(const Split& split, uint32_t tp_rank, uint32_t rows) {
  if (!TpSharesRows(split, rows)) return {0, rows};
  return EvenShare(rows, split.tp, tp_rank);
}

uint32_t PositionsHeld(const Split& split, const RankCoord& coord, uint32_t positions) {
  // Runs go round the shards; shard s of `shards` holds runs s, s + shards, …
  const uint32_t shards = KvPartitionsOf(split);
  const uint32_t shard = KvPartitionOf(split, coord);
  const uint32_t whole_runs = positions / kRunPositions;
  uint32_t held = (whole_runs / shards + (shard < whole_runs % shards ? 1 : 0)) * kRunPositions;
  if (whole_runs % shards == shard) held += positions % kRunPositions;
  return held;
}

Result<Layout> MakeLayout(const ModelShape& shape, const Split& split, const LayerCosts& costs) {
  RETURN_IF_ERROR(CheckShape(shape, costs));
  const Status cut = CheckCut(shape, split);
  if (!cut.ok()) {
    return InvalidArgument(
        fmt::format("{}; {}", cut.message(), LayoutsThatWork(shape, split, costs)));
  }
  Layout layout;
  layout.shape = shape;
  layout.split = split;
  const StageShares shares = SharesOfStage(shape, split);
  layout.replicated_kv_heads = ReplicatedKvHeads(shape, split, shares);
  if (split.ep > 1) {
    layout.experts = PlaceExperts({.experts = shape.num_experts,
                                   .weights = shares.ep_weights,
                                   .redundant = split.redundant_experts,
                                   .loads = split.expert_loads});
  }
  const std::vector<Range> stages = LayersOfStages(split, costs);
  for (uint32_t i = 0; i < split.ranks_per_replica(); ++i) {
    const RankCoord coord = CoordOf(split, i);
    layout.ranks.push_back(MakeRank(shape, split, shares, layout.experts, coord));
    layout.ranks.back().layers = stages[coord.pp];
  }
  return layout;
}

}  // namespace cleave

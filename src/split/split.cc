#include "split/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace cleave {

const char* AxisName(Axis axis) {
  switch (axis) {
    case Axis::kDp:
      return "dp";
    case Axis::kPp:
      return "pp";
    case Axis::kTp:
      return "tp";
    case Axis::kEp:
      return "ep";
    case Axis::kCp:
      return "cp";
  }
  return "?";
}

std::string Split::ToString() const {
  std::string text = fmt::format("dp={} pp={}", dp, pp);
  if (teams != 1) text += fmt::format(" teams={}", teams);
  text += fmt::format(" tp={} ep={} cp={}", tp, ep, cp);
  if (dcp != 1) text += fmt::format(" dcp={}", dcp);
  if (!tp_shares.empty()) text += fmt::format(" tp-shares={}", fmt::join(tp_shares, ","));
  if (!pp_layers.empty()) text += fmt::format(" pp-layers={}", fmt::join(pp_layers, ","));
  if (redundant_experts != 0) text += fmt::format(" redundant-experts={}", redundant_experts);
  return text;
}

uint32_t RankOf(const Split& split, const RankCoord& coord) {
  return coord.pp * split.ranks_per_stage() + PlaceInStage(split, coord);
}

RankCoord CoordOf(const Split& split, uint32_t rank) {
  return {.pp = rank / split.ranks_per_stage(),
          .team = rank / split.ranks_per_team() % split.teams,
          .tp = rank / split.cp % split.tp,
          .cp = rank % split.cp};
}

uint32_t PlaceInStage(const Split& split, const RankCoord& coord) {
  return coord.team * split.ranks_per_team() + PlaceInTeam(split, coord);
}

uint32_t PlaceInTeam(const Split& split, const RankCoord& coord) {
  return coord.tp * split.cp + coord.cp;
}

std::vector<uint32_t> GroupOf(const Split& split, Axis axis, uint32_t rank) {
  RankCoord at = CoordOf(split, rank);
  std::vector<uint32_t> group;
  const auto walk = [&](uint32_t size, uint32_t* place) {
    for (*place = 0; *place < size; ++*place) group.push_back(RankOf(split, at));
  };
  switch (axis) {
    case Axis::kDp:
      return {rank};
    case Axis::kPp:
      walk(split.pp, &at.pp);
      return group;
    case Axis::kTp:
      walk(split.tp, &at.tp);
      return group;
    case Axis::kEp:
      if (split.ep == 1) return {rank};
      for (at.team = 0; at.team < split.teams; ++at.team) {
        const std::vector<uint32_t> team = TeamOf(split, RankOf(split, at));
        group.insert(group.end(), team.begin(), team.end());
      }
      return group;
    case Axis::kCp:
      walk(split.cp, &at.cp);
      return group;
  }
  return {rank};
}

std::vector<uint32_t> DcpGroupOf(const Split& split, uint32_t rank) {
  RankCoord at = CoordOf(split, rank);
  const uint32_t first = at.tp / split.dcp * split.dcp;
  std::vector<uint32_t> group;
  for (uint32_t i = 0; i < split.dcp; ++i) {
    at.tp = first + i;
    group.push_back(RankOf(split, at));
  }
  return group;
}

std::vector<uint32_t> TeamOf(const Split& split, uint32_t rank) {
  std::vector<uint32_t> team(split.ranks_per_team());
  std::iota(team.begin(), team.end(), rank - PlaceInTeam(split, CoordOf(split, rank)));
  return team;
}

Split TeamsAsReplicas(const Split& split) {
  Split replicas = split;
  replicas.dp = split.dp * split.teams;
  replicas.teams = 1;
  replicas.ep = std::min(split.ep, split.ranks_per_team());
  return replicas;
}

ExpertPlace ExpertPlaceOf(const Split& split, const RankCoord& coord) {
  if (split.ep == 1) return {.ep_rank = 0, .column_rank = coord.tp, .column_ranks = split.tp};
  const uint32_t column_ranks = split.ranks_per_stage() / split.ep;
  const uint32_t place = PlaceInStage(split, coord);
  return {.ep_rank = place / column_ranks,
          .column_rank = place % column_ranks,
          .column_ranks = column_ranks};
}

}  // namespace cleave

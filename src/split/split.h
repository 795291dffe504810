#pragma once
// Split: how a model is cut, as a value. Axes always in the order dp, pp, tp, ep, cp.
//
//   dp  replicas, sharing nothing
//   pp  stages of contiguous layers
//   tp  query heads, FFN columns, vocabulary rows
//   ep  whole experts
//   cp  the KV of a sequence, in runs of 512 positions
//
// A replica has pp · teams · tp · cp ranks. A team is tp · cp ranks of a stage that share the rows
// and the KV of its requests; requests are shared out over the teams of a stage, and what the teams
// have in common are the experts (vLLM's -dp with --enable-expert-parallel). ep regroups the ranks
// of a stage and adds none; dcp splits the KV over the tp ranks and adds none. Rank order in a
// replica: pp slowest, then team, then tp, then cp (RankOf).
// Pure values; any thread. Functions of ranks want a split that MakeLayout accepts.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace cleave {

enum class Axis : uint8_t { kDp, kPp, kTp, kEp, kCp };
inline constexpr uint32_t kAxes = 5;
// "dp", "pp", "tp", "ep", "cp".
const char* AxisName(Axis axis);

struct Split {
  uint32_t dp = 1;
  uint32_t pp = 1;
  uint32_t teams = 1;  // more than one: ep must be
  uint32_t tp = 1;
  uint32_t ep = 1;  // 1: experts are sharded by tp; else it divides teams · tp · cp
  uint32_t cp = 1;
  uint32_t dcp = 1;  // divides tp: tp ranks that share their KV by position
  // Shares of the tp ranks in proportion, one each (--tp-shares 3,1); empty = even.
  std::vector<uint32_t> tp_shares = {};
  // Layers of each stage (--pp-layers 10,20); empty = balanced by cost.
  std::vector<uint32_t> pp_layers = {};
  // Copies of experts beyond the first, over all ep ranks, of each layer.
  uint32_t redundant_experts = 0;
  // [E] what is known of the experts' loads, in any unit; empty = they are alike. With it experts
  // are placed by load (split/expert_placement.h), without in order.
  std::vector<uint64_t> expert_loads = {};
  bool experts_by_load =
      false;  // a replica that is started again takes the loads counted till then

  [[nodiscard]] uint32_t ranks_per_team() const { return tp * cp; }  // of one stage
  [[nodiscard]] uint32_t ranks_per_stage() const { return teams * tp * cp; }
  [[nodiscard]] uint32_t ranks_per_replica() const { return pp * ranks_per_stage(); }
  [[nodiscard]] uint32_t world_size() const { return dp * ranks_per_replica(); }
  // "dp=1 pp=2 tp=2 ep=1 cp=1", and "teams=2" after pp, "dcp=2", "tp-shares=3,1",
  // "pp-layers=10,20", "redundant-experts=2" where they are set.
  [[nodiscard]] std::string ToString() const;
  bool operator==(const Split&) const = default;
};

// A rank's place in its replica.
struct RankCoord {
  uint32_t pp = 0;
  uint32_t team = 0;
  uint32_t tp = 0;
  uint32_t cp = 0;
  bool operator==(const RankCoord&) const = default;
};
uint32_t RankOf(const Split& split, const RankCoord& coord);
RankCoord CoordOf(const Split& split, uint32_t rank);
// Among the ranks of its stage, which are ep's order too; among those of its team.
uint32_t PlaceInStage(const Split& split, const RankCoord& coord);
uint32_t PlaceInTeam(const Split& split, const RankCoord& coord);

// Ranks of a replica that form one group of `axis` with `rank`, ascending; ep: the stage's ranks in
// ep order, which is the same. A group of one is {rank}, so is ep's where ep is 1. dp has no
// groups.
std::vector<uint32_t> GroupOf(const Split& split, Axis axis, uint32_t rank);
// The dcp consecutive tp ranks that share the KV of their query heads by position.
std::vector<uint32_t> DcpGroupOf(const Split& split, uint32_t rank);
// The ranks of its stage and team, ascending.
std::vector<uint32_t> TeamOf(const Split& split, uint32_t rank);
// The same ranks with replicas in place of teams: what is left of them without experts.
Split TeamsAsReplicas(const Split& split);

// Where ep > 1, rank r of a stage (PlaceInStage) holds the experts of ep rank r / n, and of their
// columns the share r mod n, where n = teams · tp · cp / ep ranks hold an expert.
struct ExpertPlace {
  uint32_t ep_rank = 0;
  uint32_t column_rank = 0;
  uint32_t column_ranks = 1;  // n
  bool operator==(const ExpertPlace&) const = default;
};
ExpertPlace ExpertPlaceOf(const Split& split, const RankCoord& coord);

}  // namespace cleave

#include "split/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "split/split_test_support.h"

namespace cleave {
namespace {

using Ranks = std::vector<uint32_t>;

// Any sizes, with ep dividing teams · tp · cp and dcp dividing tp.
Split DrawSizes(RngStream* rng) {
  Split split;
  split.pp = Draw(rng, 1, 4);
  split.teams = Draw(rng, 1, 3);
  split.tp = Draw(rng, 1, 6);
  split.cp = Draw(rng, 1, 4);
  do split.ep = Draw(rng, 1, 24);
  while (split.ranks_per_stage() % split.ep != 0);
  do split.dcp = Draw(rng, 1, 6);
  while (split.tp % split.dcp != 0);
  return split;
}

TEST(Split, NamesAxesAndItself) {
  EXPECT_STREQ(AxisName(Axis::kDp), "dp");
  EXPECT_STREQ(AxisName(Axis::kPp), "pp");
  EXPECT_STREQ(AxisName(Axis::kTp), "tp");
  EXPECT_STREQ(AxisName(Axis::kEp), "ep");
  EXPECT_STREQ(AxisName(Axis::kCp), "cp");
  Split split{.pp = 2, .tp = 2};
  EXPECT_EQ(split.ToString(), "dp=1 pp=2 tp=2 ep=1 cp=1");
  split.dcp = 2;
  split.tp_shares = {3, 1};
  split.pp_layers = {10, 20};
  EXPECT_EQ(split.ToString(), "dp=1 pp=2 tp=2 ep=1 cp=1 dcp=2 tp-shares=3,1 pp-layers=10,20");
  EXPECT_EQ((Split{.teams = 3, .ep = 3}).ToString(), "dp=1 pp=1 teams=3 tp=1 ep=3 cp=1");
}

TEST(Split, CountsRanks) {
  const Split split{.dp = 2, .pp = 3, .tp = 4, .ep = 2, .cp = 5, .dcp = 2};
  EXPECT_EQ(split.ranks_per_stage(), 20);
  EXPECT_EQ(split.ranks_per_replica(), 60);
  EXPECT_EQ(split.world_size(), 120);
  const Split teams{.dp = 2, .pp = 3, .teams = 3, .tp = 2, .ep = 6, .cp = 2};
  EXPECT_EQ(teams.ranks_per_team(), 4);
  EXPECT_EQ(teams.ranks_per_stage(), 12);
  EXPECT_EQ(teams.ranks_per_replica(), 36);
  EXPECT_EQ(teams.world_size(), 72);
}

TEST(Split, OrdersRanksByStageThenTeamThenTpThenCp) {
  const Split split{.pp = 2, .tp = 2, .cp = 2};
  EXPECT_EQ(RankOf(split, {.pp = 0, .tp = 0, .cp = 1}), 1);
  EXPECT_EQ(RankOf(split, {.pp = 0, .tp = 1, .cp = 0}), 2);
  EXPECT_EQ(RankOf(split, {.pp = 1, .tp = 0, .cp = 0}), 4);
  EXPECT_EQ(GroupOf(split, Axis::kDp, 5), Ranks({5}));
  EXPECT_EQ(GroupOf(split, Axis::kPp, 5), Ranks({1, 5}));
  EXPECT_EQ(GroupOf(split, Axis::kTp, 5), Ranks({5, 7}));
  EXPECT_EQ(GroupOf(split, Axis::kCp, 5), Ranks({4, 5}));
  EXPECT_EQ(GroupOf(split, Axis::kEp, 5), Ranks({5}));
  const Split experts{.pp = 2, .tp = 2, .ep = 2, .cp = 2};
  EXPECT_EQ(GroupOf(experts, Axis::kEp, 5), Ranks({4, 5, 6, 7}));
  const Split teams{.pp = 2, .teams = 2, .tp = 2, .ep = 4};
  EXPECT_EQ(RankOf(teams, {.pp = 1, .team = 1, .tp = 0}), 6);
  EXPECT_EQ(GroupOf(teams, Axis::kPp, 6), Ranks({2, 6}));
  EXPECT_EQ(GroupOf(teams, Axis::kTp, 6), Ranks({6, 7}));
  EXPECT_EQ(GroupOf(teams, Axis::kEp, 6), Ranks({4, 5, 6, 7}));
  EXPECT_EQ(TeamOf(teams, 7), Ranks({6, 7}));
  EXPECT_EQ(PlaceInStage(teams, CoordOf(teams, 7)), 3);
  EXPECT_EQ(PlaceInTeam(teams, CoordOf(teams, 7)), 1);
}

TEST(Split, PlacesAndRanksAgree) {
  RngStream rng(1);
  for (int i = 0; i < 500; ++i) {
    const Split split = DrawSizes(&rng);
    std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> seen;
    for (uint32_t rank = 0; rank < split.ranks_per_replica(); ++rank) {
      const RankCoord at = CoordOf(split, rank);
      EXPECT_LT(at.pp, split.pp);
      EXPECT_LT(at.team, split.teams);
      EXPECT_LT(at.tp, split.tp);
      EXPECT_LT(at.cp, split.cp);
      EXPECT_EQ(RankOf(split, at), rank);
      seen.emplace(at.pp, at.team, at.tp, at.cp);
    }
    EXPECT_EQ(seen.size(), split.ranks_per_replica());
  }
}

// Groups by definition: the ranks that agree in every other place.
bool Together(const Split& split, Axis axis, uint32_t a, uint32_t b) {
  const RankCoord x = CoordOf(split, a);
  const RankCoord y = CoordOf(split, b);
  const bool pp = x.pp == y.pp;
  const bool team = x.team == y.team;
  const bool tp = x.tp == y.tp;
  const bool cp = x.cp == y.cp;
  switch (axis) {
    case Axis::kDp:
      return a == b;
    case Axis::kPp:
      return team && tp && cp;
    case Axis::kTp:
      return pp && team && cp;
    case Axis::kEp:
      return split.ep == 1 ? a == b : pp;
    case Axis::kCp:
      return pp && team && tp;
  }
  return false;
}

TEST(Split, GroupsAreThoseThatAgreeElsewhere) {
  RngStream rng(2);
  for (int i = 0; i < 300; ++i) {
    const Split split = DrawSizes(&rng);
    for (uint32_t axis = 0; axis < kAxes; ++axis) {
      for (uint32_t rank = 0; rank < split.ranks_per_replica(); ++rank) {
        Ranks expected;
        for (uint32_t other = 0; other < split.ranks_per_replica(); ++other) {
          if (Together(split, static_cast<Axis>(axis), rank, other)) expected.push_back(other);
        }
        ASSERT_EQ(GroupOf(split, static_cast<Axis>(axis), rank), expected)
            << split.ToString() << " " << AxisName(static_cast<Axis>(axis)) << " " << rank;
      }
    }
  }
}

TEST(Split, TeamsPartTheStages) {
  RngStream rng(5);
  for (int i = 0; i < 300; ++i) {
    const Split split = DrawSizes(&rng);
    for (uint32_t rank = 0; rank < split.ranks_per_replica(); ++rank) {
      const RankCoord at = CoordOf(split, rank);
      Ranks expected;
      for (uint32_t other = 0; other < split.ranks_per_replica(); ++other) {
        const RankCoord o = CoordOf(split, other);
        if (o.pp == at.pp && o.team == at.team) expected.push_back(other);
      }
      ASSERT_EQ(TeamOf(split, rank), expected) << split.ToString() << " " << rank;
      EXPECT_EQ(expected[PlaceInTeam(split, at)], rank);
    }
  }
}

TEST(Split, TeamsAsReplicasAreAsManyRanks) {
  EXPECT_EQ(TeamsAsReplicas({.pp = 2, .teams = 3, .tp = 2, .ep = 6}),
            (Split{.dp = 3, .pp = 2, .tp = 2, .ep = 2}));
  EXPECT_EQ(TeamsAsReplicas({.dp = 2, .teams = 2, .ep = 2}), (Split{.dp = 4}));
}

TEST(Split, DcpGroupsPartTheTpRanks) {
  RngStream rng(3);
  for (int i = 0; i < 300; ++i) {
    const Split split = DrawSizes(&rng);
    for (uint32_t rank = 0; rank < split.ranks_per_replica(); ++rank) {
      const Ranks group = DcpGroupOf(split, rank);
      ASSERT_EQ(group.size(), split.dcp);
      EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
      const Ranks tp = GroupOf(split, Axis::kTp, rank);
      EXPECT_TRUE(std::includes(tp.begin(), tp.end(), group.begin(), group.end()));
      for (const uint32_t other : group) EXPECT_EQ(DcpGroupOf(split, other), group);
    }
  }
  const Split split{.tp = 4, .cp = 2, .dcp = 2};
  EXPECT_EQ(DcpGroupOf(split, 1), Ranks({1, 3}));
  EXPECT_EQ(DcpGroupOf(split, 6), Ranks({4, 6}));
}

TEST(Split, EveryExpertShareHasOneRankOfAStage) {
  RngStream rng(4);
  for (int i = 0; i < 300; ++i) {
    const Split split = DrawSizes(&rng);
    if (split.ep == 1) continue;
    const Ranks group = GroupOf(split, Axis::kEp, 0);
    std::map<uint32_t, Ranks> columns;  // of each ep rank, in group order
    for (const uint32_t rank : group) {
      const ExpertPlace place = ExpertPlaceOf(split, CoordOf(split, rank));
      EXPECT_EQ(place.column_ranks, group.size() / split.ep);
      columns[place.ep_rank].push_back(place.column_rank);
    }
    EXPECT_EQ(columns.size(), split.ep);
    for (const auto& [ep_rank, ranks] : columns) {
      EXPECT_LT(ep_rank, split.ep);
      ASSERT_EQ(ranks.size(), group.size() / split.ep);
      for (uint32_t c = 0; c < ranks.size(); ++c) EXPECT_EQ(ranks[c], c);
    }
  }
}

TEST(Split, WithoutEpExpertsGoByTp) {
  const Split split{.tp = 3, .cp = 2};
  EXPECT_EQ(ExpertPlaceOf(split, {.tp = 2, .cp = 1}),
            (ExpertPlace{.ep_rank = 0, .column_rank = 2, .column_ranks = 3}));
  const Split experts{.tp = 4, .ep = 2, .cp = 2};
  EXPECT_EQ(ExpertPlaceOf(experts, {.tp = 2, .cp = 1}),
            (ExpertPlace{.ep_rank = 1, .column_rank = 1, .column_ranks = 4}));
  const Split teams{.teams = 2, .tp = 4, .ep = 2};
  EXPECT_EQ(ExpertPlaceOf(teams, {.team = 1, .tp = 2}),
            (ExpertPlace{.ep_rank = 1, .column_rank = 2, .column_ranks = 4}));
}

}  // namespace
}  // namespace cleave

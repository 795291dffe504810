// Rows over experts' ranks: what owners send is what experts' ranks expect, nothing goes twice, and
// ranks without rows or experts chosen are no special case.

#include "engine/forward/ep_routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/rng.h"

namespace cleave {
namespace {

ModelShape Shape(uint32_t experts, uint32_t top_k) {
  return {.num_layers = 4,
          .hidden_size = 64,
          .num_heads = 12,
          .num_kv_heads = 12,
          .head_dim = 16,
          .ffn_size = 256,
          .vocab_size = 320,
          .num_experts = experts,
          .experts_per_token = top_k};
}

Layout LayoutOf(const ModelShape& shape, const Split& split) {
  auto layout = MakeLayout(shape, split, CostsByWork(shape));
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  return *std::move(layout);
}

// Distinct experts for each row.
std::vector<uint32_t> Choose(RngStream* random, uint32_t rows, uint32_t experts, uint32_t top_k) {
  std::vector<uint32_t> chosen;
  for (uint32_t row = 0; row < rows; ++row) {
    std::set<uint32_t> taken;
    while (taken.size() < top_k) taken.insert(static_cast<uint32_t>(random->Below(experts)));
    chosen.insert(chosen.end(), taken.begin(), taken.end());
  }
  return chosen;
}

void ExpectMatching(const Layout& layout, const std::vector<uint32_t>& chosen,
                    const std::vector<Range>& teams, uint32_t top_k, uint32_t first_rank,
                    uint32_t layer) {
  const uint32_t rows = teams.back().end;
  const uint32_t members = layout.split.ranks_per_stage();
  std::vector<EpRoutes> routes;
  for (uint32_t m = 0; m < members; ++m) {
    routes.emplace_back(layout, first_rank + m, top_k, rows);
    routes.back().Start(teams);
    routes.back().Plan(chosen.data(), layer);
  }
  for (uint32_t to = 0; to < members; ++to) {
    const RankLayout& rank = layout.ranks[first_rank + to];
    const uint32_t place = ExpertPlaceOf(layout.split, rank.coord).ep_rank;
    std::vector<uint32_t> wanted;
    for (uint32_t row = 0; row < rows; ++row) {
      const auto* begin = &chosen[size_t{row} * top_k];
      if (std::any_of(begin, begin + top_k, [&](uint32_t e) {
            const bool here = layout.experts.holder(e, row + layer) == place;
            EXPECT_EQ(routes[to].IsHere(e, row), here);
            EXPECT_TRUE(!here || std::ranges::binary_search(rank.experts, e));
            return here;
          })) {
        wanted.push_back(row);
      }
    }
    const auto arrivals = routes[to].arrivals();
    ASSERT_EQ(std::vector<uint32_t>(arrivals.begin(), arrivals.end()), wanted);
    std::vector<uint32_t> sent;
    for (uint32_t from = 0; from < members; ++from) {
      const auto part = routes[from].SentTo(to);
      ASSERT_EQ(part.size(), routes[to].ArrivingFrom(from));
      ASSERT_LE(part.size(), routes[from].max_owned());
      sent.insert(sent.end(), part.begin(), part.end());
    }
    ASSERT_EQ(sent, wanted);
  }
  for (const EpRoutes& r : routes) {
    size_t copies = 0;
    for (uint32_t to = 0; to < members; ++to) copies += r.SentTo(to).size();
    ASSERT_LE(copies, size_t{r.own().size()} * r.max_spread());
  }
}

// Every row has one owner, of its team.
void ExpectOwners(const EpRoutes& routes, const std::vector<Range>& teams, uint32_t team_ranks) {
  std::vector<uint32_t> owned;
  for (uint32_t member = 0; member < routes.members(); ++member) {
    const Range& team = teams[member / team_ranks];
    const Range own = routes.OwnedBy(member);
    for (uint32_t row = own.begin; row < own.end; ++row) {
      EXPECT_TRUE(team.contains(row));
      owned.push_back(row);
    }
  }
  std::vector<uint32_t> all(routes.rows());
  std::iota(all.begin(), all.end(), 0U);
  EXPECT_EQ(owned, all);
}

// So many rows shared out over teams at random, some of which have none.
std::vector<Range> DealOut(RngStream* random, uint32_t rows, uint32_t teams) {
  std::vector<Range> dealt;
  uint32_t begin = 0;
  for (uint32_t team = 0; team < teams; ++team) {
    const bool last = team + 1 == teams;
    const uint32_t left = rows - begin;
    const uint32_t size = last ? left : static_cast<uint32_t>(random->Below(uint64_t{left} + 1));
    dealt.push_back({begin, begin + size});
    begin += size;
  }
  return dealt;
}

TEST(EpRoutes, WhatIsSentIsWhatIsExpected) {
  RngStream random(3);
  const std::vector<Split> splits{{.tp = 2, .ep = 2},
                                  {.tp = 3, .ep = 3},
                                  {.tp = 4, .ep = 4},
                                  {.tp = 4, .ep = 2},
                                  {.tp = 6, .ep = 3},
                                  {.tp = 2, .ep = 4, .cp = 2},
                                  {.pp = 2, .tp = 3, .ep = 3},
                                  {.tp = 3, .ep = 3, .redundant_experts = 2},
                                  {.tp = 4, .ep = 2, .redundant_experts = 7},
                                  {.teams = 2, .ep = 2},
                                  {.pp = 2, .teams = 3, .tp = 2, .ep = 3},
                                  {.teams = 2, .tp = 3, .ep = 6, .redundant_experts = 3}};
  for (const Split& split : splits) {
    for (const uint32_t top_k : {1U, 2U, 8U}) {
      const Layout layout = LayoutOf(Shape(10, top_k), split);
      for (const uint32_t rows : {1U, 2U, 5U, 64U}) {
        const auto chosen = Choose(&random, rows, 10, top_k);
        const std::vector<Range> teams = DealOut(&random, rows, split.teams);
        EpRoutes any(layout, 0, top_k, rows);
        any.Start(teams);
        ExpectOwners(any, teams, split.ranks_per_team());
        for (uint32_t stage = 0; stage < split.pp; ++stage) {
          ExpectMatching(layout, chosen, teams, top_k, stage * split.ranks_per_stage(), stage);
        }
        if (HasFatalFailure()) FAIL() << split.ToString() << ", " << rows << " rows of " << top_k;
      }
    }
  }
}

TEST(EpRoutes, NothingGoesNowhere) {
  const Layout layout = LayoutOf(Shape(4, 2), {.tp = 2, .ep = 2});
  EpRoutes routes(layout, 1, 2, 8);
  const std::vector<uint32_t> chosen{0, 1, 1, 0, 0, 1};  // all of rank 0
  routes.Start(std::vector<Range>{{0, 3}});
  routes.Plan(chosen.data(), 0);
  EXPECT_TRUE(routes.arrivals().empty());
  EXPECT_TRUE(routes.SentTo(1).empty());
  EXPECT_EQ(routes.SentTo(0).size(), routes.own().size());
  routes.Clear();
  EXPECT_TRUE(routes.SentTo(0).empty());
  EXPECT_EQ(routes.ArrivingFrom(0), 0U);
}

}  // namespace
}  // namespace cleave

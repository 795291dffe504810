#include "kernels/k_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

namespace cleave {
namespace {

using Block = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;  // window, source, lo, hi

std::vector<Block> BlocksOf(const KPlan& plan) {
  std::vector<Block> blocks;
  for (const KBlock& b : plan.blocks) blocks.emplace_back(b.window, b.source, b.lo, b.hi);
  return blocks;
}

TEST(KPlanTest, ColumnPlanIsWindowsInOneGroup) {
  const KPlan plan = ColumnPlan(70);
  EXPECT_EQ(BlocksOf(plan), (std::vector<Block>{{0, 0, 0, 32}, {1, 32, 0, 32}, {2, 64, 0, 6}}));
  EXPECT_EQ(plan.group_ends, std::vector<uint32_t>{3});
  EXPECT_EQ(plan.row_elements, 70U);
}

TEST(KPlanTest, EmptyColumnPlanHasNoBlocks) {
  const KPlan plan = ColumnPlan(0);
  EXPECT_TRUE(plan.blocks.empty());
  EXPECT_EQ(plan.group_ends, std::vector<uint32_t>{0});
}

TEST(KPlanTest, UnitsOf80RestartBlocksAndGroups) {
  const UnitRange all{0, 2};
  const KPlan plan = RowPlan(160, 80, 64, {&all, 1});
  EXPECT_EQ(BlocksOf(plan), (std::vector<Block>{{0, 0, 0, 32},
                                                {1, 32, 0, 32},
                                                {2, 64, 0, 16},
                                                {2, 80, 16, 32},
                                                {3, 96, 0, 32},
                                                {4, 128, 0, 16},
                                                {4, 144, 16, 32}}));
  EXPECT_EQ(plan.group_ends, (std::vector<uint32_t>{2, 3, 6, 7}));
}

TEST(KPlanTest, HeldUnitsArePackedInOrder) {
  const std::vector<UnitRange> held{{1, 2}, {3, 4}};
  const KPlan plan = RowPlan(200, 64, 64, held);  // the last unit has 8 elements
  EXPECT_EQ(BlocksOf(plan), (std::vector<Block>{{2, 0, 0, 32}, {3, 32, 0, 32}, {6, 64, 0, 8}}));
  EXPECT_EQ(plan.group_ends, (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(plan.row_elements, 72U);
}

// What makes a split invisible: the ranks' blocks and groups together are one rank's.
TEST(KPlanTest, RanksTogetherHoldTheBlocksOfOne) {
  std::mt19937 rng(7);
  const auto draw = [&](uint32_t n) { return static_cast<uint32_t>(rng() % n); };
  for (int trial = 0; trial < 200; ++trial) {
    const uint32_t unit = 1 + draw(150);
    const uint32_t k = 1 + draw(1000);
    const uint32_t group = draw(2) == 0 ? 64 : 128;
    const uint32_t units = (k + unit - 1) / unit;
    const UnitRange all{0, units};
    const KPlan whole = RowPlan(k, unit, group, {&all, 1});
    EXPECT_EQ(whole.row_elements, k);

    std::vector<std::vector<UnitRange>> held(1 + draw(9));
    for (uint32_t u = 0; u < units; ++u) held[draw(9) % held.size()].push_back({u, u + 1});
    std::multiset<std::tuple<uint32_t, uint32_t, uint32_t>> parts;
    size_t groups = 0;
    for (const auto& h : held) {
      const KPlan plan = RowPlan(k, unit, group, h);
      groups += plan.group_ends.size();
      for (const KBlock& b : plan.blocks) parts.insert({b.window, b.lo, b.hi});
      EXPECT_TRUE(std::is_sorted(plan.group_ends.begin(), plan.group_ends.end()));
    }
    std::multiset<std::tuple<uint32_t, uint32_t, uint32_t>> expected;
    for (const KBlock& b : whole.blocks) expected.insert({b.window, b.lo, b.hi});
    EXPECT_EQ(parts, expected);
    EXPECT_EQ(groups, whole.group_ends.size());
  }
}

TEST(KPlanTest, HoldingNothingIsAllowed) {
  const KPlan plan = RowPlan(128, 64, 64, {});
  EXPECT_TRUE(plan.blocks.empty());
  EXPECT_TRUE(plan.group_ends.empty());
  EXPECT_EQ(plan.row_elements, 0U);
}

}  // namespace
}  // namespace cleave

// Who holds which experts: everything held, exactly so many copies, none twice on a rank, and the
// hottest rank no hotter than without.

#include "split/expert_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "split/layout.h"
#include "split/split_test_support.h"

namespace cleave {
namespace {

using Counts = std::vector<uint32_t>;

// The largest work of a rank for its weight, in the loads that the placement was made for.
double Hottest(const PlacementInput& input, const ExpertPlacement& placement) {
  double most = 0;
  for (uint32_t rank = 0; rank < input.weights.size(); ++rank) {
    double work = 0;
    for (uint32_t e = 0; e < input.experts; ++e) {
      const double load = input.loads.empty() ? 1.0 : static_cast<double>(input.loads[e]);
      work += load * placement.turns_of(e, rank) / kExpertTurns;
    }
    most = std::max(most, work / static_cast<double>(input.weights[rank]));
  }
  return most;
}

// Loads as they come: some experts take most tokens, some none.
std::vector<uint64_t> DrawLoads(RngStream* rng, uint32_t experts) {
  std::vector<uint64_t> loads;
  const uint32_t kind = Draw(rng, 0, 3);
  for (uint32_t e = 0; e < experts; ++e) {
    const uint64_t wide = rng->Below(uint64_t{1} << Draw(rng, 0, 63));
    loads.push_back(kind == 0   ? 1000 + rng->Below(10)
                    : kind == 1 ? wide
                                : rng->Below(4) * wide / 4);
  }
  if (kind == 3) std::fill(loads.begin(), loads.end(), uint64_t{0});
  return loads;
}

PlacementInput DrawInput(RngStream* rng) {
  PlacementInput input;
  input.experts = Draw(rng, 1, 24);
  const uint32_t ep = Draw(rng, 1, std::min(input.experts, 8U));
  input.weights.assign(ep, 1);
  if (rng->Below(3) == 0) {
    for (uint64_t& w : input.weights) w = Draw(rng, 1, 4);
  }
  const auto most = static_cast<uint32_t>(MostRedundant(input.experts, ep));
  input.redundant = rng->Below(4) == 0 ? most : Draw(rng, 0, std::min(most, 6U));
  if (rng->Below(4) != 0) input.loads = DrawLoads(rng, input.experts);
  return input;
}

void ExpectPlaced(const PlacementInput& input, const ExpertPlacement& placement) {
  const auto ep = static_cast<uint32_t>(input.weights.size());
  ASSERT_EQ(placement.held.size(), ep);
  ASSERT_EQ(placement.turns.size(), size_t{input.experts} * kExpertTurns);
  Counts times(input.experts, 0);
  size_t slots = 0;
  for (const Counts& held : placement.held) {
    EXPECT_TRUE(std::adjacent_find(held.begin(), held.end(), std::greater_equal<>()) == held.end());
    for (const uint32_t e : held) ++times[e];
    slots += held.size();
  }
  EXPECT_EQ(slots, input.experts + input.redundant);
  for (uint32_t e = 0; e < input.experts; ++e) {
    ASSERT_GE(times[e], 1U);
    uint32_t turns = 0;
    for (uint32_t rank = 0; rank < ep; ++rank) {
      const Counts& held = placement.held[rank];
      const uint32_t its = placement.turns_of(e, rank);
      EXPECT_TRUE(its == 0 || std::binary_search(held.begin(), held.end(), e));
      turns += its;
    }
    EXPECT_EQ(turns, kExpertTurns);
  }
}

TEST(ExpertPlacement, HoldsAllAndSoManyCopies) {
  RngStream rng(5);
  for (int i = 0; i < 3000; ++i) {
    PlacementInput input = DrawInput(&rng);
    const ExpertPlacement placement = PlaceExperts(input);
    ExpectPlaced(input, placement);
    EXPECT_EQ(PlaceExperts(input), placement);
    // Slots do not depend on loads.
    Counts slots;
    for (const Counts& held : placement.held) slots.push_back(static_cast<uint32_t>(held.size()));
    const double hottest = Hottest(input, placement);
    const std::vector<uint64_t> loads = input.loads;
    input.loads.clear();
    const ExpertPlacement blind = PlaceExperts(input);
    for (uint32_t rank = 0; rank < slots.size(); ++rank) {
      EXPECT_EQ(blind.held[rank].size(), slots[rank]);
    }
    // In order and without copies it was no better (loads are read to 32 bits).
    input.redundant = 0;
    const ExpertPlacement in_order = PlaceExperts(input);
    input.loads = loads;
    EXPECT_LE(hottest, Hottest(input, in_order) * (1 + 1e-6)) << i;
    EXPECT_LE(hottest, Hottest(input, PlaceExperts(input)) * (1 + 1e-6)) << i;
    if (HasFailure()) return;
  }
}

TEST(ExpertPlacement, EqualRanksHaveEquallyManySlots) {
  for (uint32_t ep = 2; ep <= 5; ++ep) {
    for (uint32_t redundant = 0; redundant <= 10 * (ep - 1); ++redundant) {
      const PlacementInput input{.experts = 10,
                                 .weights = std::vector<uint64_t>(ep, 3),
                                 .redundant = redundant,
                                 .loads = {9, 1, 1, 1, 1, 1, 1, 1, 1, 30}};
      const ExpertPlacement placement = PlaceExperts(input);
      ExpectPlaced(input, placement);
      const auto [least, most] =
          std::minmax_element(placement.held.begin(), placement.held.end(),
                              [](const Counts& a, const Counts& b) { return a.size() < b.size(); });
      EXPECT_LE(most->size(), least->size() + 1);
    }
  }
}

TEST(ExpertPlacement, WithoutLoadsOrCopiesInOrder) {
  const ExpertPlacement placement = PlaceExperts({.experts = 10, .weights = {1, 1, 1, 1}});
  EXPECT_EQ(placement.held, (std::vector<Counts>{{0, 1, 2}, {3, 4}, {5, 6, 7}, {8, 9}}));
  for (uint32_t turn = 0; turn < 3 * kExpertTurns; ++turn) EXPECT_EQ(placement.holder(4, turn), 1U);
}

// One expert takes half of all tokens: its copy takes half of them.
TEST(ExpertPlacement, TheHottestIsShared) {
  const PlacementInput input{
      .experts = 4, .weights = {1, 1}, .redundant = 2, .loads = {300, 100, 100, 100}};
  const ExpertPlacement placement = PlaceExperts(input);
  ExpectPlaced(input, placement);
  EXPECT_TRUE(std::binary_search(placement.held[0].begin(), placement.held[0].end(), 0U));
  EXPECT_TRUE(std::binary_search(placement.held[1].begin(), placement.held[1].end(), 0U));
  EXPECT_NEAR(Hottest(input, placement), 300, 6);
  // A batch of a few rows meets both copies.
  std::set<uint32_t> met;
  for (uint32_t row = 0; row < 6; ++row) met.insert(placement.holder(0, row));
  EXPECT_EQ(met.size(), 2U);
}

// By load alone, without copies.
TEST(ExpertPlacement, HotExpertsPart) {
  const PlacementInput input{.experts = 4, .weights = {1, 1}, .loads = {50, 40, 1, 2}};
  EXPECT_EQ(PlaceExperts(input).held, (std::vector<Counts>{{0, 2}, {1, 3}}));
  EXPECT_EQ(Hottest(input, PlaceExperts(input)), 51);
}

TEST(ExpertPlacement, EverywhereIsTheMost) {
  const PlacementInput input{
      .experts = 3, .weights = {1, 1, 1}, .redundant = 6, .loads = {1, 5, 9}};
  EXPECT_EQ(MostRedundant(3, 3), 6U);
  for (const Counts& held : PlaceExperts(input).held) EXPECT_EQ(held, Counts({0, 1, 2}));
}

}  // namespace
}  // namespace cleave

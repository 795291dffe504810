#include "kernels/attention_bins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace cleave {
namespace {

struct Partial {
  int32_t m;
  float l;
  std::vector<float> o;
};

// Maxima that wander over many bins, and elements whose low bits round to ties and near-ties: what
// a single count that is shifted right when the maximum rises gets wrong about once in a thousand.
std::vector<Partial> Partials(uint32_t count, uint32_t d, uint64_t seed, int32_t range) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int32_t> maximum(-range, range);
  std::normal_distribution<float> normal(0, 30);
  std::vector<Partial> partials(count);
  for (Partial& p : partials) {
    p.m = maximum(random);
    p.l = std::fabs(normal(random)) + 0.5F;
    for (uint32_t i = 0; i < d; ++i) {
      const float x = normal(random);
      p.o.push_back(i % 3 == 0 ? x : std::ldexp(std::round(x * 64) + 0.5F, -21));
    }
  }
  return partials;
}

std::vector<float> Finished(const AttentionBins& bins, uint32_t d) {
  std::vector<float> out(d);
  bins.Finish(out.data());
  return out;
}

TEST(AttentionBins, BinsAndSlots) {
  EXPECT_EQ(AttentionBinOf(0), 0);
  EXPECT_EQ(AttentionBinOf(1), 1);
  EXPECT_EQ(AttentionBinOf(16), 1);
  EXPECT_EQ(AttentionBinOf(17), 2);
  EXPECT_EQ(AttentionBinOf(-1), 0);
  EXPECT_EQ(AttentionBinOf(-15), 0);
  EXPECT_EQ(AttentionBinOf(-16), -1);
  for (int32_t b = -7; b < 7; ++b) {
    EXPECT_NE(AttentionSlotOf(b), AttentionSlotOf(b + 1));
    EXPECT_NE(AttentionSlotOf(b), AttentionSlotOf(b + 2));
    EXPECT_EQ(AttentionSlotOf(b), AttentionSlotOf(b + 3));
  }
}

// Any grouping over 1 to 9 owners, any order inside an owner, any order of merging.
TEST(AttentionBins, OrderAndGroupingChangeNothing) {
  constexpr uint32_t kDim = 12;
  std::mt19937_64 random(1);
  for (uint32_t round = 0; round < 1500; ++round) {
    const int32_t range = round % 3 == 0 ? 6 : (round % 3 == 1 ? 30 : 90);
    auto partials = Partials(2 + round % 12, kDim, round, range);
    AttentionBins whole(kDim);
    for (const Partial& p : partials) whole.AddRun(p.m, p.l, p.o.data());

    std::shuffle(partials.begin(), partials.end(), random);
    const size_t owners = 1 + random() % 9;
    std::vector<AttentionBins> parts(owners, AttentionBins(kDim));
    for (const Partial& p : partials) parts[random() % owners].AddRun(p.m, p.l, p.o.data());
    while (parts.size() > 1) {
      const size_t i = random() % (parts.size() - 1);
      const AttentionBins last = parts.back();
      parts.pop_back();
      parts[i].Merge(last);
    }
    ASSERT_TRUE(parts[0] == whole) << "round " << round;
    // No element is NaN or a negative zero, so equal means the same bits.
    ASSERT_EQ(Finished(parts[0], kDim), Finished(whole, kDim)) << "round " << round;
  }
}

TEST(AttentionBins, NearTheDoubleSum) {
  constexpr uint32_t kDim = 8;
  for (uint32_t round = 0; round < 300; ++round) {
    const auto partials = Partials(9, kDim, 1000 + round, 40);
    int32_t top = partials[0].m;
    for (const Partial& p : partials) top = std::max(top, p.m);
    AttentionBins bins(kDim);
    double mass = 0;
    std::vector<double> sum(kDim);
    for (const Partial& p : partials) {
      bins.AddRun(p.m, p.l, p.o.data());
      const double weight = std::ldexp(1.0, p.m - top);
      mass += weight * p.l;
      for (uint32_t i = 0; i < kDim; ++i) sum[i] += weight * p.o[i];
    }
    const auto got = Finished(bins, kDim);
    // Half a quantum of the top bin a partial: 2^(16b - 37) <= 2^(15 - 37) of 2^top.
    const double tolerance = 9 * 0x1p-22 / mass;
    for (uint32_t i = 0; i < kDim; ++i) {
      const double want = sum[i] / mass;
      EXPECT_NEAR(got[i], want, tolerance * (1 + std::fabs(want)) + std::fabs(want) * 0x1p-22);
    }
  }
}

TEST(AttentionBins, ADroppedBinLeavesNoTrace) {
  const float o[] = {3.0F, 4.0F};
  AttentionBins with(2);
  with.AddRun(0, 5.0F, o);
  with.AddRun(100, 1.0F, o);
  AttentionBins without(2);
  without.AddRun(100, 1.0F, o);
  EXPECT_TRUE(with == without);
  without.AddRun(0, 5.0F, o);
  EXPECT_TRUE(with == without);
}

TEST(AttentionBins, MergingNothingChangesNothing) {
  const float o[] = {3.0F, -4.0F};
  AttentionBins bins(2);
  bins.AddRun(-40, 2.0F, o);
  AttentionBins same = bins;
  same.Merge(AttentionBins(2));
  EXPECT_TRUE(same == bins);
  AttentionBins from_nothing(2);
  from_nothing.Merge(bins);
  EXPECT_TRUE(from_nothing == bins);
  EXPECT_EQ(Finished(bins, 2), (std::vector<float>{1.5F, -2.0F}));
}

TEST(AttentionBins, ABrokenPartialBreaksTheRowInAnyOrder) {
  const float fine[] = {1.0F};
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                    0x1p72F, -0x1p90F}) {
    AttentionBins first(1);
    first.AddRun(0, 1.0F, &bad);
    first.AddRun(500, 1.0F, fine);
    AttentionBins last(1);
    last.AddRun(500, 1.0F, fine);
    last.AddRun(0, 1.0F, &bad);
    AttentionBins merged(1);
    merged.AddRun(500, 1.0F, fine);
    merged.Merge(first);
    for (const AttentionBins* bins : {&first, &last, &merged}) {
      EXPECT_TRUE(std::isnan(Finished(*bins, 1)[0])) << bad;
    }
  }
}

TEST(AttentionBins, CountsBeyondSixtyFourBitsAreExact) {
  const float large[] = {0x1p60F};
  const float small[] = {1.0F};
  AttentionBins bins(1);
  const float back[] = {-0x1p60F};
  bins.AddRun(0, 1.0F, large);
  bins.AddRun(0, 1.0F, small);
  bins.AddRun(0, 2.0F, back);
  EXPECT_EQ(Finished(bins, 1)[0], 0.25F);
}

TEST(AttentionBins, NarrowCountsAreTakenOver) {
  const float o[] = {1.25F, -2.0F};
  AttentionBins direct(2);
  direct.AddRun(16, 3.0F, o);
  AttentionBins taken(2);
  const int64_t unit = int64_t{1} << attention::kFractionBits;
  const int64_t counts[] = {unit + unit / 4, -2 * unit};
  taken.AddCounts(1, counts, 3 * unit);
  EXPECT_TRUE(taken == direct);
}

}  // namespace
}  // namespace cleave

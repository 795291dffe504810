#include "bench/bandwidth_probe.h"

#include <gtest/gtest.h>

namespace cleave {
namespace {

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({9, 1, 5, 7}), 6);
}

TEST(BandwidthProbe, EveryPassReadsEveryWord) {
  for (const std::vector<int>& cpus : {std::vector<int>{0}, {0, 1}, {0, 0, 0}}) {
    auto probe = BandwidthProbe::Create(1000004, cpus);
    ASSERT_TRUE(probe.ok());
    EXPECT_EQ((*probe)->bytes(), 1000000);
    EXPECT_EQ((*probe)->cores(), cpus.size());
    EXPECT_EQ((*probe)->best_bytes_per_s(), 0);
    const uint64_t words = 125000;
    for (uint32_t pass = 1; pass <= 2; ++pass) {
      (*probe)->Measure(pass);
      EXPECT_EQ((*probe)->sum(), words * (words - 1) / 2);
    }
    EXPECT_EQ((*probe)->figures().size(), 3);
    EXPECT_GT((*probe)->median_bytes_per_s(), 1e6);
    EXPECT_GE((*probe)->best_bytes_per_s(), (*probe)->median_bytes_per_s());
  }
}

TEST(BandwidthProbe, TakesNoMoreMemoryThanItNeeds) {
  const auto small = BandwidthProbe::Create(1, {0});
  ASSERT_TRUE(small.ok());
  EXPECT_EQ((*small)->bytes(), BandwidthProbe::kLeastBytes);
  const auto large = BandwidthProbe::Create(UINT64_MAX, {0});  // it is not touched
  ASSERT_TRUE(large.ok());
  EXPECT_EQ((*large)->bytes(), BandwidthProbe::kMostBytes);
  const auto none = BandwidthProbe::Create(1 << 20, {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cleave

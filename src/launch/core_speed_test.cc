#include "launch/core_speed.h"

#include <gtest/gtest.h>

namespace cleave {
namespace {

using Shares = std::vector<uint32_t>;

Shares Of(std::vector<double> speeds) { return SharesBySpeed(speeds); }

TEST(CoreSpeed, SharesAreInProportion) {
  EXPECT_EQ(Of({1, 2}), (Shares{1, 2}));
  EXPECT_EQ(Of({3e9, 1e9}), (Shares{16, 5}));
  EXPECT_EQ(Of({4, 3, 2, 1}), (Shares{4, 3, 2, 1}));
  // Whoever is that slow still has a part.
  EXPECT_EQ(Of({1000, 1}), (Shares{16, 1}));
}

TEST(CoreSpeed, WhatAMeasurementCannotTellApartIsEven) {
  EXPECT_EQ(Of({1, 1}), Shares());
  EXPECT_EQ(Of({100, 91, 95}), Shares());
  EXPECT_EQ(Of({7}), Shares());
  EXPECT_EQ(Of({}), Shares());
}

TEST(CoreSpeed, EveryRankIsMeasured) {
  const std::vector<double> speeds = MeasureCoreSpeeds({{}, {0}, {0, 0}});
  ASSERT_EQ(speeds.size(), 3U);
  for (const double speed : speeds) EXPECT_GT(speed, 0);
}

}  // namespace
}  // namespace cleave

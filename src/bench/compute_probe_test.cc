#include "bench/compute_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/isa_fixture.h"

namespace cleave {
namespace {

TEST(ComputeProbe, EveryPassIsAFigure) {
  const Isa isa = SupportedIsas().back();
  if (!HasPeak(isa)) GTEST_SKIP() << "no vectors on this processor";
  for (const std::vector<int>& cpus : {std::vector<int>{0}, {0, 1}}) {
    for (const PeakKind kind : {PeakKind::kInt8Scaled, PeakKind::kBf16, PeakKind::kF32}) {
      const auto probe = ComputeProbe::Create(isa, kind, cpus);
      ASSERT_TRUE(probe.ok());
      EXPECT_EQ((*probe)->cores(), cpus.size());
      EXPECT_EQ((*probe)->kind(), kind);
      EXPECT_EQ((*probe)->best_ops_per_s(), 0);
      (*probe)->Measure(1);
      (*probe)->Measure(2);
      EXPECT_EQ((*probe)->figures().size(), 3);
      EXPECT_GT((*probe)->median_ops_per_s(), 1e6);
      EXPECT_GE((*probe)->best_ops_per_s(), (*probe)->median_ops_per_s());
    }
  }
}

TEST(ComputeProbe, NeedsCoresAndVectors) {
  const auto none = ComputeProbe::Create(SupportedIsas().back(), PeakKind::kF32, {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
  const auto scalar = ComputeProbe::Create(Isa::kScalar, PeakKind::kF32, {0});
  ASSERT_FALSE(scalar.ok());
  EXPECT_THAT(scalar.status().message(), testing::HasSubstr("for scalar"));
}

}  // namespace
}  // namespace cleave

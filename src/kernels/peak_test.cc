#include "kernels/peak.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/isa_fixture.h"

namespace cleave {
namespace {

constexpr PeakKind kKinds[] = {PeakKind::kInt8Scaled, PeakKind::kBf16, PeakKind::kF32};

std::vector<Isa> IsasWithPeak() {
  std::vector<Isa> isas;
  for (const Isa isa : SupportedIsas()) {
    if (HasPeak(isa)) isas.push_back(isa);
  }
  return isas;
}

TEST(Peak, EveryOperationThatIsCountedIsDone) {
  for (const Isa isa : IsasWithPeak()) {
    for (const PeakKind kind : kKinds) {
      EXPECT_EQ(RunPeak(isa, kind, 0).operations, 0);
      EXPECT_EQ(RunPeak(isa, kind, 0).sum, 0);
      for (const uint64_t rounds : {1, 2, 1000}) {
        const PeakRun run = RunPeak(isa, kind, rounds);
        EXPECT_EQ(run.operations, rounds * RunPeak(isa, kind, 1).operations);
        EXPECT_EQ(run.sum, static_cast<double>(run.operations) / 2)
            << IsaName(isa) << " " << PeakKindName(kind) << " " << rounds;
      }
    }
  }
}

TEST(Peak, KindsAreThoseOfTheProducts) {
  EXPECT_EQ(PeakKindOf(ActKindOf(DType::kQ4K)), PeakKind::kInt8Scaled);
  EXPECT_EQ(PeakKindOf(ActKindOf(DType::kBF16)), PeakKind::kBf16);
  EXPECT_EQ(PeakKindOf(ActKindOf(DType::kF16)), PeakKind::kF32);
  std::set<std::string_view> names;
  for (const PeakKind kind : kKinds) names.insert(PeakKindName(kind));
  EXPECT_EQ(names.size(), 3);
  EXPECT_FALSE(HasPeak(Isa::kScalar));
}

}  // namespace
}  // namespace cleave

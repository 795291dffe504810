#include "kernels/logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/isa_fixture.h"
#include "kernels/math.h"

namespace cleave {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Logits(uint32_t n, uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

MaxLogit Max(Isa isa, const std::vector<float>& x) {
  return FindMax(isa, x.data(), static_cast<uint32_t>(x.size()));
}

TEST(FindMax, TiesGoToTheLowerId) {
  for (Isa isa : SupportedIsas()) {
    for (uint32_t n : {1U, 5U, 16U, 17U, 40U, 1000U}) {
      for (uint32_t a = 0; a < n; a += 1 + n / 13) {
        for (uint32_t b = a; b < n; b += 1 + n / 7) {
          std::vector<float> x = Logits(n, a, 1.0F);
          x[a] = x[b] = 50.0F;
          EXPECT_EQ(Max(isa, x).id, static_cast<int32_t>(a)) << IsaName(isa) << " n=" << n;
          EXPECT_EQ(Max(isa, x).value, 50.0F);
        }
      }
    }
  }
}

TEST(FindMax, SkipsNanAndKnowsWhenThereIsNothing) {
  for (Isa isa : SupportedIsas()) {
    EXPECT_EQ(Max(isa, {}).id, -1);
    EXPECT_EQ(Max(isa, {kNan, kNan, -kInf}).id, -1);
    EXPECT_EQ(Max(isa, {kNan, kNan, -kInf}).value, -kInf);
    std::vector<float> x(50, kNan);
    x[33] = -7.0F;
    EXPECT_EQ(Max(isa, x).id, 33);
    x[18] = kInf;
    EXPECT_EQ(Max(isa, x).id, 18);
    // Zeros of both signs are equal: the lower id, with its own sign.
    x.assign(40, -1.0F);
    x[20] = -0.0F;
    x[35] = 0.0F;
    EXPECT_EQ(Max(isa, x).id, 20);
    EXPECT_TRUE(std::signbit(Max(isa, x).value));
  }
}

TEST(ComputeMasses, EveryInstructionSetGivesTheSameIntegers) {
  const ScopedFpMode mode;
  for (uint32_t n : {0U, 1U, 15U, 16U, 17U, 777U, 49152U}) {
    for (float spread : {0.01F, 1.0F, 8.0F, 100.0F}) {
      std::vector<float> x = Logits(n, n, spread);
      for (uint32_t i = 3; i < n; i += 11) x[i] = i % 2 == 0 ? kNan : -kInf;
      const float max = Max(Isa::kScalar, x).value;
      for (float scale : {kLog2E, kLog2E / 0.1F, kLog2E / 5.0F}) {
        std::vector<int64_t> truth(n);
        const int64_t sum = ComputeMasses(Isa::kScalar, x.data(), n, max, scale, truth.data());
        for (Isa isa : SupportedIsas()) {
          std::vector<int64_t> got(n);
          EXPECT_EQ(ComputeMasses(isa, x.data(), n, max, scale, got.data()), sum);
          EXPECT_EQ(got, truth) << IsaName(isa);
          EXPECT_EQ(ComputeMasses(isa, x.data(), n, max, scale, nullptr), sum);
        }
      }
    }
  }
}

TEST(ComputeMasses, FollowsTheDefinition) {
  const std::vector<float> x = {2.0F, 1.0F, 2.0F, -kInf, kNan, -300.0F, 5.0F};
  for (Isa isa : SupportedIsas()) {
    int64_t mass[7];
    ComputeMasses(isa, x.data(), 7, 2.0F, 1.0F, mass);
    const int64_t one = int64_t{1} << kMassBits;
    EXPECT_EQ(mass[0], one);
    EXPECT_EQ(mass[1], one / 2);
    EXPECT_EQ(mass[2], one);
    EXPECT_EQ(mass[3], 0);
    EXPECT_EQ(mass[4], 0);
    EXPECT_EQ(mass[5], 0);
    EXPECT_EQ(mass[6], one);  // above the maximum it was given: counts as the maximum
    // Half a quantum goes to the even neighbour, 0; one and a half to 2.
    const float half[] = {-41.0F, -40.0F, 0.0F};
    ComputeMasses(isa, half, 3, 0.0F, 1.0F, mass);
    EXPECT_EQ(mass[0], 0);
    EXPECT_EQ(mass[1], 1);
  }
}

// A vocabulary cut over 1 to 9 ranks: maxima, then masses, then integers that add.
TEST(LogSumExp, ASplitVocabularyGivesTheSameBits) {
  const ScopedFpMode mode;
  constexpr uint32_t kVocab = 49157;
  std::mt19937 random(3);
  for (float spread : {0.5F, 3.0F, 12.0F}) {
    const std::vector<float> x = Logits(kVocab, 17, spread);
    const MaxLogit whole = Max(Isa::kScalar, x);
    const int64_t sum = ComputeMasses(Isa::kScalar, x.data(), kVocab, whole.value, kLog2E, nullptr);
    for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
      std::vector<uint32_t> cut = {0, kVocab};
      for (uint32_t r = 1; r < ranks; ++r) cut.push_back(static_cast<uint32_t>(random() % kVocab));
      std::sort(cut.begin(), cut.end());
      MaxLogit max{-kInf, -1};
      for (uint32_t r = 0; r < ranks; ++r) {
        MaxLogit m = FindMax(SupportedIsas().back(), x.data() + cut[r], cut[r + 1] - cut[r]);
        if (m.value > max.value) max = {m.value, m.id + static_cast<int32_t>(cut[r])};
      }
      EXPECT_EQ(max.id, whole.id);
      int64_t split = 0;
      for (uint32_t r = ranks; r-- > 0;) {
        split += ComputeMasses(SupportedIsas().back(), x.data() + cut[r], cut[r + 1] - cut[r],
                               max.value, kLog2E, nullptr);
      }
      EXPECT_EQ(split, sum) << ranks << " ranks";
      EXPECT_EQ(LogSumExp(max.value, split), LogSumExp(whole.value, sum));
    }
  }
}

TEST(LogSumExp, NearDouble) {
  const ScopedFpMode mode;
  for (uint32_t n : {1U, 10U, 1000U, 262144U}) {
    for (float spread : {0.0F, 0.5F, 3.0F, 12.0F, 60.0F}) {
      const std::vector<float> x = Logits(n, n, spread);
      const float max = Max(Isa::kScalar, x).value;
      double sum = 0;
      for (float v : x) sum += std::exp(static_cast<double>(v) - max);
      const double want = max + std::log(sum);
      const Isa isa = SupportedIsas().back();
      const float got = LogSumExp(max, ComputeMasses(isa, x.data(), n, max, kLog2E, nullptr));
      // Half a quantum a token (n·2^-41 of the sum), the powers' own rounding, the logarithm's and
      // the result's last place.
      const double tolerance = n * 0x1p-41 + 1e-6 + (std::fabs(want) + std::log(sum)) * 0x1p-23;
      EXPECT_NEAR(got, want, tolerance) << n << " " << spread;
    }
  }
}

}  // namespace
}  // namespace cleave

#include "kernels/vector_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/isa_fixture.h"
#include "kernels/math.h"
#include "kernels/vector_ops_table.h"

namespace cleave {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kSizes[] = {0, 1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 576, 1000};

// Magnitudes from 2^-40 to 2^40, and special values among them when asked for.
enum class Specials { kNone, kSome };
std::vector<float> Values(uint32_t n, uint32_t seed, Specials specials = Specials::kNone) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> exponent(-40, 40);
  std::normal_distribution<float> normal(0, 3);
  const float odd[] = {0.0F, -0.0F, kInf, -kInf, kNan, 1e-40F, -1e38F, 3e38F, 0x1p-126F, 88.5F};
  std::vector<float> x(n);
  for (uint32_t i = 0; i < n; ++i) {
    x[i] = i % 3 == 0 ? std::exp2(exponent(random)) * (i % 2 == 0 ? 1.0F : -1.0F) : normal(random);
    if (specials == Specials::kSome && random() % 4 == 0) x[i] = odd[random() % std::size(odd)];
  }
  return x;
}

// Bit for bit, any NaN equal to any NaN.
testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
    return testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
  }
  return testing::AssertionSuccess();
}

std::vector<float> RopeRow(const RopeFrequencies& frequencies, uint32_t d, uint32_t position) {
  std::vector<float> row(d);
  frequencies.MakeRow(position, row.data());
  return row;
}

// fn(isa, x) for random rows of every size, against the scalar version.
template <typename Fn>
void ExpectAgreement(Fn fn) {
  const ScopedFpMode mode;
  for (uint32_t n : kSizes) {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      const auto x = Values(n, seed, seed % 2 == 0 ? Specials::kNone : Specials::kSome);
      const auto truth = fn(Isa::kScalar, x);
      for (Isa isa : SupportedIsas()) {
        ASSERT_TRUE(SameBits(fn(isa, x), truth)) << IsaName(isa) << " n=" << n << " seed=" << seed;
      }
    }
  }
}

TEST(VectorOps, RmsNormAgrees) {
  ExpectAgreement([](Isa isa, const std::vector<float>& x) {
    const auto n = static_cast<uint32_t>(x.size());
    const auto weight = Values(n, 99);
    std::vector<float> out(n + 2);
    out[n] = static_cast<float>(RmsNorm(isa, x.data(), weight.data(), n, 1e-5F, out.data()));
    out[n + 1] = static_cast<float>(RowExponent(isa, x.data(), n));
    std::vector<float> plain(n);
    RmsNorm(isa, x.data(), nullptr, n, 1e-5F, plain.data());
    out.insert(out.end(), plain.begin(), plain.end());
    return out;
  });
}

TEST(VectorOps, ElementwiseOperationsAgree) {
  ExpectAgreement([](Isa isa, const std::vector<float>& x) {
    const auto n = static_cast<uint32_t>(x.size());
    const auto y = Values(n, 77, Specials::kSome);
    std::vector<float> out;
    std::vector<float> z(n);
    const auto keep = [&] { out.insert(out.end(), z.begin(), z.end()); };
    for (Activation a : {Activation::kSilu, Activation::kGeluTanh}) {
      GatedActivation(isa, a, x.data(), y.data(), n, z.data());
      keep();
      z = x;
      GatedActivation(isa, a, z.data(), y.data(), n, z.data());
      keep();
    }
    z = x;
    AddInPlace(isa, z.data(), y.data(), n);
    keep();
    ScaleInPlace(isa, z.data(), 1.7F, n);
    keep();
    SoftCapInPlace(isa, z.data(), 30.0F, n);
    keep();
    return out;
  });
}

TEST(VectorOps, RopeAgrees) {
  const ScopedFpMode mode;
  for (uint32_t d : {2U, 6U, 32U, 34U, 64U, 80U, 96U, 128U, 256U}) {
    const std::vector<float> row = RopeRow(RopeFrequencies(10000.0, {}, d), d, 37);
    const auto x = Values(5 * d, d, Specials::kSome);
    auto truth = x;
    ApplyRope(Isa::kScalar, truth.data(), 5, d, row.data());
    for (Isa isa : SupportedIsas()) {
      auto got = x;
      ApplyRope(isa, got.data(), 5, d, row.data());
      EXPECT_TRUE(SameBits(got, truth)) << IsaName(isa) << " d=" << d;
    }
  }
}

TEST(VectorOps, QuantaAgree) {
  std::mt19937_64 random(5);
  for (uint32_t n : kSizes) {
    std::vector<int64_t> totals(n);
    for (int64_t& t : totals) t = static_cast<int64_t>(random()) >> (random() % 60);
    for (int32_t shift : {-60, -1, 0, 20, 36, 60}) {
      std::vector<float> truth(n);
      QuantaToFloat(Isa::kScalar, totals.data(), shift, n, truth.data());
      for (uint32_t i = 0; i < n; ++i) {
        EXPECT_EQ(truth[i], std::ldexp(static_cast<float>(totals[i]), -shift));
      }
      for (Isa isa : SupportedIsas()) {
        std::vector<float> got(n);
        QuantaToFloat(isa, totals.data(), shift, n, got.data());
        EXPECT_TRUE(SameBits(got, truth)) << IsaName(isa) << " n=" << n;
      }
    }
  }
}

TEST(RmsNorm, MatchesDoubleWithinItsRounding) {
  const ScopedFpMode mode;
  for (uint32_t n : {1U, 33U, 576U, 2048U}) {
    std::mt19937 random(n);
    std::normal_distribution<float> normal(0.1F, 2.0F);
    std::vector<float> x(n);
    std::vector<float> w(n);
    for (float& v : x) v = normal(random);
    for (float& v : w) v = normal(random);
    std::vector<float> out(n);
    RmsNorm(Isa::kScalar, x.data(), w.data(), n, 1e-6F, out.data());
    double squares = 0;
    for (float v : x) squares += static_cast<double>(v) * v;
    const double scale = 1.0 / std::sqrt(squares / n + 1e-6);
    // A lane's chain of n/16 sums, the tree, and eight more roundings, halved by the square root.
    const double tolerance = (n / 32.0 + 8) * 0x1p-24;
    for (uint32_t i = 0; i < n; ++i) {
      EXPECT_NEAR(out[i], x[i] * scale * w[i], std::fabs(x[i] * scale * w[i]) * tolerance + 1e-30);
    }
  }
}

TEST(RmsNorm, ExponentBracketsTheRootMeanSquare) {
  const ScopedFpMode mode;
  for (int k = -60; k <= 60; ++k) {
    for (float m : {1.0F, 1.3F, 1.5F, 1.99F}) {
      const std::vector<float> x(48, std::ldexp(m, k));
      const int e = RowExponent(Isa::kScalar, x.data(), 48);
      // m·2^k lies in [2^k, 2^(k+1)).
      EXPECT_EQ(e, std::clamp(k + 1, -40, 40)) << k << " " << m;
      std::vector<float> out(48);
      EXPECT_EQ(RmsNorm(Isa::kScalar, x.data(), nullptr, 48, 1e-5F, out.data()), e);
    }
  }
  const std::vector<float> zero(20, 0.0F);
  EXPECT_EQ(RowExponent(Isa::kScalar, zero.data(), 20), 0);
  for (float bad : {kInf, kNan, 3e38F}) {
    const std::vector<float> x(20, bad);
    EXPECT_EQ(RowExponent(Isa::kScalar, x.data(), 20), 0) << bad;
  }
}

TEST(RopeFrequencies, FollowsTheDefinition) {
  constexpr uint32_t kDim = 64;
  const RopeFrequencies frequencies(10000.0, {}, kDim);
  for (uint32_t p : {0U, 1U, 77U, 8999U, 131071U}) {
    const std::vector<float> row = RopeRow(frequencies, kDim, p);
    for (uint32_t i = 0; i < kDim / 2; ++i) {
      const auto frequency =
          1.0F / static_cast<float>(std::pow(10000.0, static_cast<double>(2 * i) / kDim));
      const float angle = static_cast<float>(p) * frequency;
      EXPECT_NEAR(row[i], std::cos(static_cast<double>(angle)), 4e-8) << p << " " << i;
      EXPECT_NEAR(row[kDim / 2 + i], std::sin(static_cast<double>(angle)), 4e-8);
    }
  }
}

// Frequency of pair i, read back from the angle at position 1 (small angles only).
float FrequencyOf(const RopeFrequencies& frequencies, uint32_t d, uint32_t pair) {
  return std::asin(RopeRow(frequencies, d, 1)[d / 2 + pair]);
}

TEST(RopeFrequencies, LinearScalingDividesEveryFrequency) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kLinear;
  scaling.factor = 8.0;
  const RopeFrequencies plain(10000.0, {}, 32);
  const RopeFrequencies scaled(10000.0, scaling, 32);
  for (uint32_t i = 1; i < 16; ++i) {
    EXPECT_NEAR(FrequencyOf(scaled, 32, i) * 8.0F, FrequencyOf(plain, 32, i), 1e-6);
  }
}

// Llama 3.2 1B: theta 500000, d 64, factor 32, 1 and 4, original context 8192. Pair 0 turns every
// 2·pi tokens and is kept; pair 31 turns never and is divided by 32; pair 15 turns 1.9 times in the
// original context and is blended.
TEST(RopeFrequencies, Llama3ScalingKeepsBlendsAndStretches) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.factor = 32.0;
  scaling.low_freq_factor = 1.0;
  scaling.high_freq_factor = 4.0;
  scaling.original_context = 8192;
  const RopeFrequencies table(500000.0, scaling, 64);
  const auto plain = [](uint32_t i) { return std::pow(500000.0, -2.0 * i / 64); };
  EXPECT_NEAR(FrequencyOf(table, 64, 3), plain(3), 1e-6);
  EXPECT_NEAR(FrequencyOf(table, 64, 31) * 32.0, plain(31), 1e-9);
  const double turns = 8192 * plain(16) / (2 * M_PI);
  ASSERT_GT(turns, 1.0);
  ASSERT_LT(turns, 4.0);
  const double smooth = (turns - 1.0) / 3.0;
  EXPECT_NEAR(FrequencyOf(table, 64, 16), (1 - smooth) * plain(16) / 32 + smooth * plain(16), 1e-8);
}

TEST(RopeFrequencies, FactorsDivideTheirOwnPairs) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kFactors;
  scaling.freq_factors = {1.0F, 2.0F, 32.0F, 5.0F};
  const RopeFrequencies plain(10000.0, {}, 8);
  const RopeFrequencies scaled(10000.0, scaling, 8);
  for (uint32_t i = 1; i < 4; ++i) {
    EXPECT_NEAR(FrequencyOf(scaled, 8, i) * scaling.freq_factors[i], FrequencyOf(plain, 8, i),
                1e-7);
  }
}

TEST(ApplyRope, RotatesPairsAndKeepsTheirLength) {
  const std::vector<float> row = RopeRow(RopeFrequencies(10000.0, {}, 8), 8, 5);
  std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  ApplyRope(Isa::kScalar, x.data(), 1, 8, row.data());
  for (uint32_t i = 0; i < 4; ++i) {
    const double angle = 5 * std::pow(10000.0, -2.0 * i / 8);
    const double a = i + 1;
    const double b = i + 5;
    EXPECT_NEAR(x[i], a * std::cos(angle) - b * std::sin(angle), 2e-6);
    EXPECT_NEAR(x[i + 4], b * std::cos(angle) + a * std::sin(angle), 2e-6);
  }
}

}  // namespace
}  // namespace cleave

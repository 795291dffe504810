#include "kernels/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

namespace cleave {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Distance in units of the last place of the fp32 number nearest to `truth`.
double Ulps(float value, double truth) {
  const float nearest = static_cast<float>(truth);
  const float next = std::nextafter(std::fabs(nearest), kInf);
  const double ulp = static_cast<double>(next) - std::fabs(nearest);
  return std::fabs(static_cast<double>(value) - truth) / ulp;
}

// fn(x) for every `stride`-th float in [low, high], both signs of the range handled by the caller.
template <typename Fn>
void ForFloats(float low, float high, uint32_t stride, Fn fn) {
  const uint32_t first = std::bit_cast<uint32_t>(std::min(std::fabs(low), std::fabs(high)));
  const uint32_t last = std::bit_cast<uint32_t>(std::max(std::fabs(low), std::fabs(high)));
  const uint32_t sign = low < 0 || high < 0 ? 0x80000000U : 0;
  for (uint64_t b = first; b <= last; b += stride) {
    fn(std::bit_cast<float>(static_cast<uint32_t>(b) | sign));
  }
}

TEST(Exp2, WithinOneUlpOfDouble) {
  double worst = 0;
  float at = 0;
  const auto check = [&](float x) {
    const double e = Ulps(Exp2(x), std::exp2(static_cast<double>(x)));
    if (e > worst) {
      worst = e;
      at = x;
    }
  };
  ForFloats(0x1p-30F, std::nextafter(128.0F, 0.0F), 311, check);
  ForFloats(-126.0F, -0x1p-30F, 311, check);
  EXPECT_LE(worst, 1.0) << "at " << at;
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(Exp2, WholeNumbersAreExact) {
  for (int n = -126; n < 128; ++n) EXPECT_EQ(Exp2(static_cast<float>(n)), PowerOfTwo(n)) << n;
}

TEST(Exp2, Ends) {
  EXPECT_EQ(Exp2(0.0F), 1.0F);
  EXPECT_EQ(Exp2(-0.0F), 1.0F);
  EXPECT_EQ(Exp2(std::nextafter(-126.0F, -kInf)), 0.0F);
  EXPECT_EQ(Exp2(-126.0F), 0x1p-126F);
  EXPECT_EQ(Exp2(-kInf), 0.0F);
  EXPECT_EQ(Exp2(128.0F), kInf);
  EXPECT_EQ(Exp2(kInf), kInf);
  EXPECT_TRUE(std::isfinite(Exp2(std::nextafter(128.0F, 0.0F))));
  EXPECT_TRUE(std::isnan(Exp2(kNan)));
}

TEST(Log2, WithinTwoUlpOrOneTenMillionth) {
  double worst = 0;
  ForFloats(0x1p-126F, std::numeric_limits<float>::max(), 677, [&](float x) {
    const double truth = std::log2(static_cast<double>(x));
    const double absolute = std::fabs(static_cast<double>(Log2(x)) - truth);
    if (absolute > 1e-7) worst = std::max(worst, Ulps(Log2(x), truth));
  });
  EXPECT_LE(worst, 2.0);
}

TEST(Log2, Ends) {
  EXPECT_EQ(Log2(1.0F), 0.0F);
  EXPECT_EQ(Log2(0x1p-126F), -126.0F);
  EXPECT_EQ(Log2(0x1p100F), 100.0F);
  EXPECT_EQ(Log2(0.0F), -kInf);
  EXPECT_EQ(Log2(-0.0F), -kInf);
  EXPECT_EQ(Log2(0x1p-130F), -kInf);
  EXPECT_EQ(Log2(kInf), kInf);
  EXPECT_TRUE(std::isnan(Log2(-1.0F)));
  EXPECT_TRUE(std::isnan(Log2(kNan)));
}

TEST(Sigmoid, RelativeErrorFollowsTheExponent) {
  // The rounding of -x·log2e moves the power by |x|·2^-24; exp2, the sum and the quotient round
  // too.
  for (float x = -80.0F; x < 80.0F; x += 0.0137F) {
    const double truth = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(Sigmoid(x), truth, truth * (3.0 + 1.25 * std::fabs(x)) * 0x1p-24) << x;
    EXPECT_NEAR(Silu(x), x * truth, std::fabs(x * truth) * (3.0 + 1.25 * std::fabs(x)) * 0x1p-24)
        << x;
  }
  EXPECT_EQ(Sigmoid(0.0F), 0.5F);
  EXPECT_EQ(Sigmoid(kInf), 1.0F);
  EXPECT_EQ(Sigmoid(-kInf), 0.0F);
  EXPECT_EQ(Silu(1e30F), 1e30F);
  EXPECT_EQ(Silu(-1e30F), 0.0F);
  EXPECT_TRUE(std::isnan(Silu(kNan)));
}

TEST(Tanh, WithinTwoTenMillionths) {
  for (float x = -12.0F; x < 12.0F; x += 0.00031F) {
    EXPECT_NEAR(Tanh(x), std::tanh(static_cast<double>(x)), 2e-7) << x;
    EXPECT_EQ(Tanh(-x), -Tanh(x));
  }
  EXPECT_EQ(Tanh(0.0F), 0.0F);
  EXPECT_EQ(Tanh(kInf), 1.0F);
  EXPECT_EQ(Tanh(-1e20F), -1.0F);
  EXPECT_TRUE(std::isnan(Tanh(kNan)));
}

TEST(GeluTanh, NearTheDoubleFormula) {
  for (float x = -9.0F; x < 9.0F; x += 0.00029F) {
    const double v = x;
    const double inner = 0.7978845608028654 * (v + 0.044715 * v * v * v);
    const double truth = 0.5 * v * (1.0 + std::tanh(inner));
    EXPECT_NEAR(GeluTanh(x), truth, 4e-7 * std::max(1.0, std::fabs(v))) << x;
    if (std::fabs(v) < 0.5) {
      EXPECT_NEAR(GeluTanh(x), truth, 1e-7) << x;
    }
  }
  EXPECT_EQ(GeluTanh(0.0F), 0.0F);
  EXPECT_EQ(GeluTanh(1e30F), 1e30F);
  EXPECT_EQ(GeluTanh(-1e30F), 0.0F);
}

TEST(SinCosOf, NearTheExtendedPrecisionLibrary) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-20, 30);
  for (int i = 0; i < 200000; ++i) {
    const double x = std::exp2(exponent(random)) * (i % 2 == 0 ? 1 : -1);
    const SinCos at = SinCosOf(x);
    EXPECT_NEAR(at.sin, static_cast<double>(sinl(x)), 4e-16) << x;
    EXPECT_NEAR(at.cos, static_cast<double>(cosl(x)), 4e-16) << x;
  }
  EXPECT_EQ(SinCosOf(0.0).sin, 0.0);
  EXPECT_EQ(SinCosOf(0.0).cos, 1.0);
}

TEST(SinCosOf, NearMultiplesOfHalfPi) {
  for (int64_t k = 1; k < 600000000; k = k * 2 + 3) {
    const double x = static_cast<double>(static_cast<float>(static_cast<double>(k) * M_PI_2));
    EXPECT_NEAR(SinCosOf(x).sin, static_cast<double>(sinl(x)), 4e-16) << x;
    EXPECT_NEAR(SinCosOf(x).cos, static_cast<double>(cosl(x)), 4e-16) << x;
  }
}

TEST(PowDouble, RelativeErrorUnderTenToMinus13) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> base_exponent(-40, 40);
  std::uniform_real_distribution<double> exponent(-20, 20);
  for (int i = 0; i < 200000; ++i) {
    const double base = std::exp2(base_exponent(random));
    const double e = exponent(random);
    const double truth = static_cast<double>(powl(base, e));
    EXPECT_NEAR(PowDouble(base, e) / truth, 1.0, 1e-13) << base << " ^ " << e;
  }
  EXPECT_EQ(PowDouble(10000.0, 0.0), 1.0);
  EXPECT_EQ(PowDouble(2.0, -3.0), 0.125);
  EXPECT_EQ(PowDouble(1e300, 2.0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(PowDouble(1e300, -2.0), 0.0);
}

}  // namespace
}  // namespace cleave

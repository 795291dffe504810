#include "kernels/math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/math_constants.h"

namespace cleave {
namespace {

using math::kExp2;
using math::kLog2;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double RoundToInteger(double x) { return (x + math::kRoundDouble) - math::kRoundDouble; }

// 2^n for a normal double.
double PowerOfTwoDouble(int64_t n) {
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

// pi/2 in three parts. The first two have 22 bits, so that k times either is exact for |k| < 2^31;
// the third holds what is left, to 2^-103.
constexpr double kHalfPi1 = 0x1.921fbp+0;
constexpr double kHalfPi2 = 0x1.5110bp-22;
constexpr double kHalfPi3 = 0x1.18469898cc517p-44;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// Taylor series on [-pi/4, pi/4] in x², highest power first; the first term left out is below 1e-19
// (sin) and 3e-18 (cos).
constexpr double kSin[] = {
    1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
    1.0 / 362880.0,          -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
constexpr double kCos[] = {
    1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
    1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0};

double Polynomial(std::span<const double> coefficients, double s) {
  double p = 0.0;
  for (const double c : coefficients) p = p * s + c;
  return p;
}

double SinNearZero(double x) {
  const double s = x * x;
  return x + x * (s * Polynomial(kSin, s));
}

double CosNearZero(double x) {
  const double s = x * x;
  return 1.0 + (s * s * Polynomial(kCos, s) - 0.5 * s);
}

// log2 of a normal x > 0: with s = (m - 1)/(m + 1), ln m = 2·(s + s³/3 + s⁵/5 + …), |s| < 0.172.
double Log2Double(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double p = 0.0;
  for (int k = 23; k >= 3; k -= 2) p = (p + 1.0 / k) * s2;
  constexpr double kTwoOverLn2 = 2.88539008177792681472;
  return static_cast<double>(exponent) + kTwoOverLn2 * (s + s * p);
}

// 2^x by the series of e^(f·ln2), |f·ln2| < 0.347; 16 terms leave 1e-21.
double Exp2Double(double x) {
  if (x >= 1024.0) return std::numeric_limits<double>::infinity();
  if (!(x >= -1022.0)) return 0.0;
  const double n = RoundToInteger(x);
  const double f = (x - n) * 0.693147180559945309417;
  double p = 1.0;
  for (int k = 16; k >= 1; --k) p = 1.0 + p * f / k;
  // n reaches 1024 when x rounds up; the product is still finite or rightly infinite.
  const auto whole = static_cast<int64_t>(n);
  return p * PowerOfTwoDouble(whole / 2) * PowerOfTwoDouble(whole - whole / 2);
}

}  // namespace

float PowerOfTwo(int n) { return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23); }

float Exp2(float x) {
  if (x != x) return x;
  if (x < math::kExp2Lowest) return 0.0F;
  if (x >= math::kExp2Highest) return kInfinity;
  const float n = (x + math::kRoundFloat) - math::kRoundFloat;
  const float f = x - n;
  float p = kExp2[5];
  for (int i = 4; i >= 0; --i) p = std::fmaf(p, f, kExp2[i]);
  p = std::fmaf(p, f, 1.0F);
  const uint32_t shift = static_cast<uint32_t>(static_cast<int32_t>(n)) << 23;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + shift);
}

float Log2(float x) {
  if (x != x || x == kInfinity) return x;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7F800000U) == 0) return -kInfinity;  // zero, and denormals as zero
  if (x < 0.0F) return std::numeric_limits<float>::quiet_NaN();
  // x = m·2^e with m in [sqrt(1/2), sqrt(2)): 0x3F3504F3 is the float just under sqrt(1/2).
  const auto e = static_cast<int32_t>(bits - 0x3F3504F3U) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(e) << 23));
  const float t = m - 1.0F;
  float p = kLog2[9];
  for (int i = 8; i >= 0; --i) p = std::fmaf(p, t, kLog2[i]);
  return std::fmaf(p, t, static_cast<float>(e));
}

float Sigmoid(float x) { return 1.0F / (1.0F + Exp2(x * -kLog2E)); }

float Silu(float x) { return x / (1.0F + Exp2(x * -kLog2E)); }

float Tanh(float x) {
  const float e = Exp2(std::fabs(x) * -math::kTwoLog2E);
  return std::copysign((1.0F - e) / (1.0F + e), x);
}

float GeluTanh(float x) {
  const float cube = (x * x) * x;
  const float inner = std::fmaf(cube, math::kGeluCubic, x) * math::kGeluScale;
  return (x * 0.5F) * (1.0F + Tanh(inner));
}

SinCos SinCosOf(double angle) {
  const double k = RoundToInteger(angle * kTwoOverPi);
  const double r = ((angle - k * kHalfPi1) - k * kHalfPi2) - k * kHalfPi3;
  const double s = SinNearZero(r);
  const double c = CosNearZero(r);
  switch (static_cast<int64_t>(k) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

double PowDouble(double base, double exponent) { return Exp2Double(exponent * Log2Double(base)); }

}  // namespace cleave

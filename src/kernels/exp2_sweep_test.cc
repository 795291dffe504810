// Exp2 over bit patterns of every kind, specials included: the vector kernels against the scalar
// truth, and the truth against double. The quick tier takes every 257th pattern, the full tier
// (exp2_sweep_full) every 5th: 859 million.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/isa_fixture.h"
#include "kernels/math.h"
#include "kernels/vector_ops_table.h"

namespace cleave {
namespace {

constexpr uint64_t kStride = CLEAVE_EXP2_STRIDE;
constexpr uint32_t kBlock = 1 << 14;

// fn(x [kBlock]) for blocks that together hold every kStride-th pattern.
template <typename Fn>
void ForBlocks(Fn fn) {
  std::vector<float> x(kBlock);
  for (uint64_t first = 0; first < (uint64_t{1} << 32); first += kBlock * kStride) {
    for (uint32_t i = 0; i < kBlock; ++i) {
      x[i] = std::bit_cast<float>(static_cast<uint32_t>(first + i * kStride));
    }
    fn(x);
  }
}

bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

TEST(Exp2Sweep, KernelsEqualTheScalarTruth) {
  const ScopedFpMode mode;
  std::vector<float> truth(kBlock);
  std::vector<float> got(kBlock);
  uint64_t different = 0;
  ForBlocks([&](const std::vector<float>& x) {
    for (uint32_t i = 0; i < kBlock; ++i) truth[i] = Exp2(x[i]);
    for (Isa isa : SupportedIsas()) {
      VectorOpsFor(isa).exp2(x.data(), kBlock, got.data());
      for (uint32_t i = 0; i < kBlock; ++i) different += Same(got[i], truth[i]) ? 0 : 1;
    }
  });
  EXPECT_EQ(different, 0U);
}

TEST(Exp2Sweep, WithinOneUlpOfDouble) {
  double worst = 0;
  ForBlocks([&](const std::vector<float>& x) {
    for (float v : x) {
      if (!(v >= -126.0F && v < 128.0F)) continue;
      const double truth = std::exp2(static_cast<double>(v));
      // The last place of the result: 2^-23 of the power of two at or under it.
      const double ulp = std::ldexp(1.0, std::ilogb(static_cast<float>(truth)) - 23);
      worst = std::max(worst, std::fabs(static_cast<double>(Exp2(v)) - truth) / ulp);
    }
  });
  EXPECT_LE(worst, 1.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

}  // namespace
}  // namespace cleave

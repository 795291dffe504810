#include "engine/sampler/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"

namespace cleave {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> RandomRow(uint32_t n, uint64_t seed) {
  RngStream random(seed);
  std::vector<float> row(n);
  for (float& x : row) {
    // Quarter steps, so that many are equal.
    x = static_cast<float>(static_cast<int>(random.Below(160)) - 80) * 0.25F;
  }
  return row;
}

double NaiveLogSum(const std::vector<float>& row) {
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x));
  return std::log(sum);
}

TEST(Logprobs, AgreeWithDoublesInAnyNumber) {
  for (const uint32_t n : {1U, 2U, 17U, 500U, 4099U}) {
    const std::vector<float> row = RandomRow(n, n);
    const double log_sum = NaiveLogSum(row);
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
    });
    LogprobCalculator calculator(Isa::kScalar, n);
    for (const uint32_t k : {0U, 1U, 5U, 20U, 128U, 129U, n - 1, n, n + 7}) {
      const int32_t chosen = static_cast<int32_t>(n / 2);
      const TokenLogprobs result = calculator.Calculate(row.data(), chosen, k);
      ASSERT_EQ(result.top.size(), std::min(k, n));
      for (size_t i = 0; i < result.top.size(); ++i) {
        ASSERT_EQ(result.top[i].id, order[i]) << "n " << n << " k " << k;
        ASSERT_NEAR(result.top[i].logprob, row[static_cast<size_t>(order[i])] - log_sum, 4e-6);
      }
      const float own = row[n / 2];
      ASSERT_EQ(result.chosen.id, chosen);
      ASSERT_NEAR(result.chosen.logprob, own - log_sum, 4e-6);
      const auto greater = std::count_if(row.begin(), row.end(), [&](float x) { return x > own; });
      ASSERT_EQ(result.chosen.rank, greater + 1);
    }
  }
}

TEST(Logprobs, RanksOfEqualLogitsAreEqual) {
  const std::vector<float> row = {1, 3, 3, 0};
  LogprobCalculator calculator(Isa::kScalar, 4);
  const TokenLogprobs r = calculator.Calculate(row.data(), 2, 4);
  EXPECT_EQ(r.chosen.rank, 1);
  EXPECT_EQ(r.top[0].id, 1);
  EXPECT_EQ(r.top[1].id, 2);
  EXPECT_EQ(r.top[1].rank, 1);
  EXPECT_EQ(r.top[2].rank, 3);
}

TEST(Logprobs, AlwaysFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> rows = {{-kInf, 1, -kInf, nan, 2, -1e30F, -0.0F, 0.0F},
                                                {-kInf, -kInf, -kInf, -kInf, -kInf},
                                                {nan, nan, nan},
                                                {kInf, 0, kInf}};
  for (const auto& row : rows) {
    const auto n = static_cast<uint32_t>(row.size());
    LogprobCalculator calculator(Isa::kScalar, n);
    for (uint32_t chosen = 0; chosen < n; ++chosen) {
      for (const uint32_t k : {1U, n - 1, n}) {
        const TokenLogprobs r = calculator.Calculate(row.data(), static_cast<int32_t>(chosen), k);
        EXPECT_TRUE(std::isfinite(r.chosen.logprob));
        EXPECT_GE(r.chosen.logprob, kLowestLogprob);
        ASSERT_EQ(r.top.size(), k);
        for (const TokenLogprob& t : r.top) EXPECT_TRUE(std::isfinite(t.logprob));
      }
    }
  }
  LogprobCalculator calculator(Isa::kScalar, 8);
  const TokenLogprobs r = calculator.Calculate(rows[0].data(), 0, 8);
  EXPECT_EQ(r.chosen.logprob, kLowestLogprob);
  EXPECT_EQ(r.top[0].id, 4);
  EXPECT_EQ(r.top[2].id, 6);  // both zeros are equal: the lower id first
  EXPECT_EQ(r.top[3].id, 7);
}

}  // namespace
}  // namespace cleave

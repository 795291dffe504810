// The router, the dispatch and the gathering of prepared rows.

#include "kernels/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/isa_fixture.h"
#include "kernels/matmul.h"
#include "kernels/weight_fixture.h"

namespace cleave {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Routes {
  std::vector<uint32_t> chosen;
  std::vector<float> gates;
};

Routes Route(Isa isa, const RouterShape& shape, const std::vector<float>& logits) {
  const auto rows = static_cast<uint32_t>(logits.size() / shape.experts);
  Routes out{std::vector<uint32_t>(size_t{rows} * shape.top_k, 999),
             std::vector<float>(size_t{rows} * shape.top_k, -1.0F)};
  RouteTokens(isa, shape, logits.data(), shape.experts, 0, rows, out.chosen.data(),
              out.gates.data());
  return out;
}

std::vector<float> RandomLogits(uint32_t rows, uint32_t experts, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> logits(size_t{rows} * experts);
  // Steps of 1/8, so that many are equal.
  for (float& v : logits) v = std::round(normal(rng) * 16.0F) / 8.0F;
  return logits;
}

class Router : public ::testing::Test {
 protected:
  ScopedFpMode mode_;
};

TEST_F(Router, ChoosesTheLargestAndOfEqualsTheLowerIndex) {
  const std::vector<float> logits = {1, 3, 0, 3, 2, 3, -0.0F, 0.0F};
  const RouterShape shape{.experts = 8, .top_k = 4, .rule = GateRule::kSoftmaxOfChosen};
  EXPECT_EQ(Route(Isa::kScalar, shape, logits).chosen, (std::vector<uint32_t>{1, 3, 5, 4}));
  const RouterShape all{.experts = 8, .top_k = 8, .rule = GateRule::kSoftmaxOfAll};
  EXPECT_EQ(Route(Isa::kScalar, all, logits).chosen,
            (std::vector<uint32_t>{1, 3, 5, 4, 0, 2, 6, 7}));
}

TEST_F(Router, EqualsAStableSortAndTheDoubleSoftmax) {
  for (uint32_t experts : {1U, 2U, 8U, 60U, 128U, 385U}) {
    const std::vector<float> logits = RandomLogits(20, experts, experts);
    for (uint32_t top_k : {1U, 2U, 8U, 64U}) {
      if (top_k > experts) continue;
      for (GateRule rule : {GateRule::kSoftmaxOfChosen, GateRule::kSoftmaxOfAll}) {
        const Routes got = Route(*ChooseIsa(), {experts, top_k, rule}, logits);
        for (size_t row = 0; row < 20; ++row) {
          const float* l = &logits[row * experts];
          std::vector<uint32_t> order(experts);
          std::iota(order.begin(), order.end(), 0U);
          std::stable_sort(order.begin(), order.end(),
                           [&](uint32_t a, uint32_t b) { return l[a] > l[b]; });
          double sum = 0;
          for (uint32_t i = 0; i < (rule == GateRule::kSoftmaxOfAll ? experts : top_k); ++i) {
            sum += std::exp(static_cast<double>(l[order[i]]) - l[order[0]]);
          }
          for (uint32_t i = 0; i < top_k; ++i) {
            ASSERT_EQ(got.chosen[row * top_k + i], order[i]) << experts << " " << top_k;
            const double want = std::exp(static_cast<double>(l[order[i]]) - l[order[0]]) / sum;
            ASSERT_NEAR(got.gates[row * top_k + i], want, 1e-6 * want) << experts << " " << top_k;
          }
        }
      }
    }
  }
}

TEST_F(Router, InstructionSetsAndBatchesAgreeToTheBit) {
  for (uint32_t experts : {7U, 16U, 61U, 128U}) {
    std::vector<float> logits = MakeActivations(9, experts, experts);
    for (GateRule rule : {GateRule::kSoftmaxOfChosen, GateRule::kSoftmaxOfAll}) {
      const RouterShape shape{experts, 6, rule};
      const Routes truth = Route(Isa::kScalar, shape, logits);
      for (Isa isa : SupportedIsas()) {
        const Routes got = Route(isa, shape, logits);
        EXPECT_EQ(got.chosen, truth.chosen) << IsaName(isa);
        EXPECT_TRUE(SameBits(got.gates, truth.gates)) << IsaName(isa);
        const std::vector<float> last(logits.end() - experts, logits.end());
        const Routes alone = Route(isa, shape, last);
        EXPECT_TRUE(SameBits(alone.gates, {&truth.gates[8 * 6], 6})) << IsaName(isa);
      }
    }
  }
}

// The two published forms are one rule here: the same integers, divided by the same sum.
TEST_F(Router, RenormalisedGatesAreTheSoftmaxOfTheChosen) {
  const std::vector<float> logits = MakeActivations(50, 32, 3);
  const Routes chosen = Route(Isa::kScalar, {32, 4, GateRule::kSoftmaxOfChosen}, logits);
  const Routes all = Route(Isa::kScalar, {32, 4, GateRule::kSoftmaxOfAll}, logits);
  for (size_t row = 0; row < 50; ++row) {
    double sum = 0;
    for (size_t i = 4 * row; i < 4 * row + 4; ++i) sum += all.gates[i];
    for (size_t i = 4 * row; i < 4 * row + 4; ++i) {
      EXPECT_NEAR(chosen.gates[i], all.gates[i] / sum, 2e-7 * chosen.gates[i]);
    }
  }
}

TEST_F(Router, NaNIsChosenLastAndARowWithoutAFiniteMaximumHasNaNGates) {
  const RouterShape shape{.experts = 4, .top_k = 2, .rule = GateRule::kSoftmaxOfAll};
  for (Isa isa : SupportedIsas()) {
    const Routes one = Route(isa, shape, {kNan, -200.0F, kNan, 1.0F});
    EXPECT_EQ(one.chosen, (std::vector<uint32_t>{3, 1}));
    EXPECT_EQ(one.gates, (std::vector<float>{1.0F, 0.0F}));
    const Routes none =
        Route(isa, shape, {kNan, kNan, kNan, kNan, kInf, 0, 0, kInf, -kInf, -kInf, -kInf, -kInf});
    EXPECT_EQ(none.chosen, (std::vector<uint32_t>{0, 1, 0, 3, 0, 1}));
    for (float g : none.gates) EXPECT_TRUE(std::isnan(g));
  }
}

TEST(ExpertDispatchTest, ListsTheTokensOfHeldExperts) {
  ExpertDispatch d(3, 2, 1, 4);
  const std::vector<uint32_t> chosen = {3, 0, 1, 3, 4, 3};
  const std::vector<float> gates = {.1F, .2F, .3F, .4F, .5F, .6F};
  for (int again = 0; again < 2; ++again) {
    d.Assign(chosen.data(), gates.data(), 3);
    EXPECT_EQ(std::vector<uint32_t>(d.tokens(1).begin(), d.tokens(1).end()),
              (std::vector<uint32_t>{1}));
    EXPECT_TRUE(d.tokens(2).empty());
    EXPECT_EQ(std::vector<uint32_t>(d.tokens(3).begin(), d.tokens(3).end()),
              (std::vector<uint32_t>{0, 1, 2}));
    EXPECT_EQ(std::vector<float>(d.gates(3).begin(), d.gates(3).end()),
              (std::vector<float>{.1F, .4F, .6F}));
    EXPECT_EQ(d.first(3), 1U);
    EXPECT_EQ(d.first(4), 4U);
  }
  d.Assign(chosen.data(), gates.data(), 0);
  EXPECT_TRUE(d.tokens(3).empty());
}

TEST(GatherActsTest, IsPreparingTheGatheredRows) {
  ScopedFpMode mode;
  constexpr uint32_t kCols = 75;
  const KPlan plan = ColumnPlan(kCols);
  const std::vector<float> x = MakeActivations(6, kCols, 1);
  const std::vector<uint32_t> rows = {5, 0, 0, 3};
  std::vector<float> gathered;
  for (uint32_t r : rows) {
    gathered.insert(gathered.end(), x.begin() + r * kCols, x.begin() + (r + 1) * kCols);
  }
  for (DType dtype : {DType::kQ41, DType::kBF16, DType::kF32}) {
    const Weights w = MakeWeights(dtype, 20, dtype == DType::kQ41 ? 96 : kCols, 2);
    const PackedMatrix m = Pack(w.view, plan);
    const ActKind kind = ActKindOf(dtype);
    ActBuffer all(6, 3);
    ActBuffer want(4, 3);
    ActBuffer got(9, 5);
    PrepareActs(Isa::kScalar, kind, plan, x.data(), kCols, 0, 6, &all);
    PrepareActs(Isa::kScalar, kind, plan, gathered.data(), kCols, 0, 4, &want);
    GatherActs(kind, all, plan, rows.data(), 0, 1, &got);
    GatherActs(kind, all, plan, rows.data(), 1, 4, &got);
    std::vector<float> y_want(4 * 20);
    std::vector<float> y_got(4 * 20);
    MatmulColumn(Isa::kScalar, m, want, 4, 0, m.groups(), y_want.data(), 20);
    MatmulColumn(Isa::kScalar, m, got, 4, 0, m.groups(), y_got.data(), 20);
    EXPECT_TRUE(SameBits(y_got, y_want)) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace cleave

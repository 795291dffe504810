#include "engine/sampler/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "kernels/logits.h"
#include "kernels/math.h"

namespace cleave {
namespace {

__extension__ using Uint128 = unsigned __int128;
using Row = std::vector<float>;
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  SamplingParams params;
  Row logits;
  std::vector<int32_t> tokens = {0, 1, 2};
};

int32_t Sample(const Case& c, Isa isa = Isa::kScalar) {
  Sampler sampler(isa, static_cast<uint32_t>(c.logits.size()), {});
  Row logits = c.logits;
  return sampler.Sample({&c.params, c.tokens, 1}, logits.data());
}

// The rules of sampler.h by sorting everything.
int32_t NaiveSample(const Case& c) {
  const auto n = static_cast<uint32_t>(c.logits.size());
  const MaxLogit max = FindMax(Isa::kScalar, c.logits.data(), n);
  std::vector<int64_t> mass(n);
  ComputeMasses(Isa::kScalar, c.logits.data(), n, max.value, kLog2E / c.params.temperature,
                mass.data());
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return mass[a] > mass[b]; });
  const auto sum = [&] {
    int64_t total = 0;
    for (const uint32_t id : order) total += mass[id];
    return total;
  };
  if (c.params.min_p > 0) {
    const double lowest = std::ceil(static_cast<double>(c.params.min_p) * 0x1p40);
    std::erase_if(order, [&](uint32_t id) { return static_cast<double>(mass[id]) < lowest; });
  }
  if (c.params.top_k > 0 && order.size() > static_cast<size_t>(c.params.top_k)) {
    order.resize(static_cast<size_t>(c.params.top_k));
  }
  if (c.params.top_p < 1) {
    // long double has 64 bits: enough for 24 by 62 only when the product is short; the tests use
    // shares of few bits.
    const long double goal = std::ceil(static_cast<long double>(c.params.top_p) * sum());
    int64_t reached = 0;
    size_t count = 0;
    while (static_cast<long double>(reached) < goal) reached += mass[order[count++]];
    order.resize(std::max<size_t>(count, 1));
  }
  const uint64_t bits =
      RandomBits({c.params.seed, c.params.prompt_index, c.params.choice_index, c.tokens.size()});
  auto target =
      static_cast<int64_t>((static_cast<Uint128>(bits) * static_cast<uint64_t>(sum())) >> 64U);
  for (const uint32_t id : order) {
    if (target < mass[id]) return static_cast<int32_t>(id);
    target -= mass[id];
  }
  return -2;
}

Row RandomRow(RngStream* random) {
  Row row(1 + random->Below(random->Below(3) == 0 ? 5000 : 200));
  const double spread = 0.1 + random->Uniform() * 12;
  const bool coarse = random->Below(2) == 0;  // many equal logits
  for (float& x : row) {
    double v = (random->Uniform() + random->Uniform() + random->Uniform() - 1.5) * spread;
    if (coarse) v = std::round(v);
    x = static_cast<float>(v);
    if (random->Below(20) == 0) x = -kInf;
  }
  row[0] = 0;
  return row;
}

TEST(Sampler, AgreesWithSortingEverything) {
  RngStream random(5);
  for (int i = 0; i < 4000; ++i) {
    Case c;
    c.logits = RandomRow(&random);
    c.params.seed = random.Next();
    c.params.prompt_index = static_cast<uint32_t>(random.Below(4));
    c.params.choice_index = static_cast<uint32_t>(random.Below(4));
    c.params.temperature = 0.25F + static_cast<float>(random.Below(12)) * 0.25F;
    if (random.Below(2) == 0) c.params.top_k = static_cast<int32_t>(random.Below(60));
    if (random.Below(2) == 0) c.params.top_p = static_cast<float>(random.Below(64) + 1) / 64;
    if (random.Below(3) == 0) c.params.min_p = static_cast<float>(random.Below(40)) / 64;
    ASSERT_EQ(Sample(c), NaiveSample(c)) << "case " << i;
  }
}

TEST(Sampler, EveryInstructionSetDrawsTheSame) {
  RngStream random(6);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!CpuSupports(isa)) continue;
    for (int i = 0; i < 300; ++i) {
      Case c;
      c.logits = RandomRow(&random);
      c.params.seed = random.Next();
      c.params.top_p = 0.9F;
      ASSERT_EQ(Sample(c, isa), Sample(c));
    }
  }
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  Case c;
  c.params.temperature = 0;
  c.logits = {1, 5, 5, 2};
  EXPECT_EQ(Sample(c), 1);
  for (const float t : {1e-9F, -1.0F, std::nanf("")}) {  // not a division by nearly nothing
    c.params.temperature = t;
    EXPECT_EQ(Sample(c), 1);
  }
}

TEST(Sampler, TopKTiesGoToLowerIds) {
  Case c;
  c.logits = Row(100, 1.0F);
  c.params.top_k = 3;
  std::vector<int> counts(100);
  for (c.params.seed = 0; c.params.seed < 300; ++c.params.seed) ++counts[Sample(c)];
  EXPECT_EQ(counts[0] + counts[1] + counts[2], 300);
  EXPECT_GT(counts[2], 60);
}

TEST(Sampler, TopPKeepsTheShortestPrefixThatReachesIt) {
  Case c;
  c.logits = {std::log(4.0F), std::log(2.0F), std::log(1.0F), std::log(1.0F)};
  const auto support = [&](float top_p) {
    c.params.top_p = top_p;
    int32_t highest = 0;
    for (c.params.seed = 0; c.params.seed < 400; ++c.params.seed) {
      highest = std::max(highest, Sample(c));
    }
    return highest + 1;
  };
  EXPECT_EQ(support(0.01F), 1);
  EXPECT_EQ(support(0.49F), 1);
  EXPECT_EQ(support(0.6F), 2);
  EXPECT_EQ(support(0.74F), 2);
  EXPECT_EQ(support(0.76F), 3);
  EXPECT_EQ(support(0.99F), 4);
  EXPECT_EQ(support(0.0F), 1);
  c.logits = {0, 0};
  EXPECT_EQ(support(0.5F), 1);
  c.logits = {0, 0, -27.7259F};  // one quantum: half of the total is now half a quantum more
  EXPECT_EQ(support(0.5F), 2);
}

TEST(Sampler, MinPKeepsWhatIsLikelyEnough) {
  Case c;
  c.logits = {std::log(8.0F), std::log(4.5F), std::log(3.5F), std::log(0.1F)};
  c.params.min_p = 0.5F;
  std::vector<int> counts(4);
  for (c.params.seed = 0; c.params.seed < 400; ++c.params.seed) ++counts[Sample(c)];
  EXPECT_GT(counts[1], 100);
  EXPECT_EQ(counts[2] + counts[3], 0);
  c.params.min_p = 1.0F;
  EXPECT_EQ(Sample(c), 0);
}

TEST(Sampler, NothingLeftIsSaid) {
  Case c;
  c.logits = {1, 2};
  c.params.bad_words = {{0}, {1}};
  EXPECT_EQ(Sample(c), Sampler::kNoToken);
  c.params.bad_words.clear();
  c.logits = {std::nanf(""), std::nanf("")};
  EXPECT_EQ(Sample(c), Sampler::kNoToken);
}

TEST(Sampler, OddLogitsStillGiveAToken) {
  Case c;
  c.logits = {std::nanf(""), 2, -kInf, 1e30F};
  EXPECT_EQ(Sample(c), 3);
  c.logits = {kInf, kInf, 0};
  EXPECT_EQ(Sample(c), 0);
  c.logits = {-3e38F, 3e38F};
  EXPECT_EQ(Sample(c), 1);
}

// χ² of draws over many positions against the softmax in doubles; 19 degrees of freedom, the
// 99.9 % point is 43.8.
TEST(Sampler, DrawsFollowTheSoftmax) {
  Case c;
  RngStream random(1);
  c.logits.resize(20);
  for (float& x : c.logits) x = static_cast<float>(random.Uniform() * 3);
  c.params.temperature = 0.8F;
  c.params.seed = 42;
  std::vector<double> expected;
  for (const float x : c.logits) expected.push_back(std::exp(static_cast<double>(x) / 0.8));
  const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
  constexpr int kDraws = 40000;
  std::vector<int> counts(20);
  Sampler sampler(Isa::kScalar, 20, {});
  for (int i = 0; i < kDraws; ++i) {
    c.tokens.push_back(0);  // only the position changes
    Row logits = c.logits;
    ++counts[static_cast<size_t>(sampler.Sample({&c.params, c.tokens, 1}, logits.data()))];
  }
  double chi2 = 0;
  for (size_t i = 0; i < 20; ++i) {
    const double e = kDraws * expected[i] / sum;
    chi2 += (counts[i] - e) * (counts[i] - e) / e;
  }
  EXPECT_LT(chi2, 43.8);
}

TEST(Sampler, TheDrawDependsOnTheKeyOnly) {
  Case c;
  c.logits = Row(1000, 0.0F);
  c.params.seed = 7;
  const int32_t token = Sample(c);
  c.tokens = {5, 6, 7};  // other ids, same position
  EXPECT_EQ(Sample(c), token);
  Case other = c;
  other.params.seed = 8;
  EXPECT_NE(Sample(other), token);
  other = c;
  other.params.choice_index = 1;
  EXPECT_NE(Sample(other), token);
  other = c;
  other.params.prompt_index = 1;
  EXPECT_NE(Sample(other), token);
  other = c;
  other.tokens.push_back(0);
  EXPECT_NE(Sample(other), token);
}

TEST(Sampler, AFlatVocabularyIsStillExact) {
  Case c;
  c.logits.resize(120000);
  RngStream random(3);
  for (float& x : c.logits) x = static_cast<float>(random.Uniform() * 0.01);
  for (const float top_p : {1.0F, 0.5F, 0.9375F}) {
    c.params.top_p = top_p;
    for (c.params.seed = 0; c.params.seed < 5; ++c.params.seed) {
      EXPECT_EQ(Sample(c), NaiveSample(c));
    }
  }
}

}  // namespace
}  // namespace cleave

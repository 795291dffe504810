// A layer of experts gives one answer: integers that do not know which rank held which expert or
// column, in which order or batch tokens came, or in which width they were added.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "kernels/isa_fixture.h"
#include "kernels/moe_fixture.h"

namespace cleave {
namespace {

// n things dealt to ranks in contiguous, uneven shares, some of them empty.
std::vector<UnitRange> Deal(uint32_t n, uint32_t ranks, std::mt19937& rng) {
  std::vector<uint32_t> cuts{0, n};
  for (uint32_t i = 1; i < ranks; ++i) cuts.push_back(static_cast<uint32_t>(rng()) % (n + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<UnitRange> shares;
  for (uint32_t i = 0; i < ranks; ++i) shares.push_back({cuts[i], cuts[i + 1]});
  return shares;
}

enum class Split { kExperts, kColumns, kBoth };

// Whole experts; columns of every expert; or every unit of every expert to whom it may.
std::vector<MoeShare> Shares(const MoeLayer& layer, Split split, uint32_t ranks,
                             std::mt19937& rng) {
  const uint32_t experts = layer.shape().experts;
  const uint32_t units = layer.units();
  std::vector<MoeShare> shares(ranks, MoeShare(experts));
  const std::vector<UnitRange> dealt = Deal(split == Split::kExperts ? experts : units, ranks, rng);
  for (uint32_t e = 0; e < experts; ++e) {
    if (split == Split::kBoth) {
      for (uint32_t u = 0; u < units; ++u) shares[rng() % ranks][e].push_back({u, u + 1});
      continue;
    }
    for (uint32_t r = 0; r < ranks; ++r) {
      if (split == Split::kColumns && dealt[r].begin < dealt[r].end) shares[r][e] = {dealt[r]};
      if (split == Split::kExperts && e >= dealt[r].begin && e < dealt[r].end) {
        shares[r][e] = {{0, units}};
      }
    }
  }
  return shares;
}

struct Case {
  uint32_t ffn = 256;
  uint32_t top_k = 3;
  float outlier = 0;  // planted in the input of the down projections
};

// Adds up what ranks send and checks that what says it fits int32 does.
class Reducer {
 public:
  explicit Reducer(size_t size) : sum_(size) {}

  void Add(const MoeTotals& rank) {
    const size_t tokens = rank.bound.size();
    narrow_.resize(tokens);
    wide_.resize(tokens);
    const size_t width = sum_.size() / tokens;
    for (size_t t = 0; t < tokens; ++t) {
      const bool fits = rank.bound[t] < kNarrowBound;
      if (rank.bound[t] > 0) (fits ? narrow_ : wide_)[t] = 1;
      for (size_t i = t * width; i < (t + 1) * width; ++i) {
        const int64_t sent = fits ? static_cast<int32_t>(rank.totals[i]) : rank.totals[i];
        EXPECT_EQ(sent, rank.totals[i]);
        sum_[i] += sent;
      }
    }
  }
  // Tokens for which one rank sent int32 and another int64.
  [[nodiscard]] size_t mixed() const {
    size_t n = 0;
    for (size_t t = 0; t < narrow_.size(); ++t) n += narrow_[t] != 0 && wide_[t] != 0 ? 1 : 0;
    return n;
  }
  [[nodiscard]] const std::vector<int64_t>& sum() const { return sum_; }

 private:
  std::vector<int64_t> sum_;
  std::vector<uint8_t> narrow_;
  std::vector<uint8_t> wide_;
};

class Moe : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr uint32_t kTokens = 13;

  // One rank, token after token, in int64 by the scalar kernel, against everything else.
  static void Check(const Case& c) {
    const MoeShape shape{.dtype = GetParam(), .ffn = c.ffn, .top_k = c.top_k};
    if (shape.ffn % InfoOf(shape.dtype).block_elements != 0) return;
    const MoeLayer layer(shape, 7);
    const std::vector<float> x = MakeActivations(kTokens, shape.hidden, 5);
    MoeFront front = layer.Front(Isa::kScalar, x, layer.Plain(kTokens));
    Plant(c.outlier, &front);
    MoeOrder alone = layer.Plain(0);
    alone.batches.clear();
    for (uint32_t t = 0; t < kTokens; ++t) alone.batches.push_back({t});
    const MoeLayer::Rank all(layer, layer.Everything());
    const std::vector<int64_t> truth =
        all.Down(Isa::kScalar, front, alone, MoeWidth::kAllWide).totals;
    std::mt19937 rng(c.ffn + c.top_k);
    for (Isa isa : SupportedIsas()) {
      const MoeTotals one = all.Down(isa, front, layer.Plain(kTokens), MoeWidth::kAsItFits);
      EXPECT_EQ(one.totals, truth) << IsaName(isa);
      EXPECT_EQ(one.any_wide, c.outlier != 0) << IsaName(isa);
      EXPECT_EQ(all.Down(isa, front, layer.Shuffled(kTokens, rng), MoeWidth::kAllWide).totals,
                truth)
          << IsaName(isa);
    }
    CheckSplits(layer, front, truth, c.outlier != 0, rng);
  }

  static void CheckSplits(const MoeLayer& layer, const MoeFront& front,
                          const std::vector<int64_t>& truth, bool outliers, std::mt19937& rng) {
    const std::vector<Isa> isas = SupportedIsas();
    size_t mixed = 0;
    for (Split split : {Split::kExperts, Split::kColumns, Split::kBoth}) {
      for (uint32_t ranks = 2; ranks <= 9; ++ranks) {
        std::vector<Reducer> sums(isas.size(), Reducer(truth.size()));
        for (const MoeShare& share : Shares(layer, split, ranks, rng)) {
          const MoeLayer::Rank rank(layer, share);
          for (size_t i = 0; i < sums.size(); ++i) {
            sums[i].Add(
                rank.Down(isas[i], front, layer.Shuffled(kTokens, rng), MoeWidth::kAsItFits));
          }
        }
        for (size_t i = 0; i < sums.size(); ++i) {
          EXPECT_EQ(sums[i].sum(), truth)
              << IsaName(isas[i]) << " ranks " << ranks << " split " << int(split);
          mixed += sums[i].mixed();
        }
      }
    }
    EXPECT_EQ(mixed > 0, outliers);
  }

  static void Plant(float outlier, MoeFront* front) {
    if (outlier == 0) return;
    std::mt19937 rng(1);
    for (float& v : front->ffn) {
      if (rng() % 997 == 0) v = rng() % 2 == 0 ? outlier : -outlier;
    }
  }

  ScopedFpMode mode_;
};
INSTANTIATE_TEST_SUITE_P(Types, Moe, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& p) { return std::string(NameOf(p.param)); });

TEST_P(Moe, SplitsAndOrdersAdd) { Check({}); }

TEST_P(Moe, ShortLastUnitsAndEveryExpertChosenAdd) { Check({.ffn = 160, .top_k = 6}); }

TEST_P(Moe, OutliersTakeInt64OnSomeRanksAndStillAdd) { Check({.outlier = 1e5F}); }

TEST_P(Moe, FrontsAgreeInEveryBatchAndInstructionSet) {
  const MoeShape shape{.dtype = GetParam(), .rule = GateRule::kSoftmaxOfAll};
  const MoeLayer layer(shape, 3);
  const std::vector<float> x = MakeActivations(kTokens, shape.hidden, 6);
  const MoeFront truth = layer.Front(Isa::kScalar, x, layer.Plain(kTokens));
  std::mt19937 rng(2);
  for (Isa isa : SupportedIsas()) {
    const MoeFront got = layer.Front(isa, x, layer.Shuffled(kTokens, rng));
    EXPECT_EQ(got.chosen, truth.chosen) << IsaName(isa);
    EXPECT_EQ(got.shift, truth.shift) << IsaName(isa);
    EXPECT_TRUE(SameBits(got.gates, truth.gates)) << IsaName(isa);
    EXPECT_TRUE(SameBits(got.ffn, truth.ffn)) << IsaName(isa);
  }
}

TEST_P(Moe, AnExpertOfGateOneIsADenseProduct) {
  const MoeShape shape{.dtype = GetParam(), .experts = 1, .top_k = 1};
  const MoeLayer layer(shape, 4);
  const std::vector<float> x = MakeActivations(kTokens, shape.hidden, 8);
  const MoeFront front = layer.Front(Isa::kScalar, x, layer.Plain(kTokens));
  EXPECT_EQ(front.gates, std::vector<float>(kTokens, 1.0F));
  const UnitRange all{0, layer.units()};
  const PackedMatrix m =
      Pack(layer.down(0).view, RowPlan(shape.ffn, kFfnUnit, kFfnUnit, {&all, 1}));
  ActBuffer acts(2 * kTokens, static_cast<uint32_t>(m.plan().blocks.size()));
  PrepareDown(Isa::kScalar, shape.dtype, m.plan(), front.ffn, kTokens, &acts);
  const std::vector<uint8_t> wide(kTokens);
  std::vector<int64_t> dense(size_t{kTokens} * shape.hidden);
  MatmulRow(Isa::kScalar, m, acts, kTokens, front.shift.data(), wide.data(), 0, m.groups(),
            dense.data(), shape.hidden, DownTerms(shape.dtype));
  const MoeLayer::Rank rank(layer, layer.Everything());
  EXPECT_EQ(rank.Down(Isa::kScalar, front, layer.Plain(kTokens), MoeWidth::kAsItFits).totals,
            dense);
}

// Each expert fits int32 by its own bound and their sum does not: the bound that decides what goes
// on the wire is the sum over a rank's experts, and totals are int64 whatever the kernel adds in.
TEST_P(Moe, ExpertsThatFitAloneMayNotFitTogether) {
  const MoeShape shape{.dtype = GetParam(), .experts = 8, .top_k = 8};
  const MoeLayer layer(shape, 7);
  MoeFront front = layer.Front(Isa::kScalar, MakeActivations(1, shape.hidden, 5), layer.Plain(1));
  std::fill(front.gates.begin(), front.gates.end(), 1.0F);
  const MoeLayer::Rank all(layer, layer.Everything());
  // Each expert's input lies along its first output's weights, as long as its bound allows.
  for (uint32_t e = 0; e < shape.experts; ++e) {
    MoeShare share(shape.experts);
    share[e] = {{0, layer.units()}};
    const std::vector<float> weights = Dequantise(layer.down(e).view);
    const auto at =
        (std::find(front.chosen.begin(), front.chosen.end(), e) - front.chosen.begin()) *
        static_cast<ptrdiff_t>(shape.ffn);
    std::copy_n(weights.begin(), shape.ffn, front.ffn.begin() + at);
    const MoeTotals one =
        MoeLayer::Rank(layer, share).Down(Isa::kScalar, front, layer.Plain(1), MoeWidth::kAsItFits);
    const auto factor = static_cast<float>(0.99 * kNarrowBound / one.bound[0]);
    for (size_t i = 0; i < shape.ffn; ++i) front.ffn[static_cast<size_t>(at) + i] *= factor;
  }
  const MoeTotals truth = all.Down(Isa::kScalar, front, layer.Plain(1), MoeWidth::kAllWide);
  EXPECT_GT(truth.bound[0], 7.9 * kNarrowBound);
  EXPECT_GT(truth.totals[0], std::numeric_limits<int32_t>::max());
  for (Isa isa : SupportedIsas()) {
    const MoeTotals got = all.Down(isa, front, layer.Plain(1), MoeWidth::kAsItFits);
    EXPECT_FALSE(got.any_wide);
    EXPECT_EQ(got.totals, truth.totals) << IsaName(isa);
  }
}

TEST_P(Moe, NaNGatesAndTinyGatesAreTheSameEverywhere) {
  const MoeShape shape{.dtype = GetParam()};
  const MoeLayer layer(shape, 7);
  MoeFront front = layer.Front(Isa::kScalar, MakeActivations(4, shape.hidden, 5), layer.Plain(4));
  front.gates = {std::numeric_limits<float>::quiet_NaN(),
                 0.5F,
                 0.25F,
                 0.0F,
                 0.0F,
                 0.0F,
                 0x1p-130F,
                 0x1p-120F,
                 0x1p-30F,
                 -1.0F,
                 -0.5F,
                 1e9F};
  const MoeLayer::Rank all(layer, layer.Everything());
  const MoeTotals truth = all.Down(Isa::kScalar, front, layer.Plain(4), MoeWidth::kAsItFits);
  EXPECT_TRUE(std::isnan(truth.bound[0]));
  EXPECT_EQ(
      std::count(truth.totals.begin() + shape.hidden, truth.totals.begin() + 2 * shape.hidden, 0),
      shape.hidden);
  for (Isa isa : SupportedIsas()) {
    EXPECT_EQ(all.Down(isa, front, layer.Plain(4), MoeWidth::kAsItFits).totals, truth.totals)
        << IsaName(isa);
  }
}

// ---- against double ----

struct Errors {
  double squares = 0;
  double largest = 0;
  size_t count = 0;
  void Add(double e) {
    squares += e * e;
    largest = std::max(largest, std::fabs(e));
    ++count;
  }
  [[nodiscard]] double rms() const { return std::sqrt(squares / static_cast<double>(count)); }
};

double RmsOf(const float* x, size_t n) {
  double squares = 0;
  for (size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  return std::sqrt(squares / static_cast<double>(n));
}

// A row as the products read it, after its rounding to int8 terms or bf16.
std::vector<double> AsPrepared(DType dtype, const float* x, uint32_t n) {
  const KPlan plan = ColumnPlan(n);
  ActBuffer acts(2, static_cast<uint32_t>(plan.blocks.size()));
  PrepareDown(Isa::kScalar, dtype, plan, std::vector<float>(x, x + n), 1, &acts);
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i) {
    if (dtype == DType::kF32) out[i] = acts.f32()[i];
    if (dtype == DType::kBF16) out[i] = BFloat16ToFloat(acts.bf16()[i]);
    if (!IsQuantised(dtype)) continue;
    for (size_t term = 0; term < 2; ++term) {
      const size_t block = term * acts.max_blocks() + i / 32;
      out[i] += static_cast<double>(acts.q()[32 * block + i % 32]) * acts.scale()[block];
    }
  }
  return out;
}

// y [outputs] += gate · w·a, in double.
void AddProduct(const std::vector<float>& w, const std::vector<double>& a, double gate,
                std::vector<double>* y) {
  for (size_t o = 0; o < y->size(); ++o) {
    double sum = 0;
    for (size_t k = 0; k < a.size(); ++k) sum += static_cast<double>(w[o * a.size() + k]) * a[k];
    (*y)[o] += gate * sum;
  }
}

// What a layer's integers are worth, relative to the rms of the residual row.
struct Report {
  Errors sum;    // against double on the same rounded inputs: the sum alone
  Errors whole;  // against double on the inputs before their rounding
  Errors size;   // of the result itself

  void Add(const int64_t* totals, double quantum, const std::vector<double>& rounded,
           const std::vector<double>& exact, double rms) {
    for (size_t o = 0; o < exact.size(); ++o) {
      const double y = static_cast<double>(totals[o]) * quantum;
      sum.Add((y - rounded[o]) / rms);
      whole.Add((y - exact[o]) / rms);
      size.Add(exact[o] / rms);
    }
  }
  void Print(DType dtype, const char* what) const {
    std::printf("%-5s %-7s |y| %5.2f   sum: rms %.1e, max %.1e   with inputs: rms %.1e, max %.1e\n",
                std::string(NameOf(dtype)).c_str(), what, size.rms(), sum.rms(), sum.largest,
                whole.rms(), whole.largest);
  }
};

class MoeAccuracy : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr uint32_t kTokens = 12;
  const MoeShape shape_{.dtype = GetParam(), .experts = 16, .top_k = 8};
  const uint32_t joined_ = shape_.top_k * shape_.ffn;  // columns of a dense product as wide

  std::vector<int64_t> DenseTotals(const Weights& w, const MoeFront& front) const {
    const UnitRange all{0, joined_ / kFfnUnit};
    const PackedMatrix m = Pack(w.view, RowPlan(joined_, kFfnUnit, kFfnUnit, {&all, 1}));
    ActBuffer acts(2 * kTokens, joined_ / 32);
    PrepareDown(*ChooseIsa(), shape_.dtype, m.plan(), front.ffn, kTokens, &acts);
    std::vector<int64_t> totals(size_t{kTokens} * shape_.hidden);
    const std::vector<uint8_t> wide(kTokens, 1);
    MatmulRow(*ChooseIsa(), m, acts, kTokens, front.shift.data(), wide.data(), 0, m.groups(),
              totals.data(), shape_.hidden, DownTerms(shape_.dtype));
    return totals;
  }

  // Token t's results in double, of the experts and of the dense product over the same inputs.
  struct Doubles {
    std::vector<double> experts;
    std::vector<double> dense;
  };
  enum class Inputs { kRounded, kExact };
  Doubles InDouble(const MoeFront& front, size_t t, Inputs inputs,
                   const std::vector<std::vector<float>>& expert_w,
                   const std::vector<float>& dense_w) const {
    Doubles y{std::vector<double>(shape_.hidden), std::vector<double>(shape_.hidden)};
    std::vector<double> joined;
    for (size_t pair = t * shape_.top_k; pair < (t + 1) * shape_.top_k; ++pair) {
      const float* ffn = &front.ffn[pair * shape_.ffn];
      const std::vector<double> a = inputs == Inputs::kRounded
                                        ? AsPrepared(shape_.dtype, ffn, shape_.ffn)
                                        : std::vector<double>(ffn, ffn + shape_.ffn);
      AddProduct(expert_w[front.chosen[pair]], a, front.gates[pair], &y.experts);
      joined.insert(joined.end(), a.begin(), a.end());
    }
    AddProduct(dense_w, joined, 1.0, &y.dense);
    return y;
  }

  ScopedFpMode mode_;
};
INSTANTIATE_TEST_SUITE_P(Types, MoeAccuracy,
                         ::testing::Values(DType::kF32, DType::kBF16, DType::kQ41, DType::kQ80,
                                           DType::kQ4K),
                         [](const auto& p) { return std::string(NameOf(p.param)); });

// Of 8 experts of 256 columns each, and of one dense product over the same 2048 inputs. A group is
// rounded to a quantum of 2^-20 to 2^-19 of the row's rms: 32 groups make 1.6e-6 to 3.1e-6; two
// terms round twice as often.
TEST_P(MoeAccuracy, IsThatOfADenseProductAsWide) {
  const MoeLayer layer(shape_, 21);
  const std::vector<float> x = MakeActivations(kTokens, shape_.hidden, 22);
  const MoeOrder order = layer.Plain(kTokens);
  const MoeFront front = layer.Front(*ChooseIsa(), x, order);
  const MoeLayer::Rank rank(layer, layer.Everything());
  const std::vector<int64_t> totals =
      rank.Down(*ChooseIsa(), front, order, MoeWidth::kAsItFits).totals;
  const Weights dense = MakeExpertWeights(shape_.dtype, shape_.hidden, joined_, 23);
  const std::vector<int64_t> dense_totals = DenseTotals(dense, front);
  const std::vector<float> dense_w = Dequantise(dense.view);
  std::vector<std::vector<float>> expert_w;
  for (uint32_t e = 0; e < shape_.experts; ++e) expert_w.push_back(Dequantise(layer.down(e).view));
  Report experts;
  Report whole;
  for (size_t t = 0; t < kTokens; ++t) {
    const size_t at = t * shape_.hidden;
    const double rms = RmsOf(&x[at], shape_.hidden);
    const double quantum = std::ldexp(1.0, -front.shift[t]);
    const Doubles rounded = InDouble(front, t, Inputs::kRounded, expert_w, dense_w);
    const Doubles exact = InDouble(front, t, Inputs::kExact, expert_w, dense_w);
    experts.Add(&totals[at], quantum, rounded.experts, exact.experts, rms);
    whole.Add(&dense_totals[at], quantum, rounded.dense, exact.dense, rms);
  }
  experts.Print(shape_.dtype, "experts");
  whole.Print(shape_.dtype, "dense");
  EXPECT_LT(experts.sum.rms(), 5e-6);
  EXPECT_LT(experts.sum.largest, 3e-5);
  EXPECT_LT(experts.sum.rms(), 1.2 * whole.sum.rms());
}

}  // namespace
}  // namespace cleave

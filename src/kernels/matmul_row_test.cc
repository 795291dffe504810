// Row-parallel products: integers that do not know how many ranks made them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/isa_fixture.h"
#include "kernels/matmul.h"
#include "kernels/weight_fixture.h"

namespace cleave {
namespace {

struct Case {
  uint32_t k;
  uint32_t unit;
  uint32_t group;
  uint32_t rows;
  int32_t shift;
  float outlier;
};

using Totals = std::vector<int64_t>;  // [rows][outputs]

// This rank's columns of x, unit after unit.
std::vector<float> SliceOf(const std::vector<float>& x, const Case& c,
                           const std::vector<UnitRange>& held) {
  std::vector<float> out;
  for (uint32_t r = 0; r < c.rows; ++r) {
    for (const UnitRange& range : held) {
      const uint32_t begin = range.begin * c.unit;
      const uint32_t end = std::min(range.end * c.unit, c.k);
      out.insert(out.end(), x.begin() + size_t{r} * c.k + begin, x.begin() + size_t{r} * c.k + end);
    }
  }
  return out;
}

enum class Width { kAsTheyFit, kAllWide };

// What one rank adds to the totals; counts the rows that needed int64.
void AddRank(Isa isa, const Weights& w, const Case& c, const std::vector<float>& x,
             const std::vector<UnitRange>& held, Width width, Totals* sum, uint32_t* wide_rows) {
  const PackedMatrix m = Pack(w.view, RowPlan(c.k, c.unit, c.group, held));
  const ActKind kind = ActKindOf(m.dtype());
  const std::vector<float> slice = SliceOf(x, c, held);
  ActBuffer acts(c.rows, static_cast<uint32_t>(m.plan().blocks.size()));
  PrepareActs(isa, kind, m.plan(), slice.data(), m.plan().row_elements, 0, c.rows, &acts);
  std::vector<int32_t> shift(c.rows);
  std::vector<uint8_t> wide(c.rows);
  for (uint32_t r = 0; r < c.rows; ++r) {
    shift[r] = c.shift + static_cast<int32_t>(r % 3);
    wide[r] = width == Width::kAllWide ||
              !RowFitsInt32(kind, acts, m.plan(), r, m.max_row_norm(), shift[r]);
    *wide_rows += wide[r];
  }
  Totals totals(size_t{c.rows} * m.rows(), -5);
  const uint32_t cut = m.groups() / 2;
  MatmulRow(isa, m, acts, c.rows, shift.data(), wide.data(), cut, m.groups(), totals.data(),
            m.rows());
  MatmulRow(isa, m, acts, c.rows, shift.data(), wide.data(), 0, cut, totals.data(), m.rows());
  for (size_t i = 0; i < totals.size(); ++i) (*sum)[i] += totals[i];
}

// Units dealt to ranks in contiguous, uneven shares.
std::vector<std::vector<UnitRange>> Deal(uint32_t units, uint32_t ranks, std::mt19937& rng) {
  std::vector<uint32_t> cuts{0, units};
  for (uint32_t i = 1; i < ranks; ++i) cuts.push_back(static_cast<uint32_t>(rng()) % (units + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::vector<UnitRange>> held(ranks);
  for (uint32_t i = 0; i < ranks; ++i) {
    if (cuts[i] < cuts[i + 1]) held[i].push_back({cuts[i], cuts[i + 1]});
  }
  return held;
}

class RowParallel : public ::testing::TestWithParam<DType> {
 protected:
  // One rank in int64 by the scalar kernel, against every instruction set, width and split.
  void Check(const Case& c, bool expect_wide) {
    if (c.k % InfoOf(GetParam()).block_elements != 0) return;
    const uint32_t outputs = 35;
    const Weights w = MakeWeights(GetParam(), outputs, c.k, c.k + c.unit);
    const std::vector<float> x = MakeActivations(c.rows, c.k, c.unit, c.outlier);
    const uint32_t units = (c.k + c.unit - 1) / c.unit;
    const size_t size = size_t{c.rows} * outputs;
    uint32_t ignored = 0;
    Totals truth(size);
    AddRank(Isa::kScalar, w, c, x, {{0, units}}, Width::kAllWide, &truth, &ignored);
    std::mt19937 rng(c.k);
    for (Isa isa : SupportedIsas()) {
      uint32_t wide_rows = 0;
      Totals one(size);
      AddRank(isa, w, c, x, {{0, units}}, Width::kAsTheyFit, &one, &wide_rows);
      EXPECT_EQ(one, truth) << IsaName(isa);
      EXPECT_EQ(wide_rows > 0, expect_wide) << IsaName(isa);
      Totals wide(size);
      AddRank(isa, w, c, x, {{0, units}}, Width::kAllWide, &wide, &ignored);
      EXPECT_EQ(wide, truth) << IsaName(isa);
      for (uint32_t ranks = 2; ranks <= 9; ++ranks) {
        Totals sum(size);
        for (const auto& held : Deal(units, ranks, rng)) {
          AddRank(isa, w, c, x, held, Width::kAsTheyFit, &sum, &ignored);
        }
        EXPECT_EQ(sum, truth) << IsaName(isa) << " ranks " << ranks;
      }
    }
  }

  ScopedFpMode mode_;
};
INSTANTIATE_TEST_SUITE_P(Matmul, RowParallel, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& p) { return std::string(NameOf(p.param)); });

TEST_P(RowParallel, SplitsOfFfnColumnsAdd) {
  Check({.k = 1536, .unit = 64, .group = 64, .rows = 37, .shift = 17, .outlier = 0}, false);
}

TEST_P(RowParallel, SplitsOfHeadsOf64Add) {
  Check({.k = 576, .unit = 64, .group = 64, .rows = 25, .shift = 18, .outlier = 0}, false);
  Check({.k = 768, .unit = 64, .group = 128, .rows = 2, .shift = 18, .outlier = 0}, false);
}

TEST_P(RowParallel, SplitsOfHeadsOf80And96Add) {
  Check({.k = 800, .unit = 80, .group = 64, .rows = 3, .shift = 16, .outlier = 0}, false);
  Check({.k = 768, .unit = 96, .group = 64, .rows = 29, .shift = 16, .outlier = 0}, false);
  Check({.k = 1280, .unit = 80, .group = 64, .rows = 1, .shift = 16, .outlier = 0}, false);
}

TEST_P(RowParallel, GroupsOf128AndTinyUnitsAdd) {
  Check({.k = 1280, .unit = 256, .group = 128, .rows = 20, .shift = 12, .outlier = 0}, false);
  Check({.k = 96, .unit = 16, .group = 64, .rows = 4, .shift = 12, .outlier = 0}, false);
  Check({.k = 256, .unit = 16, .group = 64, .rows = 4, .shift = 12, .outlier = 0}, false);
}

TEST_P(RowParallel, OutliersTakeInt64AndStillAdd) {
  Check({.k = 1536, .unit = 64, .group = 64, .rows = 17, .shift = 20, .outlier = 1e5F}, true);
}

TEST_P(RowParallel, AbsoluteQuantaOfPostNormFamiliesAdd) {
  Check({.k = 768, .unit = 256, .group = 128, .rows = 3, .shift = 36, .outlier = 0}, true);
}

TEST_P(RowParallel, TotalsAreTheProductInQuanta) {
  const Case c{.k = 768, .unit = 64, .group = 64, .rows = 3, .shift = 18, .outlier = 0};
  const Weights w = MakeWeights(GetParam(), 35, c.k, 1);
  std::vector<float> x(size_t{c.rows} * c.k);
  std::mt19937 rng(3);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = i % 32 == 0 ? 127.0F : static_cast<float>(static_cast<int>(rng() % 255) - 127);
    x[i] /= 64.0F;
  }
  Totals totals(size_t{c.rows} * 35);
  uint32_t wide = 0;
  AddRank(*ChooseIsa(), w, c, x, {{0, 12}}, Width::kAsTheyFit, &totals, &wide);
  const std::vector<float> dense = Dequantise(w.view);
  for (size_t r = 0; r < c.rows; ++r) {
    for (size_t o = 0; o < 35; ++o) {
      double sum = 0;
      double magnitude = 0;
      for (size_t k = 0; k < c.k; ++k) {
        sum += static_cast<double>(dense[o * c.k + k]) * x[r * c.k + k];
        magnitude += std::fabs(static_cast<double>(dense[o * c.k + k]) * x[r * c.k + k]);
      }
      const double y =
          std::ldexp(static_cast<double>(totals[r * 35 + o]), -(c.shift + static_cast<int>(r % 3)));
      // Half a quantum a group, and the chain.
      const double quantum = std::ldexp(12 * 0.5, -c.shift);
      EXPECT_NEAR(y, sum, quantum + 256 * magnitude * 0x1p-24) << r << " " << o;
    }
  }
}

TEST(RowFitsInt32Test, FollowsTheNorms) {
  ScopedFpMode mode;
  const UnitRange all{0, 2};
  const KPlan plan = RowPlan(128, 64, 64, {&all, 1});
  std::vector<float> x(3 * 128, 0.0F);
  x[0] = 127.0F;
  x[128] = std::numeric_limits<float>::quiet_NaN();
  x[256] = std::numeric_limits<float>::infinity();
  for (ActKind kind : {ActKind::kInt8, ActKind::kBF16, ActKind::kF32}) {
    ActBuffer acts(3, 4);
    PrepareActs(Isa::kScalar, kind, plan, x.data(), 128, 0, 3, &acts);
    EXPECT_TRUE(RowFitsInt32(kind, acts, plan, 0, 1.0F, 23));   // 127·2^23 < 2^30
    EXPECT_FALSE(RowFitsInt32(kind, acts, plan, 0, 1.0F, 24));  // 127·2^24 > 2^30
    EXPECT_FALSE(RowFitsInt32(kind, acts, plan, 0, 2.0F, 23));
    EXPECT_TRUE(RowFitsInt32(kind, acts, plan, 0, 1.0F, -60));
    EXPECT_FALSE(RowFitsInt32(kind, acts, plan, 1, 1.0F, 0));
    EXPECT_FALSE(RowFitsInt32(kind, acts, plan, 2, 1.0F, 0));
    EXPECT_FALSE(RowFitsInt32(kind, acts, plan, 0, std::numeric_limits<float>::infinity(), 0));
  }
}

// What does not fit any integer is the same on every instruction set: the least int64, wrapping.
TEST(RowOverflowTest, InstructionSetsAgreeOnNaNAndHugeSums) {
  ScopedFpMode mode;
  for (DType dtype : kAllDTypes) {
    const Weights w = MakeWeights(dtype, 20, 256, 9);
    const UnitRange all{0, 4};
    const PackedMatrix m = Pack(w.view, RowPlan(256, 64, 64, {&all, 1}));
    std::vector<float> x = MakeActivations(3, 256, 10);
    x[5] = std::numeric_limits<float>::quiet_NaN();
    x[256 + 100] = std::numeric_limits<float>::infinity();
    x[512 + 200] = 1e20F;
    const std::vector<int32_t> shift{20, 20, 60};
    for (uint8_t width : {uint8_t{0}, uint8_t{1}}) {
      const std::vector<uint8_t> wide(3, width);
      Totals truth;
      for (Isa isa : SupportedIsas()) {
        ActBuffer acts(3, 8);
        PrepareActs(isa, ActKindOf(dtype), m.plan(), x.data(), 256, 0, 3, &acts);
        Totals totals(60);
        MatmulRow(isa, m, acts, 3, shift.data(), wide.data(), 0, m.groups(), totals.data(), 20);
        if (isa == Isa::kScalar) truth = totals;
        EXPECT_EQ(totals, truth) << NameOf(dtype) << " " << IsaName(isa);
      }
    }
  }
}

}  // namespace
}  // namespace cleave

// Two-term activations: the same bits on every instruction set and in every batch, and about 254
// times less rounding than one term.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/isa_fixture.h"
#include "kernels/matmul.h"
#include "kernels/weight_fixture.h"

namespace cleave {
namespace {

std::vector<float> Multiply(Isa isa, const PackedMatrix& w, const std::vector<float>& x,
                            uint32_t rows, ActTerms terms) {
  const uint32_t cols = w.plan().row_elements;
  ActBuffer acts(2 * rows, static_cast<uint32_t>(w.plan().blocks.size()));
  if (terms == ActTerms::kOne) {
    PrepareActs(isa, ActKind::kInt8, w.plan(), x.data(), cols, 0, rows, &acts);
  } else {
    PrepareTwoTerms(isa, w.plan(), x.data(), cols, 0, rows, &acts);
  }
  std::vector<float> y(size_t{rows} * w.rows(), -1.0F);
  MatmulColumn(isa, w, acts, rows, 0, w.groups(), y.data(), w.rows(), terms);
  return y;
}

class TwoTerms : public ::testing::TestWithParam<DType> {
 protected:
  ScopedFpMode mode_;
};

TEST_P(TwoTerms, AgreeOnEveryInstructionSetAndInEveryBatch) {
  constexpr uint32_t kCols = 512;
  const Weights w = MakeWeights(GetParam(), 50, kCols, 3);
  const PackedMatrix m = Pack(w.view, ColumnPlan(kCols));
  for (uint32_t rows : {1U, 2U, 3U, 5U, 7U, 13U, 40U}) {
    const std::vector<float> x = MakeActivations(rows, kCols, rows);
    const std::vector<float> truth = Multiply(Isa::kScalar, m, x, rows, ActTerms::kTwo);
    const std::vector<float> first = Multiply(Isa::kScalar, m, x, rows, ActTerms::kOne);
    for (Isa isa : SupportedIsas()) {
      EXPECT_EQ(Multiply(isa, m, x, rows, ActTerms::kTwo), truth) << IsaName(isa);
      EXPECT_EQ(Multiply(isa, m, x, rows, ActTerms::kFirstOfTwo), first) << IsaName(isa);
    }
    const std::vector<float> last(x.end() - kCols, x.end());
    const std::vector<float> alone = Multiply(Isa::kScalar, m, last, 1, ActTerms::kTwo);
    EXPECT_EQ(std::memcmp(alone.data(), &truth[size_t{rows - 1} * m.rows()],
                          alone.size() * sizeof(float)),
              0);
  }
}

TEST_P(TwoTerms, RoundLess) {
  constexpr uint32_t kCols = 512;
  const Weights w = MakeWeights(GetParam(), 50, kCols, 3);
  const PackedMatrix m = Pack(w.view, ColumnPlan(kCols));
  const std::vector<float> x = MakeActivations(1, kCols, 5);
  const std::vector<float> one = Multiply(Isa::kScalar, m, x, 1, ActTerms::kOne);
  const std::vector<float> two = Multiply(Isa::kScalar, m, x, 1, ActTerms::kTwo);
  double error_one = 0;
  double error_two = 0;
  std::vector<float> row(kCols);
  for (uint32_t output = 0; output < m.rows(); ++output) {
    m.UnpackRow(output, row.data());
    double exact = 0;
    for (uint32_t k = 0; k < kCols; ++k) exact += static_cast<double>(row[k]) * x[k];
    error_one += std::abs(one[output] - exact);
    error_two += std::abs(two[output] - exact);
  }
  EXPECT_LT(error_two, error_one / 50);
}

TEST_P(TwoTerms, AddAsIntegersInRowParallelProducts) {
  constexpr uint32_t kCols = 512;
  constexpr uint32_t kRows = 5;
  const Weights w = MakeWeights(GetParam(), 50, kCols, 3);
  const UnitRange all{0, kCols / 64};
  const PackedMatrix m = Pack(w.view, RowPlan(kCols, 64, 64, {&all, 1}));
  const std::vector<float> x = MakeActivations(kRows, kCols, 9);
  const std::vector<int32_t> shift{18, 20, 17, 20, 19};
  const std::vector<uint8_t> wide{0, 1, 0, 0, 1};
  std::vector<int64_t> truth;
  for (Isa isa : SupportedIsas()) {
    ActBuffer acts(2 * kRows, static_cast<uint32_t>(m.plan().blocks.size()));
    PrepareTwoTerms(isa, m.plan(), x.data(), kCols, 0, kRows, &acts);
    std::vector<int64_t> totals(size_t{kRows} * m.rows());
    MatmulRow(isa, m, acts, kRows, shift.data(), wide.data(), 0, m.groups(), totals.data(),
              m.rows(), ActTerms::kTwo);
    if (truth.empty()) truth = totals;
    EXPECT_EQ(totals, truth) << IsaName(isa);
  }
  const std::vector<float> plain =
      Multiply(Isa::kScalar, Pack(w.view, ColumnPlan(kCols)), x, kRows, ActTerms::kTwo);
  for (size_t i = 0; i < truth.size(); ++i) {
    const double quantum = std::ldexp(1.0, -shift[i / m.rows()]);
    EXPECT_NEAR(static_cast<double>(truth[i]) * quantum, plain[i], 64 * quantum + 1e-3);
  }
}

std::string TypeName(const ::testing::TestParamInfo<DType>& info) {
  return std::string(NameOf(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, TwoTerms,
                         ::testing::Values(DType::kQ40, DType::kQ41, DType::kQ50, DType::kQ51,
                                           DType::kQ80, DType::kQ4K, DType::kQ5K, DType::kQ6K),
                         TypeName);

}  // namespace
}  // namespace cleave

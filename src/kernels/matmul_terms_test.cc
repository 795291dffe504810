// Two-term activations: the same bits on every instruction set and in every batch, and about 254
// times less rounding than one term.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/matmul.h"
#include "kernels/weight_fixture.h"

namespace cleave {
namespace {

constexpr Isa kIsas[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};

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
    for (Isa isa : kIsas) {
      if (!CpuSupports(isa)) continue;
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

std::string TypeName(const ::testing::TestParamInfo<DType>& info) {
  return std::string(NameOf(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, TwoTerms,
                         ::testing::Values(DType::kQ40, DType::kQ41, DType::kQ50, DType::kQ51,
                                           DType::kQ80, DType::kQ4K, DType::kQ5K, DType::kQ6K),
                         TypeName);

}  // namespace
}  // namespace cleave

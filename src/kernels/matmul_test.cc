#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <tuple>

#include "kernels/isa_fixture.h"
#include "kernels/matmul_job.h"
#include "kernels/weight_fixture.h"

namespace cleave {
namespace {

uint32_t BlocksOf(const KPlan& plan) { return static_cast<uint32_t>(plan.blocks.size()); }

std::vector<float> Multiply(Isa isa, const PackedMatrix& w, const std::vector<float>& x,
                            uint32_t rows) {
  const uint32_t cols = w.plan().row_elements;
  ActBuffer acts(rows, BlocksOf(w.plan()));
  PrepareActs(isa, ActKindOf(w.dtype()), w.plan(), x.data(), cols, 0, rows, &acts);
  std::vector<float> y(size_t{rows} * w.rows(), -1.0F);
  MatmulColumn(isa, w, acts, rows, 0, w.groups(), y.data(), w.rows());
  return y;
}

using Shape = std::tuple<DType, uint32_t>;  // type, K

class EveryShape : public ::testing::TestWithParam<Shape> {
 protected:
  ScopedFpMode mode_;
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (DType dtype : kAllDTypes) {
    const uint32_t step = InfoOf(dtype).block_elements;
    for (uint32_t k : {1U, 7U, 32U, 33U, 64U, 75U, 96U, 256U, 576U, 1536U, 2560U}) {
      if (k % step == 0) shapes.emplace_back(dtype, k);
    }
  }
  return shapes;
}

std::string ShapeName(const ::testing::TestParamInfo<Shape>& info) {
  return std::string(NameOf(std::get<0>(info.param))) + "_K" +
         std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Matmul, EveryShape, ::testing::ValuesIn(Shapes()), ShapeName);

TEST_P(EveryShape, InstructionSetsAgreeToTheBit) {
  const auto [dtype, cols] = GetParam();
  for (uint32_t outputs : {16U, 5U, 50U}) {
    const Weights w = MakeWeights(dtype, outputs, cols, cols + outputs);
    const PackedMatrix m = Pack(w.view, ColumnPlan(cols));
    for (uint32_t rows = 1; rows <= 33; rows += rows < 17 ? 1 : 16) {
      const std::vector<float> x = MakeActivations(rows, cols, rows);
      const std::vector<float> truth = Multiply(Isa::kScalar, m, x, rows);
      for (Isa isa : SupportedIsas()) {
        EXPECT_TRUE(SameBits(Multiply(isa, m, x, rows), truth))
            << IsaName(isa) << " rows " << rows << " outputs " << outputs;
      }
    }
  }
}

// Error of a chain of n fma: at most n·2^-24 of the sum of magnitudes, plus what rounding the
// activations loses (int8: half a step of amax/127; bf16: 2^-8 of each).
TEST_P(EveryShape, AgreesWithTheDoubleOracle) {
  const auto [dtype, cols] = GetParam();
  const uint32_t outputs = 35;
  const uint32_t rows = 5;
  const Weights w = MakeWeights(dtype, outputs, cols, 11);
  const std::vector<float> dense = Dequantise(w.view);
  const std::vector<float> x = MakeActivations(rows, cols, 12);
  const std::vector<float> y = Multiply(*ChooseIsa(), Pack(w.view, ColumnPlan(cols)), x, rows);
  const ActKind kind = ActKindOf(dtype);
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t o = 0; o < outputs; ++o) {
      double sum = 0;
      double magnitude = 0;
      double lost = 0;
      double amax = 0;
      for (uint32_t k = 0; k < cols; ++k) {
        if (k % 32 == 0) amax = 0;
        for (uint32_t i = k; k % 32 == 0 && i < std::min(k + 32, cols); ++i) {
          amax = std::max(amax, std::fabs(static_cast<double>(x[r * cols + i])));
        }
        const double weight = dense[size_t{o} * cols + k];
        const double a = x[size_t{r} * cols + k];
        sum += weight * a;
        magnitude += std::fabs(weight * a);
        if (kind == ActKind::kInt8) lost += std::fabs(weight) * amax / 127 * 0.5001;
        if (kind == ActKind::kBF16) lost += std::fabs(weight * a) * 0x1p-8;
      }
      // Codes and minimums of a format with a minimum are each up to 16 times the value.
      const double chain = 32 * magnitude * (cols + 8) * 0x1p-24;
      EXPECT_NEAR(y[r * outputs + o], sum, lost + chain + 1e-30) << r << " " << o;
    }
  }
}

// With activations that int8 holds exactly the oracle is tight: what is left is the chain's error.
TEST_P(EveryShape, ExactActivationsLeaveOnlyRounding) {
  const auto [dtype, cols] = GetParam();
  const Weights w = MakeWeights(dtype, 33, cols, 21);
  const std::vector<float> dense = Dequantise(w.view);
  std::vector<float> x(cols);
  std::mt19937 rng(5);
  for (uint32_t k = 0; k < cols; ++k) {
    x[k] = k % 32 == 0 ? 127.0F : static_cast<float>(static_cast<int>(rng() % 255) - 127);
  }
  const std::vector<float> y = Multiply(*ChooseIsa(), Pack(w.view, ColumnPlan(cols)), x, 1);
  for (uint32_t o = 0; o < 33; ++o) {
    double sum = 0;
    double magnitude = 0;
    for (uint32_t k = 0; k < cols; ++k) {
      sum += static_cast<double>(dense[size_t{o} * cols + k]) * x[k];
      magnitude += std::fabs(static_cast<double>(dense[size_t{o} * cols + k]) * x[k]);
    }
    EXPECT_NEAR(y[o], sum, 16 * magnitude * 0x1p-24 * std::sqrt(cols + 64.0)) << o;
  }
}

TEST_P(EveryShape, RowsDoNotKnowTheirBatch) {
  const auto [dtype, cols] = GetParam();
  const uint32_t rows = 33;
  const Weights w = MakeWeights(dtype, 20, cols, 31);
  const PackedMatrix m = Pack(w.view, ColumnPlan(cols));
  const std::vector<float> x = MakeActivations(rows, cols, 32);
  const Isa isa = *ChooseIsa();
  const std::vector<float> batch = Multiply(isa, m, x, rows);
  for (uint32_t r = 0; r < rows; ++r) {
    const std::vector<float> row(x.begin() + r * cols, x.begin() + (r + 1) * cols);
    const std::vector<float> alone = Multiply(isa, m, row, 1);
    EXPECT_TRUE(SameBits(alone, std::span(batch).subspan(size_t{r} * 20, 20))) << r;
  }
}

class EveryIsa : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {}
  ScopedFpMode mode_;
};
INSTANTIATE_TEST_SUITE_P(Matmul, EveryIsa, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& p) { return std::string(IsaName(p.param)); });

TEST_P(EveryIsa, NoColumnsMakeZeros) {
  const Weights w = MakeWeights(DType::kQ80, 40, 0, 43);
  const PackedMatrix m = Pack(w.view, ColumnPlan(0));
  for (const uint32_t rows : {1U, 20U}) {
    const std::vector<float> y = Multiply(GetParam(), m, std::vector<float>(), rows);
    EXPECT_EQ(y, std::vector<float>(size_t{rows} * 40)) << rows;
  }
}

TEST_P(EveryIsa, GroupRangesWriteTheirOutputsOnly) {
  const uint32_t cols = 576;
  for (DType dtype : kAllDTypes) {
    if (cols % InfoOf(dtype).block_elements != 0) continue;
    const Weights w = MakeWeights(dtype, 75, cols, 41);
    const PackedMatrix m = Pack(w.view, ColumnPlan(cols));
    const std::vector<float> x = MakeActivations(9, cols, 42);
    const std::vector<float> whole = Multiply(GetParam(), m, x, 9);
    ActBuffer acts(9, BlocksOf(m.plan()));
    PrepareActs(GetParam(), ActKindOf(dtype), m.plan(), x.data(), cols, 0, 4, &acts);
    PrepareActs(GetParam(), ActKindOf(dtype), m.plan(), x.data(), cols, 4, 9, &acts);
    const size_t stride = 80;
    std::vector<float> y(9 * stride, 77.0F);
    MatmulColumn(GetParam(), m, acts, 9, 3, 5, y.data(), stride);
    MatmulColumn(GetParam(), m, acts, 9, 0, 2, y.data(), stride);
    for (size_t r = 0; r < 9; ++r) {
      for (size_t o = 0; o < stride; ++o) {
        const bool written = o < 32 || (o >= 48 && o < 75);
        EXPECT_EQ(y[r * stride + o], written ? whole[r * 75 + o] : 77.0F) << NameOf(dtype);
      }
    }
  }
}

TEST_P(EveryIsa, PreparedInt8FollowsTheRule) {
  std::vector<float> x(172, 0.0F);
  for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i) - 16.0F;
  x[33] = 0x1p-101F;  // block 1: too small to count
  x[64] = std::numeric_limits<float>::quiet_NaN();
  x[96] = -std::numeric_limits<float>::infinity();
  x[128] = 0x1p-100F;                                                // block 4: just large enough
  for (int i = 160; i < 172; ++i) x[i] = i == 165 ? -127.0F : 2.5F;  // ties to even: 2
  ActBuffer acts(1, 6);
  PrepareActs(GetParam(), ActKind::kInt8, ColumnPlan(172), x.data(), 172, 0, 1, &acts);
  const float d = 16.0F / 127.0F;
  EXPECT_EQ(acts.scale()[0], d);
  int sum = 0;
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(acts.q()[i], std::lrint(x[i] * (1.0F / d))) << i;
    sum += acts.q()[i];
    EXPECT_TRUE(i != 15 || acts.half_sum()[0] == sum);
  }
  EXPECT_EQ(acts.q()[0], -127);
  EXPECT_EQ(acts.sum()[0], sum);
  EXPECT_EQ(acts.scale()[1], 0.0F);
  EXPECT_TRUE(std::isnan(acts.scale()[2]) && std::isnan(acts.scale()[3]));
  for (int i = 32; i < 128; ++i) EXPECT_EQ(acts.q()[i], 0);
  for (int b = 1; b < 4; ++b) EXPECT_TRUE(acts.sum()[b] == 0 && acts.half_sum()[b] == 0);
  EXPECT_EQ(acts.q()[128], 127);
  EXPECT_EQ(acts.scale()[5], 1.0F);
  EXPECT_EQ(acts.sum()[5], 11 * 2 - 127);
  for (int i = 172; i < 192; ++i) EXPECT_EQ(acts.q()[i], 0);
}

// Of the longest rows some instruction sets leave the work to others.
TEST_P(EveryIsa, LongRowsAreTheScalarOnes) {
  for (DType dtype : {DType::kQ41, DType::kQ80, DType::kQ6K}) {
    for (uint32_t cols : {14336U, 14592U}) {
      const Weights w = MakeWeights(dtype, 33, cols, 81);
      const PackedMatrix m = Pack(w.view, ColumnPlan(cols));
      const std::vector<float> x = MakeActivations(18, cols, 82);
      EXPECT_EQ(Multiply(GetParam(), m, x, 18), Multiply(Isa::kScalar, m, x, 18)) << cols;
    }
  }
}

// Instruction sets take many blocks at once, and those that are left one by one.
TEST_P(EveryIsa, PreparedInt8IsTheScalarOneForEveryNumberOfBlocks) {
  constexpr uint32_t kMost = 37;
  for (uint32_t count = 1; count <= kMost; ++count) {
    for (uint32_t odd = 0; odd <= 4; ++odd) {  // 0: all are plain; else what one of them holds
      std::vector<float> x = MakeActivations(1, 32 * count, 70 + count);
      const float special[] = {0.0F, 0x1p-102F, -std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity(), 0x1p-100F};
      const size_t at = size_t{32} * (count * 7 / 11);
      if (odd > 0) std::fill_n(x.begin() + static_cast<ptrdiff_t>(at), 32, special[odd]);
      const KPlan plan = ColumnPlan(32 * count);
      ActBuffer own(1, count);
      ActBuffer truth(1, count);
      PrepareActs(GetParam(), ActKind::kInt8, plan, x.data(), x.size(), 0, 1, &own);
      PrepareActs(Isa::kScalar, ActKind::kInt8, plan, x.data(), x.size(), 0, 1, &truth);
      EXPECT_EQ(0, std::memcmp(own.q(), truth.q(), size_t{32} * count)) << count << " " << odd;
      EXPECT_EQ(0, std::memcmp(own.scale(), truth.scale(), 4 * count)) << count << " " << odd;
      EXPECT_EQ(0, std::memcmp(own.sum(), truth.sum(), 4 * count)) << count << " " << odd;
      EXPECT_EQ(0, std::memcmp(own.half_sum(), truth.half_sum(), 4 * count)) << count;
    }
  }
}

TEST_P(EveryIsa, BlocksThatAreNotFiniteMakeTheirOutputsNaN) {
  for (DType dtype : {DType::kQ41, DType::kQ80, DType::kQ6K, DType::kBF16, DType::kF32}) {
    const Weights w = MakeWeights(dtype, 16, 256, 51);
    const PackedMatrix m = Pack(w.view, ColumnPlan(256));
    std::vector<float> x = MakeActivations(2, 256, 52);
    x[256 + 70] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> y = Multiply(GetParam(), m, x, 2);
    for (size_t o = 0; o < 16; ++o) {
      EXPECT_TRUE(std::isfinite(y[o])) << NameOf(dtype);
      EXPECT_TRUE(std::isnan(y[16 + o])) << NameOf(dtype);
    }
  }
}

// Only one of the two is chosen on a processor; both must be right, also where sums underflow.
TEST(Bf16DotTest, InstructionAndFmaAgreeNearUnderflow) {
  if (!CpuHasBf16Dot()) GTEST_SKIP() << "no vdpbf16ps on this processor";
  ScopedFpMode mode;
  const uint32_t cols = 320;
  for (float scale : {1.0F, 0x1p-60F, 0x1p-66F}) {
    const Weights w = MakeWeights(DType::kBF16, 48, cols, 61, scale);
    const PackedMatrix m = Pack(w.view, ColumnPlan(cols));
    std::vector<float> x = MakeActivations(7, cols, 62);
    for (float& v : x) v *= scale;
    ActBuffer acts(7, BlocksOf(m.plan()));
    PrepareActs(Isa::kAvx512, ActKind::kBF16, m.plan(), x.data(), cols, 0, 7, &acts);
    std::vector<float> y[3];
    MatmulJob job;
    job.dtype = DType::kBF16;
    job.records = m.group_data(0);
    job.blocks = BlocksOf(m.plan());
    job.outputs = 48;
    job.group_end = 3;
    job.rows = 7;
    job.act_stride = acts.max_blocks();
    job.acts = acts.bf16();
    job.y_stride = 48;
    void (*const kernels[])(const MatmulJob&) = {MatmulScalar, MatmulAvx512, MatmulAvx512Bf16};
    for (size_t i = 0; i < 3; ++i) {
      y[i].assign(7 * 48, -1.0F);
      job.y = y[i].data();
      kernels[i](job);
    }
    EXPECT_TRUE(SameBits(y[0], y[1])) << scale;
    EXPECT_TRUE(SameBits(y[0], y[2])) << scale;
  }
}

TEST_P(EveryIsa, Bf16RoundsToNearestEven) {
  const KPlan plan = ColumnPlan(32);
  std::vector<float> x(32, 0.0F);
  x[0] = 1.0F + 0x1p-8F;    // a tie: down to even
  x[1] = 1.0F + 0x1.8p-7F;  // a tie: up to even
  x[2] = std::bit_cast<float>(0x7F800001U);
  x[3] = -std::numeric_limits<float>::infinity();
  x[4] = std::numeric_limits<float>::max();
  ActBuffer acts(1, 1);
  PrepareActs(GetParam(), ActKind::kBF16, plan, x.data(), 32, 0, 1, &acts);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(acts.bf16()[i], FloatToBFloat16(x[i])) << i;
  EXPECT_EQ(acts.bf16()[0], 0x3F80);
  EXPECT_EQ(acts.bf16()[1], 0x3F82);
}

}  // namespace
}  // namespace cleave

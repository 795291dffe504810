#include "kernels/packed_matrix.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <thread>

#include "kernels/matmul_job.h"
#include "kernels/weight_fixture.h"

namespace cleave {
namespace {

using ::testing::HasSubstr;

class EveryType : public ::testing::TestWithParam<DType> {};
std::string TypeName(const ::testing::TestParamInfo<DType>& info) {
  return std::string(NameOf(info.param));
}
INSTANTIATE_TEST_SUITE_P(PackedMatrix, EveryType, ::testing::ValuesIn(kAllDTypes), TypeName);

TEST_P(EveryType, UnpackedRowsAreTheFormatsValues) {
  const uint32_t cols = 512;
  const Weights w = MakeWeights(GetParam(), 37, cols, 1);
  const std::vector<float> truth = Dequantise(w.view);
  const PackedMatrix m = Pack(w.view, ColumnPlan(cols));
  EXPECT_EQ(m.groups(), 3U);
  EXPECT_EQ(m.rows(), 37U);
  std::vector<float> row(cols);
  for (uint32_t r = 0; r < m.rows(); ++r) {
    m.UnpackRow(r, row.data());
    EXPECT_TRUE(SameBits(row, std::span(truth).subspan(size_t{r} * cols, cols))) << r;
  }
}

TEST_P(EveryType, SlicesFollowTheRowMapAndThePlan) {
  const uint32_t cols = 512;
  const Weights w = MakeWeights(GetParam(), 40, cols, 2);
  const std::vector<float> truth = Dequantise(w.view);
  const std::vector<UnitRange> held{{1, 2}, {4, 6}};
  Result<PackedMatrix> m = PackedMatrix::Allocate(w.view, 20, RowPlan(cols, 80, 64, held));
  ASSERT_TRUE(m.ok());
  EXPECT_EQ(PackedMatrix::BytesOf(GetParam(), 20, m->plan()), m->bytes());
  const auto map = [](uint64_t r) { return 39 - r; };
  std::thread other([&] { m->PackGroups(w.view, map, 1, 2); });
  m->PackGroups(w.view, map, 0, 1);
  other.join();
  m->Finish();
  std::vector<float> row(cols, -7.0F);
  for (uint32_t r = 0; r < 20; ++r) {
    m->UnpackRow(r, row.data());
    for (uint32_t k = 0; k < cols; ++k) {
      const bool mine = (k >= 80 && k < 160) || (k >= 320 && k < 480);
      EXPECT_EQ(row[k], mine ? truth[(39 - r) * cols + k] : -7.0F) << r << " " << k;
    }
  }
}

// Files of an earlier build hold what it packed (engine/packed_store.h). Where these hashes change
// because packing does, kPackedVersion goes up by one, and the new ones stand here.
TEST(PackedMatrix, BytesAreThoseOfTheirVersion) {
  const std::map<DType, uint64_t> of_version_1{
      {DType::kF32, 0x4d80904a9a81dfe6},  {DType::kF16, 0x40549e5d5c790bdf},
      {DType::kBF16, 0x77aea608b6b22912}, {DType::kQ40, 0x6e0a8b65c29c2fe8},
      {DType::kQ41, 0x4b960f41b0730a89},  {DType::kQ50, 0xde115c149c744332},
      {DType::kQ51, 0xb92da5aa9e7dc3e8},  {DType::kQ80, 0xf030775593e689cc},
      {DType::kQ4K, 0x72856305efca9628},  {DType::kQ5K, 0xa2ae7063ecab9f30},
      {DType::kQ6K, 0x03585b49b3060399}};
  ASSERT_EQ(kPackedVersion, 1U);
  const auto add = [](std::span<const std::byte> bytes, uint64_t* hash) {
    for (const std::byte b : bytes) *hash = (*hash ^ static_cast<uint64_t>(b)) * 0x100000001B3;
  };
  for (const DType dtype : kAllDTypes) {
    uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
    const Weights w = MakeWeights(dtype, 37, 512, 4);
    const std::vector<UnitRange> held{{1, 2}, {4, 6}};
    for (const KPlan& plan : {ColumnPlan(512), RowPlan(512, 80, 64, held)}) {
      const PackedMatrix m = Pack(w.view, plan);
      add({m.group_data(0), m.bytes()}, &hash);
      const float norm = m.max_row_norm();
      add(std::as_bytes(std::span(&norm, 1)), &hash);
    }
    const auto wanted = of_version_1.find(dtype);
    ASSERT_NE(wanted, of_version_1.end()) << NameOf(dtype) << fmt::format(" {:#018x}", hash);
    EXPECT_EQ(hash, wanted->second) << NameOf(dtype) << fmt::format(" {:#018x}", hash);
  }
}

TEST_P(EveryType, AttachedBytesAreThePackedOnes) {
  const Weights w = MakeWeights(GetParam(), 37, 512, 5);
  const PackedMatrix m = Pack(w.view, ColumnPlan(512));
  Result<PackedMatrix> other = PackedMatrix::Describe(w.view, 37, ColumnPlan(512));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->bytes(), m.bytes());
  other->Attach(m.group_data(0), m.max_row_norm());
  const PackedMatrix moved = std::move(other).value();
  EXPECT_EQ(moved.max_row_norm(), m.max_row_norm());
  std::vector<float> a(512);
  std::vector<float> b(512);
  for (uint32_t r = 0; r < 37; ++r) {
    m.UnpackRow(r, a.data());
    moved.UnpackRow(r, b.data());
    EXPECT_TRUE(SameBits(a, b)) << r;
  }
}

TEST_P(EveryType, NormBoundIsAboveTheTrueNormAndClose) {
  const uint32_t cols = 768;
  const Weights w = MakeWeights(GetParam(), 19, cols, 3);
  const std::vector<float> truth = Dequantise(w.view);
  const std::vector<UnitRange> held{{0, 1}, {3, 5}};
  const PackedMatrix m = Pack(w.view, RowPlan(cols, 96, 64, held));
  double largest = 0;
  for (uint32_t r = 0; r < 19; ++r) {
    double squares = 0;
    for (uint32_t k = 0; k < cols; ++k) {
      const uint32_t unit = k / 96;
      if (unit != 0 && unit != 3 && unit != 4) continue;
      squares += std::pow(static_cast<double>(truth[r * cols + k]), 2);
    }
    largest = std::max(largest, std::sqrt(squares));
  }
  EXPECT_GE(m.max_row_norm(), largest);
  EXPECT_LE(m.max_row_norm(), largest * 1.0001);
}

TEST_P(EveryType, PackedSizeStaysNearTheFiles) {
  const Weights w = MakeWeights(GetParam(), 64, 1536, 4);
  const PackedMatrix m = Pack(w.view, ColumnPlan(1536));
  const bool k_quant = InfoOf(GetParam()).block_elements == 256;
  EXPECT_LE(static_cast<double>(m.bytes()),
            static_cast<double>(w.bytes.size()) * (k_quant ? 1.4 : 1.05));
}

TEST(PackedMatrixTest, DamagedScalesMakeTheNormInfinite) {
  Weights w = MakeWeights(DType::kQ41, 16, 64, 5);
  const uint16_t damaged = FloatToHalf(std::numeric_limits<float>::quiet_NaN());
  std::memcpy(w.bytes.data() + 20, &damaged, sizeof damaged);
  EXPECT_TRUE(std::isinf(Pack(w.view, ColumnPlan(64)).max_row_norm()));
  Weights f = MakeWeights(DType::kF32, 16, 64, 5);
  const float inf = -std::numeric_limits<float>::infinity();
  std::memcpy(f.bytes.data() + 4 * 70, &inf, 4);
  EXPECT_TRUE(std::isinf(Pack(f.view, ColumnPlan(64)).max_row_norm()));
}

TEST(PackedMatrixTest, PlanPastTheColumnsIsRefused) {
  const Weights w = MakeWeights(DType::kQ80, 16, 64, 6);
  Result<PackedMatrix> m = PackedMatrix::Allocate(w.view, 16, ColumnPlan(96));
  ASSERT_FALSE(m.ok());
  EXPECT_EQ(m.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(m.status().message(), HasSubstr("64 columns, its plan needs 96"));
}

TEST(PackedMatrixTest, RaggedQuantisedRowsAreRefused) {
  const TensorView view{.data = nullptr, .dtype = DType::kQ4K, .shape = {16, 288}};
  Result<PackedMatrix> m = PackedMatrix::Allocate(view, 16, ColumnPlan(288));
  ASSERT_FALSE(m.ok());
  EXPECT_THAT(m.status().message(), HasSubstr("not a multiple of 256"));
}

TEST(PackedMatrixTest, MemoryThatCannotBeHadIsAnError) {
  const uint32_t cols = 1U << 30;
  const TensorView view{.data = nullptr, .dtype = DType::kF32, .shape = {1U << 31, cols}};
  const auto m = PackedMatrix::Allocate(view, 1U << 31, ColumnPlan(32 * kMaxBlocks));
  ASSERT_FALSE(m.ok());
  EXPECT_EQ(m.status().code(), StatusCode::kResourceExhausted);
  const auto wide = PackedMatrix::Allocate(view, 16, ColumnPlan(32 * kMaxBlocks + 32));
  ASSERT_FALSE(wide.ok());
  EXPECT_EQ(wide.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(wide.status().message(), testing::HasSubstr("196608 are the most"));
}

TEST(PackedMatrixTest, KindsOfActivations) {
  EXPECT_EQ(ActKindOf(DType::kQ41), ActKind::kInt8);
  EXPECT_EQ(ActKindOf(DType::kQ6K), ActKind::kInt8);
  EXPECT_EQ(ActKindOf(DType::kBF16), ActKind::kBF16);
  EXPECT_EQ(ActKindOf(DType::kF16), ActKind::kF32);
  EXPECT_EQ(ActKindOf(DType::kF32), ActKind::kF32);
}

}  // namespace
}  // namespace cleave

#include "kernels/act_wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/k_plan.h"

namespace cleave {
namespace {

constexpr uint32_t kRows = 3;

// A row that went over the wire into another place of a wider buffer is the row that was prepared.
TEST(ActWire, ARowArrivesAsItWasPrepared) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  for (const uint32_t k : {1U, 31U, 32U, 80U, 257U}) {
    const KPlan plan = ColumnPlan(k);
    const size_t blocks = plan.blocks.size();
    std::vector<float> x(size_t{kRows} * k);
    for (float& v : x) v = normal(rng);
    x[0] = std::numeric_limits<float>::quiet_NaN();  // a block of zeros with scale NaN
    for (const ActKind kind : {ActKind::kInt8, ActKind::kBF16, ActKind::kF32}) {
      ActBuffer sent(kRows, static_cast<uint32_t>(blocks));
      PrepareActs(Isa::kScalar, kind, plan, x.data(), k, 0, kRows, &sent);
      ActBuffer gathered(2 * kRows, static_cast<uint32_t>(blocks) + 7);
      ActBuffer arrived(2 * kRows, static_cast<uint32_t>(blocks) + 7);
      const std::vector<uint32_t> source{2, 0, 1, 1, 0, 2};
      GatherActs(kind, sent, plan, source.data(), 0, 2 * kRows, &gathered);
      std::vector<std::byte> wire(ActRowBytes(kind, blocks));
      for (uint32_t row = 0; row < 2 * kRows; ++row) {
        StoreActRow(kind, sent, blocks, source[row], wire.data());
        LoadActRow(kind, wire.data(), blocks, row, &arrived);
        const size_t first = size_t{row} * arrived.max_blocks();
        const size_t width = kind == ActKind::kInt8 ? 1 : kind == ActKind::kBF16 ? 2 : 4;
        EXPECT_EQ(std::memcmp(arrived.q() + 32 * width * first, gathered.q() + 32 * width * first,
                              32 * width * blocks),
                  0)
            << k;
        if (kind != ActKind::kInt8) continue;
        const auto same = [&](const auto* a, const auto* b) {
          return std::memcmp(a + first, b + first, 4 * blocks) == 0;
        };
        EXPECT_TRUE(same(arrived.scale(), gathered.scale())) << k;
        EXPECT_TRUE(same(arrived.sum(), gathered.sum())) << k;
        EXPECT_TRUE(same(arrived.half_sum(), gathered.half_sum())) << k;
      }
    }
  }
}

TEST(ActWire, MakesTheSumsOfAnyBytes) {
  constexpr uint32_t kKinds = 4;
  ActBuffer sent(kKinds, 1);
  ActBuffer arrived(kKinds, 1);
  std::vector<std::byte> wire(ActRowBytes(ActKind::kInt8, 1));
  for (uint32_t row = 0; row < kKinds; ++row) {
    const size_t first = size_t{row} * sent.max_blocks();
    int32_t sum = 0;
    int32_t half = 0;
    for (int i = 0; i < 32; ++i) {
      // All lowest, all highest, both by turns, and every kind of byte.
      const int by_row[] = {-128, 127, i % 2 == 0 ? -128 : 127, i * 8 - 128};
      sent.q()[32 * first + i] = static_cast<int8_t>(by_row[row]);
      sum += by_row[row];
      half += i < 16 ? by_row[row] : 0;
    }
    sent.scale()[first] = 1;
    StoreActRow(ActKind::kInt8, sent, 1, row, wire.data());
    LoadActRow(ActKind::kInt8, wire.data(), 1, row, &arrived);
    const size_t at = size_t{row} * arrived.max_blocks();
    EXPECT_EQ(arrived.sum()[at], sum) << row;
    EXPECT_EQ(arrived.half_sum()[at], half) << row;
  }
}

TEST(ActWire, TakesFewerBytesThanFloats) {
  EXPECT_EQ(ActRowBytes(ActKind::kInt8, 18), 18U * 36);
  EXPECT_EQ(ActRowBytes(ActKind::kBF16, 18), 18U * 64);
  EXPECT_EQ(ActRowBytes(ActKind::kF32, 18), 18U * 128);
}

}  // namespace
}  // namespace cleave

#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "kernels/attention_test_support.h"
#include "kernels/isa_fixture.h"

namespace cleave {
namespace {

using attention_test::Bytes;
using attention_test::PagedHead;
using attention_test::Query;

struct Shape {
  KvType type;
  uint32_t d;
  uint32_t heads;
  uint32_t context;
  uint32_t window;
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << NameOf(s.type) << " d=" << s.d << " heads=" << s.heads << " context=" << s.context
             << " window=" << s.window;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const Shape kShapes[] = {
    {KvType::kF16, 64, 3, 1, 0},     {KvType::kF16, 64, 3, 17, 0},
    {KvType::kF16, 64, 3, 129, 0},   {KvType::kBF16, 64, 1, 300, 0},
    {KvType::kF32, 64, 2, 513, 0},   {KvType::kF16, 128, 4, 700, 0},
    {KvType::kF16, 80, 5, 200, 0},   {KvType::kBF16, 96, 6, 150, 0},
    {KvType::kF32, 256, 7, 140, 0},  {KvType::kF16, 2, 8, 260, 0},
    {KvType::kF32, 6, 3, 1100, 0},   {KvType::kBF16, 34, 2, 180, 0},
    {KvType::kF16, 64, 3, 700, 100}, {KvType::kF32, 64, 3, 1300, 512},
    {KvType::kF16, 64, 1, 400, 1},   {KvType::kBF16, 48, 2, 530, 16},
    {KvType::kF16, 512, 1, 70, 33},  {KvType::kF16, 256, 4, 600, 512},
    {KvType::kInt8, 64, 3, 1, 0},    {KvType::kInt8, 64, 3, 130, 0},
    {KvType::kInt8, 64, 1, 513, 0},  {KvType::kInt8, 128, 4, 1100, 0},
    {KvType::kInt8, 80, 5, 200, 0},  {KvType::kInt8, 34, 8, 260, 0},
    {KvType::kInt8, 2, 8, 300, 100}, {KvType::kInt8, 256, 2, 1040, 512},
};

TEST(Attention, EveryInstructionSetGivesTheBitsOfTheScalarTruth) {
  const ScopedFpMode mode;
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(testing::PrintToString(s));
    PagedHead head({s.type, s.d, 32}, s.context, 1);
    const uint32_t tokens = std::min(s.context, 20U);
    Query query(s.d, s.heads, tokens, s.context - tokens, 2);
    const auto truth = query.Run(Isa::kScalar, head, s.window, tokens);
    for (Isa isa : SupportedIsas()) {
      EXPECT_EQ(Bytes(query.Run(isa, head, s.window, tokens)), Bytes(truth)) << IsaName(isa);
    }
  }
}

TEST(Attention, RandomShapesAgree) {
  const ScopedFpMode mode;
  std::mt19937 random(31);
  const auto pick = [&](uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random() % (high - low + 1));
  };
  const KvType types[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8};
  for (int round = 0; round < 80; ++round) {
    const uint32_t context = pick(1, round % 10 == 0 ? 3000 : 700);
    const Shape s{types[pick(0, 3)], 2 * pick(1, round % 4 == 0 ? 128 : 40), pick(1, 8), context,
                  round % 2 == 0 ? 0 : pick(1, context)};
    SCOPED_TRACE(testing::PrintToString(s));
    PagedHead head({s.type, s.d, 16U << pick(0, 3)}, context, random());
    const uint32_t tokens = std::min(context, pick(1, context > 1000 ? 2 : 9));
    Query query(s.d, s.heads, tokens, context - tokens, random());
    const auto truth = query.Run(Isa::kScalar, head, s.window, 1);
    for (Isa isa : SupportedIsas()) {
      ASSERT_EQ(Bytes(query.Run(isa, head, s.window, pick(1, tokens))), Bytes(truth))
          << IsaName(isa);
    }
  }
}

// fp32 scores are off by |q|·|k|·(d + 2)·2^-24 at most, which moves a probability by as much
// relatively; sums over positions and the bins add about 1e-6 of the largest |v|.
TEST(Attention, NearTheDoubleSoftmax) {
  const ScopedFpMode mode;
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(testing::PrintToString(s));
    PagedHead head({s.type, s.d, 64}, s.context, 3);
    const uint32_t tokens = std::min(s.context, 5U);
    Query query(s.d, s.heads, tokens, s.context - tokens, 4);
    const auto got = query.Run(SupportedIsas().back(), head, s.window, tokens);
    const auto want = query.Double(head, s.window);
    const double tolerance = 1e-5 * head.largest_value();
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance) << "element " << i;
    }
  }
}

TEST(Attention, TilingOfTokensChangesNothing) {
  const ScopedFpMode mode;
  for (const Shape& s :
       {Shape{KvType::kF16, 64, 3, 600, 0}, Shape{KvType::kBF16, 80, 2, 290, 0},
        Shape{KvType::kF32, 64, 8, 200, 0}, Shape{KvType::kF16, 64, 3, 700, 37},
        Shape{KvType::kInt8, 64, 3, 600, 0}, Shape{KvType::kInt8, 72, 2, 560, 37}}) {
    SCOPED_TRACE(testing::PrintToString(s));
    PagedHead head({s.type, s.d, 16}, s.context, 5);
    const uint32_t tokens = std::min(s.context, 150U);
    Query query(s.d, s.heads, tokens, s.context - tokens, 6);
    for (Isa isa : SupportedIsas()) {
      const auto together = Bytes(query.Run(isa, head, s.window, tokens));
      for (uint32_t at_once : {1U, 7U, 64U}) {
        EXPECT_EQ(Bytes(query.Run(isa, head, s.window, at_once)), together) << at_once;
      }
    }
  }
}

TEST(Attention, BlockSizeAndPlacementChangeNothing) {
  const ScopedFpMode mode;
  for (const auto& [type, d] : {std::pair{KvType::kF16, 64U}, std::pair{KvType::kF16, 40U},
                                std::pair{KvType::kInt8, 64U}, std::pair{KvType::kInt8, 40U}}) {
    PagedHead small({type, d, 16}, 777, 7);
    Query query(d, 3, 9, 777 - 9, 8);
    const Isa isa = SupportedIsas().back();
    const auto want = Bytes(query.Run(isa, small, 0, 9));
    const auto windowed = Bytes(query.Run(isa, small, 300, 9));
    for (uint32_t block_tokens : {16U, 32U, 64U, 128U}) {
      for (uint64_t placement : {11U, 12U}) {
        PagedHead other({type, d, block_tokens}, 777, 7, placement);
        EXPECT_EQ(Bytes(query.Run(isa, other, 0, 9)), want);
        EXPECT_EQ(Bytes(query.Run(isa, other, 300, 9)), windowed);
      }
    }
  }
}

// Blocks outside the window have no entry: reading them would fault or give NaN.
TEST(Attention, NeverLooksAtBlocksOutsideTheRange) {
  const ScopedFpMode mode;
  for (KvType type : {KvType::kF16, KvType::kInt8}) {
    PagedHead head({type, 64, 16}, 1000, 13);
    Query query(64, 3, 4, 996, 14);
    for (Isa isa : SupportedIsas()) {
      const auto want = Bytes(query.Run(isa, head, 200, 4));
      PagedHead cut({type, 64, 16}, 1000, 13);
      // The first query sees from position 797: block 49 on.
      cut.ForgetBlocksBefore(49);
      EXPECT_EQ(Bytes(query.Run(isa, cut, 200, 4)), want) << IsaName(isa);
    }
  }
}

// A later token of the same step whose value overflowed must not reach earlier queries.
TEST(Attention, AnInfiniteLaterValueDoesNotReachEarlierQueries) {
  const ScopedFpMode mode;
  for (KvType type : {KvType::kF16, KvType::kInt8}) {
    for (Isa isa : SupportedIsas()) {
      PagedHead head({type, 64, 16}, 60, 15);
      Query query(64, 1, 20, 40, 16);
      const auto clean = query.Run(isa, head, 0, 20);
      head.OverwriteValue(55, std::numeric_limits<float>::infinity());
      const auto tiled = query.Run(isa, head, 0, 20);
      const ptrdiff_t before = 15 * 64;  // queries 40..54
      EXPECT_EQ(Bytes({tiled.begin(), tiled.begin() + before}),
                Bytes({clean.begin(), clean.begin() + before}));
      EXPECT_TRUE(std::isnan(tiled[15 * 64]));
      EXPECT_EQ(Bytes(query.Run(isa, head, 0, 1)), Bytes(tiled));
    }
  }
}

TEST(Attention, NonFiniteKeysAndHugeScoresAgreeEverywhere) {
  const ScopedFpMode mode;
  for (const auto& [type, poison] :
       {std::pair{KvType::kF32, kInfinity}, std::pair{KvType::kF32, -1e38F},
        std::pair{KvType::kF32, kNan}, std::pair{KvType::kF32, 1e12F},
        std::pair{KvType::kInt8, kInfinity}, std::pair{KvType::kInt8, -1e38F},
        std::pair{KvType::kInt8, kNan}, std::pair{KvType::kInt8, 1e12F}}) {
    PagedHead head({type, 32, 16}, 700, 17);
    head.OverwriteKey(100, poison);
    head.OverwriteKey(600, -poison);
    Query query(32, 2, 3, 697, 18);
    const auto truth = query.Run(Isa::kScalar, head, 0, 3);
    for (Isa isa : SupportedIsas()) {
      EXPECT_TRUE(attention_test::SameOrBothNan(query.Run(isa, head, 0, 3), truth))
          << IsaName(isa) << " " << NameOf(type) << " " << poison;
    }
  }
}

// Values beyond the 64-bit counts take the wide ones: the same integer, so the same bits as scalar,
// whose counts are always wide.
TEST(Attention, ValuesBeyondTheNarrowCountsStayExact) {
  const ScopedFpMode mode;
  for (KvType type : {KvType::kF32, KvType::kInt8}) {
    for (float scale : {1e4F, 1e6F, 1e9F, 1e18F, 1e20F, 1e23F}) {
      PagedHead head({type, 64, 16}, 2100, 19, 0, scale);
      Query query(64, 2, 3, 2097, 20);
      const auto truth = query.Run(Isa::kScalar, head, 0, 3);
      EXPECT_EQ(std::isnan(truth[0]), scale > 1e21F) << scale;
      for (Isa isa : SupportedIsas()) {
        EXPECT_TRUE(attention_test::SameOrBothNan(query.Run(isa, head, 0, 3), truth))
            << IsaName(isa) << " " << scale;
      }
    }
  }
}

TEST(Attention, LongContextsWithRisingAndFallingMaxima) {
  const ScopedFpMode mode;
  for (float bits : {0.2F, -0.2F}) {
    PagedHead head({KvType::kF32, 64, 128}, 3000, 21);
    Query query(64, 3, 2, 2998, 22);
    // Scores drift by hundreds of bits over the context: bins fall out at one end.
    query.AddDriftTo(&head, bits);
    const auto truth = query.Run(Isa::kScalar, head, 0, 2);
    const auto exact = query.Double(head, 0);
    for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(truth[i], exact[i], 2e-4) << i;
    for (Isa isa : SupportedIsas()) {
      EXPECT_EQ(Bytes(query.Run(isa, head, 0, 2)), Bytes(truth)) << IsaName(isa);
    }
  }
}

TEST(StoreKv, EveryInstructionSetStoresTheSameBytes) {
  const ScopedFpMode mode;
  std::mt19937 random(23);
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    for (uint32_t d : {2U, 16U, 64U, 80U, 130U, 512U}) {
      const KvShape shape{type, d, 32};
      std::vector<float> key(d);
      std::vector<float> value(d);
      std::uniform_real_distribution<float> exponent(-30, 20);
      for (float& x : key) x = std::exp2(exponent(random));
      for (float& x : value) x = -std::exp2(exponent(random));
      key[0] = std::numeric_limits<float>::quiet_NaN();
      key[1] = 65520.0F;
      value[0] = -std::numeric_limits<float>::infinity();
      value[1] = 1e-40F;
      std::vector<std::byte> truth(shape.head_bytes());
      StoreKv(Isa::kScalar, shape, key.data(), value.data(), 19, truth.data());
      for (Isa isa : SupportedIsas()) {
        std::vector<std::byte> got(shape.head_bytes());
        StoreKv(isa, shape, key.data(), value.data(), 19, got.data());
        EXPECT_EQ(got, truth) << IsaName(isa) << " " << NameOf(type) << " d=" << d;
      }
    }
  }
}

}  // namespace
}  // namespace cleave

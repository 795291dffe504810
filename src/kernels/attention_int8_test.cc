// The int8 KV cache: how rows are rounded, where scales are applied, and what that costs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_test_support.h"
#include "kernels/isa_fixture.h"

namespace cleave {
namespace {

using attention_test::Bytes;
using attention_test::PagedHead;
using attention_test::Query;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A key or a value as it lies in a block.
struct Row {
  std::vector<int> q;
  float scale = -1;
};

struct Stored {
  Row key;
  Row value;
};

Stored ReadBlock(const KvShape& shape, const std::vector<std::byte>& block, uint32_t offset) {
  const uint32_t d = shape.head_dim;
  const auto* q = reinterpret_cast<const int8_t*>(block.data());
  Stored stored;
  for (uint32_t i = 0; i < d; ++i) {
    stored.key.q.push_back(q[(offset / 16 * d + i) * 16 + offset % 16]);
    stored.value.q.push_back(q[(shape.block_tokens + offset) * d + i]);
  }
  const size_t scales = 2 * size_t{shape.block_tokens} * d;
  std::memcpy(&stored.key.scale, &block[scales + offset * 4], 4);
  std::memcpy(&stored.value.scale, &block[scales + (shape.block_tokens + offset) * 4], 4);
  return stored;
}

Stored Store(Isa isa, const std::vector<float>& key, const std::vector<float>& value,
             uint32_t offset) {
  const KvShape shape{KvType::kInt8, static_cast<uint32_t>(key.size()), 32};
  std::vector<std::byte> block(shape.head_bytes(), std::byte{0x77});
  StoreKv(isa, shape, key.data(), value.data(), offset, block.data());
  return ReadBlock(shape, block, offset);
}

TEST(Int8Kv, ABlockHoldsAScaleForEveryRow) {
  const KvShape int8{KvType::kInt8, 64, 16};
  const KvShape half{KvType::kF16, 64, 16};
  EXPECT_EQ(int8.token_bytes(), 2U * (64 + 4));
  EXPECT_EQ(int8.head_bytes(), 16U * 2 * (64 + 4));
  EXPECT_EQ(half.token_bytes(), 2U * 128);
  EXPECT_EQ(int8.key_scales_at(), 2U * 16 * 64);
  EXPECT_EQ(int8.value_scales_at(), 2U * 16 * 64 + 16 * 4);
}

TEST(Int8Kv, ARowIsRoundedToItsLargestOver127) {
  const ScopedFpMode mode;
  for (Isa isa : SupportedIsas()) {
    const Stored s = Store(isa, {254, -254, 1, 3, 0.9F, -0.0F}, {0.5F, 0.25F, 0, 0, 0, -0.5F}, 21);
    EXPECT_EQ(s.key.scale, 2.0F);
    EXPECT_EQ(s.key.q, (std::vector<int>{127, -127, 0, 2, 0, 0}));  // ties to even
    EXPECT_EQ(s.value.scale, 0.5F / 127);
    EXPECT_EQ(s.value.q, (std::vector<int>{127, 64, 0, 0, 0, -127}));
  }
}

TEST(Int8Kv, RowsOfNothingAndRowsThatAreNotFinite) {
  const ScopedFpMode mode;
  const std::vector<int> zeros(18, 0);
  for (Isa isa : SupportedIsas()) {
    std::vector<float> tiny(18, 0x1p-101F);
    std::vector<float> none(18, 0.0F);
    Stored s = Store(isa, tiny, none, 0);
    EXPECT_EQ(s.key.scale, 0.0F);
    EXPECT_EQ(s.value.scale, 0.0F);
    EXPECT_EQ(s.key.q, zeros);
    EXPECT_EQ(s.value.q, zeros);
    tiny[17] = 0x1p-100F;
    EXPECT_EQ(Store(isa, tiny, none, 31).key.q[17], 127);
    for (float poison : {kInfinity, -kInfinity, kNan}) {
      for (size_t at : {0U, 15U, 16U, 17U}) {
        std::vector<float> row(18, 3.0F);
        row[at] = poison;
        s = Store(isa, row, row, 16);
        EXPECT_TRUE(std::isnan(s.key.scale) && std::isnan(s.value.scale)) << poison << " " << at;
        EXPECT_EQ(s.key.q, zeros);
        EXPECT_EQ(s.value.q, zeros);
      }
    }
  }
}

// Bytes of the whole block: nothing else is written, and a place of a block does not matter.
TEST(Int8Kv, EveryInstructionSetStoresTheSameBytes) {
  const ScopedFpMode mode;
  std::mt19937 random(23);
  std::uniform_real_distribution<float> exponent(-30, 20);
  for (uint32_t d : {2U, 16U, 64U, 80U, 130U, 512U}) {
    const KvShape shape{KvType::kInt8, d, 32};
    std::vector<float> key(d);
    std::vector<float> value(d);
    for (float& x : key) x = std::exp2(exponent(random));
    for (float& x : value) x = -std::exp2(exponent(random));
    value[1] = std::numeric_limits<float>::max();
    for (uint32_t offset : {0U, 19U, 31U}) {
      std::vector<std::byte> truth(shape.head_bytes(), std::byte{0x77});
      StoreKv(Isa::kScalar, shape, key.data(), value.data(), offset, truth.data());
      for (Isa isa : SupportedIsas()) {
        std::vector<std::byte> got(shape.head_bytes(), std::byte{0x77});
        StoreKv(isa, shape, key.data(), value.data(), offset, got.data());
        EXPECT_EQ(got, truth) << IsaName(isa) << " d=" << d << " at " << offset;
      }
      const Stored first = Store(Isa::kScalar, key, value, 0);
      const Stored here = ReadBlock(shape, truth, offset);
      EXPECT_EQ(here.key.q, first.key.q);
      EXPECT_EQ(here.value.q, first.value.q);
      EXPECT_EQ(here.key.scale, first.key.scale);
      EXPECT_EQ(here.value.scale, first.value.scale);
    }
  }
}

// With one position the answer is its value: the integer times the scale, to rounding.
TEST(Int8Kv, TheAnswerIsInTheValuesScale) {
  const ScopedFpMode mode;
  for (float size : {1.0F, 1e3F, 1e6F}) {
    const PagedHead head({KvType::kInt8, 64, 16}, 1, 5, 0, size);
    const Query query(64, 3, 1, 0, 6);
    for (Isa isa : SupportedIsas()) {
      const auto got = query.Run(isa, head, 0, 1);
      for (uint32_t i = 0; i < 64; ++i) {
        const float want = head.StoredValue(0, i);
        EXPECT_NEAR(got[i], want, 1e-6 * head.largest_value()) << IsaName(isa);
      }
    }
  }
}

// A zero key scores 0 and a zero value adds nothing, beside others that do.
TEST(Int8Kv, ZeroRowsAreZeros) {
  const ScopedFpMode mode;
  constexpr uint32_t kDim = 32;
  PagedHead head({KvType::kInt8, kDim, 16}, 3, 7);
  for (uint32_t p = 0; p < 3; ++p) head.SetKey(p, std::vector<float>(kDim, 0.0F));
  const Query query(kDim, 2, 1, 2, 8);
  for (Isa isa : SupportedIsas()) {
    const auto got = query.Run(isa, head, 0, 1);
    for (uint32_t i = 0; i < kDim; ++i) {
      const double mean =
          (double{head.StoredValue(0, i)} + head.StoredValue(1, i) + head.StoredValue(2, i)) / 3;
      EXPECT_NEAR(got[i], mean, 1e-6 * head.largest_value());
    }
  }
}

// Around the borders of chunks, runs and groups, in tiles that widen the cache and tiles that do
// not: the bits of the scalar truth taken one token at a time.
TEST(Int8Kv, OneTokenAndManyAtEveryBorder) {
  const ScopedFpMode mode;
  for (uint32_t context : {16U, 127U, 128U, 129U, 511U, 512U, 513U, 640U, 1024U, 1025U}) {
    const PagedHead head({KvType::kInt8, 64, 16}, context, context);
    const uint32_t tokens = std::min(context, 14U);
    const Query query(64, 2, tokens, context - tokens, context + 1);
    const auto truth = Bytes(query.Run(Isa::kScalar, head, 0, 1));
    for (Isa isa : SupportedIsas()) {
      for (uint32_t at_once : {1U, 5U, 14U}) {
        EXPECT_EQ(Bytes(query.Run(isa, head, 0, at_once)), truth)
            << IsaName(isa) << " " << context << " " << at_once;
      }
    }
  }
}

struct Errors {
  double largest = 0;
  double rms = 0;  // of the rms answer
};

Errors Between(const std::vector<float>& got, const std::vector<double>& want) {
  Errors e;
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::fabs(got[i] - want[i]);
    e.largest = std::max(e.largest, difference);
    error += difference * difference;
    size += want[i] * want[i];
  }
  e.rms = std::sqrt(error / size);
  return e;
}

// Against a softmax in double over the rows as they were. An element of a row is off by half its
// scale at most, a score so by ‖q‖₁·scale/2, every probability by twice that in the exponent:
// |error| <= scale_v/2 + (e^(2·score) - 1)·|v|. The rms is what such rows cost in fact.
TEST(Int8Kv, NearTheCacheInFp32) {
  const ScopedFpMode mode;
  for (uint32_t d : {64U, 128U}) {
    for (uint32_t context : {60U, 700U, 2000U}) {
      const PagedHead exact({KvType::kF32, d, 16}, context, d + context);
      const PagedHead head({KvType::kInt8, d, 16}, context, d + context);
      const Query query(d, 3, 4, context - 4, context);
      double largest_key = 0;
      for (uint32_t p = 0; p < context; ++p) {
        for (float x : head.key(p)) largest_key = std::max(largest_key, std::fabs(double{x}));
      }
      const double score = query.LargestNorm1() / std::sqrt(d) * largest_key / 254;
      const double bound = exact.largest_value() * (1.0 / 254 + std::exp(2 * score) - 1) + 1e-5;
      const Errors e =
          Between(query.Run(SupportedIsas().back(), head, 0, 4), query.Double(exact, 0));
      EXPECT_LT(e.largest, bound);
      EXPECT_LT(e.largest, 0.03);
      EXPECT_LT(e.rms, 0.02) << "d=" << d << " context=" << context;
      EXPECT_GT(e.rms, 1e-4) << "it was not rounded";
    }
  }
}

}  // namespace
}  // namespace cleave

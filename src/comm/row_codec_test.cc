#include "comm/row_codec.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"

namespace cleave {
namespace {

// Values of all magnitudes of a width, its ends among them.
int64_t Value(RngStream* rng, uint32_t bits) {
  const auto value = static_cast<int64_t>(rng->Next()) >> (64 - bits);
  switch (rng->Below(12)) {
    case 0:
      return -(int64_t{1} << (bits - 1));
    case 1:
      return (int64_t{1} << (bits - 1)) - 1;
    default:
      return value >> rng->Below(bits);
  }
}

struct Rows {
  std::vector<int64_t> mine;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<PeerRow> peers;
  std::vector<int64_t> sums;
};

Rows MakeRow(uint32_t n, uint32_t peers, uint32_t wide_percent, uint64_t seed) {
  RngStream rng(seed);
  Rows row;
  for (uint32_t i = 0; i < n; ++i) row.mine.push_back(Value(&rng, 32));
  row.sums = row.mine;
  for (uint32_t p = 0; p < peers; ++p) {
    const bool wide = rng.Below(100) < wide_percent;
    std::vector<std::byte> bytes(size_t{n} * (wide ? 8 : 4));
    for (uint32_t i = 0; i < n; ++i) {
      const int64_t value = Value(&rng, wide ? 57 : 32);
      row.sums[i] += value;
      const auto narrow = static_cast<int32_t>(value);
      if (wide) std::memcpy(&bytes[size_t{i} * 8], &value, 8);
      if (!wide) std::memcpy(&bytes[size_t{i} * 4], &narrow, 4);
    }
    row.bytes.push_back(std::move(bytes));
    row.peers.push_back({.data = nullptr, .wide = wide});
  }
  for (uint32_t p = 0; p < peers; ++p) row.peers[p].data = row.bytes[p].data();
  return row;
}

TEST(RowCodec, SumsAreTheRoundedExactOnes) {
  for (uint32_t index = 0; RowCodecOf(index) != nullptr; ++index) {
    const RowCodec& codec = *RowCodecOf(index);
    for (const uint32_t n : {0U, 1U, 7U, 8U, 9U, 16U, 255U, 256U, 257U, 576U, 1000U}) {
      for (const uint32_t peers : {0U, 1U, 2U, 8U, 63U}) {
        for (const uint32_t wide_percent : {0U, 50U, 100U}) {
          const Rows row = MakeRow(n, peers, wide_percent, n * 64 + peers + wide_percent);
          const int32_t shift = static_cast<int32_t>(n % 121) - 60;
          std::vector<float> out(n);
          SumRow(codec, row.mine.data(), wide_percent == 100, row.peers.data(), peers, n, shift,
                 out.data());
          for (uint32_t i = 0; i < n; ++i) {
            const float expected = static_cast<float>(row.sums[i]) * std::ldexp(1.0F, -shift);
            ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected))
                << "codec " << index << " n " << n << " peers " << peers << " at " << i;
          }
        }
      }
    }
  }
}

TEST(RowCodec, NarrowsAtAnyAlignment) {
  RngStream rng(9);
  std::vector<int64_t> from(300);
  for (int64_t& value : from) value = Value(&rng, 32);
  for (uint32_t index = 0; RowCodecOf(index) != nullptr; ++index) {
    for (uint32_t shift = 0; shift < 17; ++shift) {
      for (const uint32_t n : {0U, 1U, 15U, 16U, 17U, 64U, 250U}) {
        for (const StoreKind store : {StoreKind::kOrdinary, StoreKind::kStreaming}) {
          alignas(64) std::array<int32_t, 300> to{};
          RowCodecOf(index)->narrow(from.data(), n, to.data() + shift, store);
          StreamFence();
          for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(to[shift + i], from[i]);
          ASSERT_EQ(to[shift + n], 0);
          ASSERT_TRUE(shift == 0 || to[shift - 1] == 0);
        }
      }
    }
  }
}

TEST(CopyTo, CopiesAtAnyAlignment) {
  std::vector<std::byte> from(200);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
  for (size_t shift = 0; shift < 18; ++shift) {
    for (const size_t n : {0U, 1U, 15U, 16U, 33U, 150U}) {
      for (const StoreKind store : {StoreKind::kOrdinary, StoreKind::kStreaming}) {
        alignas(64) std::array<std::byte, 200> to{};
        CopyTo(to.data() + shift, from.data(), n, store);
        StreamFence();
        for (size_t i = 0; i < n; ++i) ASSERT_EQ(to[shift + i], from[i]);
        ASSERT_EQ(to[shift + n], std::byte{0});
      }
    }
  }
}

TEST(QuantumOf, IsAPowerOfTwo) {
  for (int32_t shift = -kMaxShift; shift <= kMaxShift; ++shift) {
    EXPECT_EQ(QuantumOf(shift), std::ldexp(1.0F, -shift));
  }
  EXPECT_EQ(QuantumOf(INT32_MAX), QuantumOf(kMaxShift));
  EXPECT_EQ(QuantumOf(INT32_MIN), QuantumOf(-kMaxShift));
}

}  // namespace
}  // namespace cleave

#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace cleave {
namespace {

TEST(DType, RowBytesWantsWholeBlocksThatFit) {
  EXPECT_EQ(RowBytes(DType::kF32, 3), 12U);
  EXPECT_EQ(RowBytes(DType::kQ41, 64), 40U);
  EXPECT_EQ(RowBytes(DType::kQ6K, 512), 420U);
  EXPECT_FALSE(RowBytes(DType::kQ41, 33).has_value());
  EXPECT_FALSE(RowBytes(DType::kQ4K, 128).has_value());
  EXPECT_FALSE(RowBytes(DType::kF32, ~0ULL).has_value());
  EXPECT_EQ(NameOf(DType::kQ5K), "Q5_K");
}

TEST(Half, RoundTripsEveryPattern) {
  for (uint32_t h = 0; h < 0x10000U; ++h) {
    const float f = HalfToFloat(static_cast<uint16_t>(h));
    const uint16_t back = FloatToHalf(f);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(back)));
    } else {
      ASSERT_EQ(back, h);
    }
  }
}

// Neighbours a < b of the half grid: below the middle goes to a, above to b, the middle to even.
TEST(Half, RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7bffU; ++h) {
    const float a = HalfToFloat(static_cast<uint16_t>(h));
    const float b = HalfToFloat(static_cast<uint16_t>(h + 1));
    const float middle = a + (b - a) / 2;  // exact: at most 12 significant bits
    ASSERT_EQ(FloatToHalf(middle), (h & 1U) != 0 ? h + 1 : h);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, a)), h);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, b)), h + 1);
    ASSERT_EQ(FloatToHalf(-std::nextafter(middle, b)), (h + 1) | 0x8000U);
  }
  EXPECT_EQ(FloatToHalf(65519.996F), 0x7bffU);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7c00U);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xfc00U);
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(FloatToBFloat16(1.0F), 0x3f80U);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f808000U)), 0x3f80U);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f818000U)), 0x3f82U);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x3f808001U)), 0x3f81U);
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7f80U);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::bit_cast<float>(0x7f800001U)))));
  EXPECT_EQ(BFloat16ToFloat(0xc040U), -3.0F);
}

uint32_t FromHex(std::string_view text) {
  uint32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

DType Named(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(DType::kQ6K); ++i) {
    if (NameOf(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  ADD_FAILURE() << "no type " << name;
  return DType::kF32;
}

// Bits made by gguf-py: tools/oracle/dequant_cases.py. A NaN's payload is free.
TEST(DequantiseRow, EqualsTheOracleBitForBit) {
  std::ifstream file(CLEAVE_SOURCE_DIR "/src/tensor/testdata/dequant_cases.txt");
  ASSERT_TRUE(file.is_open());
  std::map<std::string, int> finite;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    std::string bytes;
    std::string bits;
    fields >> name >> bytes >> bits;
    const DType dtype = Named(name);
    const uint64_t elements = bits.size() / 8;
    ASSERT_EQ(bytes.size() / 2, RowBytes(dtype, elements)) << name;
    std::vector<std::byte> row;
    for (size_t i = 0; i < bytes.size(); i += 2) {
      row.push_back(static_cast<std::byte>(FromHex({&bytes[i], 2})));
    }
    std::vector<float> out(elements);
    DequantiseRow(dtype, row.data(), elements, out.data());
    for (size_t i = 0; i < elements; ++i) {
      const uint32_t expected = FromHex({&bits[8 * i], 8});
      if (std::isnan(std::bit_cast<float>(expected))) {
        ASSERT_TRUE(std::isnan(out[i])) << name << " element " << i;
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), expected) << name << " element " << i;
      ++finite[name];
    }
  }
  EXPECT_EQ(finite.size(), 11U);
  for (const auto& [name, count] : finite) EXPECT_GE(count, 32) << name;
}

}  // namespace
}  // namespace cleave

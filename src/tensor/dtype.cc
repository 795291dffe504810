#include "tensor/dtype.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "base/status.h"

namespace cleave {
namespace {

// Indexed by DType.
constexpr std::array<DTypeInfo, 11> kInfos = {{
    {.name = "F32", .block_elements = 1, .block_bytes = 4},
    {.name = "F16", .block_elements = 1, .block_bytes = 2},
    {.name = "BF16", .block_elements = 1, .block_bytes = 2},
    {.name = "Q4_0", .block_elements = 32, .block_bytes = 18},
    {.name = "Q4_1", .block_elements = 32, .block_bytes = 20},
    {.name = "Q5_0", .block_elements = 32, .block_bytes = 22},
    {.name = "Q5_1", .block_elements = 32, .block_bytes = 24},
    {.name = "Q8_0", .block_elements = 32, .block_bytes = 34},
    {.name = "Q4_K", .block_elements = 256, .block_bytes = 144},
    {.name = "Q5_K", .block_elements = 256, .block_bytes = 176},
    {.name = "Q6_K", .block_elements = 256, .block_bytes = 210},
}};

uint32_t ByteAt(const std::byte* p, size_t i) { return std::to_integer<uint32_t>(p[i]); }

uint16_t Load16(const std::byte* p) {
  return static_cast<uint16_t>(ByteAt(p, 0) | (ByteAt(p, 1) << 8U));
}

uint32_t Load32(const std::byte* p) {
  return Load16(p) | (static_cast<uint32_t>(Load16(p + 2)) << 16U);
}

float LoadHalf(const std::byte* p) { return HalfToFloat(Load16(p)); }

// Element i of 32 nibbles in 16 bytes.
int Nibble(const std::byte* p, size_t i) {
  return static_cast<int>(i < 16 ? ByteAt(p, i) & 15U : ByteAt(p, i - 16) >> 4U);
}

int FifthBit(uint32_t bits, size_t i) { return static_cast<int>((bits >> i) & 1U) << 4; }

void DequantiseQ40(const std::byte* b, float* out) {
  const float d = LoadHalf(b);
  for (size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(Nibble(b + 2, i) - 8) * d;
}

void DequantiseQ41(const std::byte* b, float* out) {
  const float d = LoadHalf(b);
  const float m = LoadHalf(b + 2);
  for (size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(Nibble(b + 4, i)) * d + m;
}

void DequantiseQ50(const std::byte* b, float* out) {
  const float d = LoadHalf(b);
  const uint32_t high = Load32(b + 2);
  for (size_t i = 0; i < 32; ++i) {
    out[i] = static_cast<float>((Nibble(b + 6, i) | FifthBit(high, i)) - 16) * d;
  }
}

void DequantiseQ51(const std::byte* b, float* out) {
  const float d = LoadHalf(b);
  const float m = LoadHalf(b + 2);
  const uint32_t high = Load32(b + 4);
  for (size_t i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(Nibble(b + 8, i) | FifthBit(high, i)) * d + m;
  }
}

void DequantiseQ80(const std::byte* b, float* out) {
  const float d = LoadHalf(b);
  for (size_t i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(static_cast<int8_t>(ByteAt(b, 2 + i))) * d;
  }
}

struct ScaleMin {
  uint32_t scale;  // 6 bits
  uint32_t min;    // 6 bits
};

// Sub-block j of 8. Scales 0..3 are the low six bits of bytes 0..3, minimums those of bytes 4..7;
// scale and minimum 4 + k share byte 8 + k as nibbles, their top two bits being the top two of
// bytes k and 4 + k.
ScaleMin KScaleMin(const std::byte* s, size_t j) {
  if (j < 4) return {.scale = ByteAt(s, j) & 63U, .min = ByteAt(s, j + 4) & 63U};
  const uint32_t low = ByteAt(s, j + 4);
  return {.scale = (low & 15U) | ((ByteAt(s, j - 4) >> 6U) << 4U),
          .min = (low >> 4U) | ((ByteAt(s, j) >> 6U) << 4U)};
}

// Sub-blocks 2c and 2c + 1 are the low and high nibbles of bytes 32c .. 32c + 31.
uint32_t KNibble(const std::byte* q, size_t j, size_t i) {
  return (ByteAt(q, (j / 2) * 32 + i) >> (4U * (j % 2))) & 15U;
}

void DequantiseQ4K(const std::byte* b, float* out) {
  const float d = LoadHalf(b);
  const float dmin = LoadHalf(b + 2);
  for (size_t j = 0; j < 8; ++j) {
    const ScaleMin sm = KScaleMin(b + 4, j);
    const float scale = d * static_cast<float>(sm.scale);
    const float min = dmin * static_cast<float>(sm.min);
    for (size_t i = 0; i < 32; ++i) {
      out[32 * j + i] = scale * static_cast<float>(KNibble(b + 16, j, i)) - min;
    }
  }
}

void DequantiseQ5K(const std::byte* b, float* out) {
  const float d = LoadHalf(b);
  const float dmin = LoadHalf(b + 2);
  for (size_t j = 0; j < 8; ++j) {
    const ScaleMin sm = KScaleMin(b + 4, j);
    const float scale = d * static_cast<float>(sm.scale);
    const float min = dmin * static_cast<float>(sm.min);
    for (size_t i = 0; i < 32; ++i) {
      // Bit j of byte i of the fifth bits belongs to element i of sub-block j.
      const uint32_t fifth = (ByteAt(b, 16 + i) >> j) & 1U;
      const uint32_t q = KNibble(b + 48, j, i) | (fifth << 4U);
      out[32 * j + i] = scale * static_cast<float>(q) - min;
    }
  }
}

void DequantiseQ6K(const std::byte* b, float* out) {
  const float d = LoadHalf(b + 208);
  for (size_t n = 0; n < 256; ++n) {
    // Halves of 128; in each, quarter k = 0..3 of 32: low nibbles of bytes 0..31 and 32..63, then
    // their high nibbles; two more bits at 2k of byte i of the half's 32.
    const size_t half = n / 128;
    const size_t k = n / 32 % 4;
    const size_t i = n % 32;
    const uint32_t low = (ByteAt(b, 64 * half + 32 * (k % 2) + i) >> (4U * (k / 2))) & 15U;
    const uint32_t high = (ByteAt(b, 128 + 32 * half + i) >> (2U * k)) & 3U;
    const auto scale = static_cast<int8_t>(ByteAt(b, 192 + n / 16));
    const int q = static_cast<int>(low | (high << 4U)) - 32;
    out[n] = d * static_cast<float>(scale) * static_cast<float>(q);
  }
}

void DequantiseBlock(DType dtype, const std::byte* block, float* out) {
  switch (dtype) {
    case DType::kF32:
      *out = std::bit_cast<float>(Load32(block));
      return;
    case DType::kF16:
      *out = LoadHalf(block);
      return;
    case DType::kBF16:
      *out = BFloat16ToFloat(Load16(block));
      return;
    case DType::kQ40:
      return DequantiseQ40(block, out);
    case DType::kQ41:
      return DequantiseQ41(block, out);
    case DType::kQ50:
      return DequantiseQ50(block, out);
    case DType::kQ51:
      return DequantiseQ51(block, out);
    case DType::kQ80:
      return DequantiseQ80(block, out);
    case DType::kQ4K:
      return DequantiseQ4K(block, out);
    case DType::kQ5K:
      return DequantiseQ5K(block, out);
    case DType::kQ6K:
      return DequantiseQ6K(block, out);
  }
}

}  // namespace

const DTypeInfo& InfoOf(DType dtype) { return kInfos[static_cast<size_t>(dtype)]; }

std::optional<uint64_t> RowBytes(DType dtype, uint64_t elements) {
  const DTypeInfo& info = InfoOf(dtype);
  if (elements % info.block_elements != 0) return std::nullopt;
  return CheckedMul(elements / info.block_elements, info.block_bytes);
}

void DequantiseRow(DType dtype, const std::byte* row, uint64_t elements, float* out) {
  const DTypeInfo& info = InfoOf(dtype);
  CLEAVE_CHECK(elements % info.block_elements == 0);
  const uint64_t blocks = elements / info.block_elements;
  for (uint64_t b = 0; b < blocks; ++b) {
    DequantiseBlock(dtype, row + b * info.block_bytes, out + b * info.block_elements);
  }
}

float HalfToFloat(uint16_t h) {
  const uint32_t sign = (h & 0x8000U) << 16U;
  const uint32_t exponent = (h >> 10U) & 31U;
  const uint32_t mantissa = h & 0x3ffU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13U));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23U) | (mantissa << 13U));
  }
  // Subnormal: mantissa · 2^-24, exact in fp32.
  const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t FloatToHalf(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 16U) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {  // NaN: keep the upper payload, force a quiet one
    return static_cast<uint16_t>(sign | 0x7e00U | ((magnitude >> 13U) & 0x1ffU));
  }
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // ≥ 65520: infinity
  if (magnitude <= 0x33000000U) return static_cast<uint16_t>(sign);  // ≤ 2^-25: zero, ties to even
  const uint32_t exponent = magnitude >> 23U;
  // Bits to drop so that what stays counts units of the half's last place.
  const uint32_t shift = exponent < 113 ? 126 - exponent : 13;
  const uint32_t significand =
      exponent < 113 ? (magnitude & 0x7fffffU) | 0x800000U : magnitude - (112U << 23U);
  const uint32_t kept = significand >> shift;
  const uint32_t dropped = significand & ((1U << shift) - 1U);
  const uint32_t halfway = 1U << (shift - 1U);
  const bool up = dropped > halfway || (dropped == halfway && (kept & 1U) != 0);
  // A carry out of the mantissa lands in the exponent, as it should.
  return static_cast<uint16_t>(sign | (kept + (up ? 1U : 0U)));
}

float BFloat16ToFloat(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16U); }

uint16_t FloatToBFloat16(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

}  // namespace cleave

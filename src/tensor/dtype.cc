#include "tensor/dtype.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "base/status.h"
#include "tensor/quant_block.h"

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

template <typename T>
T Load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

float LoadPlain(DType dtype, const std::byte* p) {
  if (dtype == DType::kF32) return Load<float>(p);
  return dtype == DType::kF16 ? HalfToFloat(Load<uint16_t>(p)) : BFloat16ToFloat(Load<uint16_t>(p));
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
  if (!IsQuantised(dtype)) {
    for (uint64_t i = 0; i < elements; ++i) out[i] = LoadPlain(dtype, row + i * info.block_bytes);
    return;
  }
  for (uint64_t at = 0; at < elements; at += 32) {
    Dequantise(dtype, ReadQuantBlock(dtype, row, at / 32), out + at);
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

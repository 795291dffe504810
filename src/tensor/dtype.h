#pragma once
// DType: how elements are stored, in files and in the KV cache. A quantised type stores blocks of
// elements along the innermost dimension.
//
// Block layouts (little endian; d, m, dmin are fp16; from the public GGUF description):
//   Q4_0  18 B / 32:  d, 16 B nibbles (low nibble = element i, high = i + 16); (q - 8) * d
//   Q4_1  20 B / 32:  d, m, 16 B nibbles;                                      q * d + m
//   Q5_0  22 B / 32:  d, 4 B fifth bits, 16 B nibbles;                         (q - 16) * d
//   Q5_1  24 B / 32:  d, m, 4 B fifth bits, 16 B nibbles;                      q * d + m
//   Q8_0  34 B / 32:  d, 32 int8;                                              q * d
//   Q4_K 144 B / 256: d, dmin, 12 B of 6-bit scales and mins for 8 sub-blocks of 32, 128 B nibbles
//   Q5_K 176 B / 256: d, dmin, 12 B scales and mins, 32 B fifth bits, 128 B nibbles
//   Q6_K 210 B / 256: 128 B low nibbles, 64 B high pairs, 16 int8 scales (sub-blocks of 16), d
// Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cleave {

enum class DType : uint8_t { kF32, kF16, kBF16, kQ40, kQ41, kQ50, kQ51, kQ80, kQ4K, kQ5K, kQ6K };

struct DTypeInfo {
  std::string_view name;    // "Q4_1"
  uint32_t block_elements;  // 1 for plain types
  uint32_t block_bytes;
};

const DTypeInfo& InfoOf(DType dtype);
inline std::string_view NameOf(DType dtype) { return InfoOf(dtype).name; }
inline bool IsQuantised(DType dtype) { return InfoOf(dtype).block_elements > 1; }

// Of quantised types: the code that stands for zero, and whether a minimum is added.
constexpr bool HasMin(DType dtype) {
  return dtype == DType::kQ41 || dtype == DType::kQ51 || dtype == DType::kQ4K ||
         dtype == DType::kQ5K;
}
constexpr uint32_t ZeroCode(DType dtype) {
  if (HasMin(dtype)) return 0;
  if (dtype == DType::kQ80) return 128;
  return dtype == DType::kQ40 ? 8 : dtype == DType::kQ50 ? 16 : 32;
}

// Bytes of a row of `elements`; nothing when the row is not whole blocks or would not fit 64 bits.
std::optional<uint64_t> RowBytes(DType dtype, uint64_t elements);

// Writes `elements` values of one row as fp32, exactly as the format defines them (products and
// sums in fp32, in the order of the layout table). The slow truth behind every fast kernel.
void DequantiseRow(DType dtype, const std::byte* row, uint64_t elements, float* out);

// IEEE half and bfloat16, round to nearest even; NaN stays NaN.
float HalfToFloat(uint16_t h);
uint16_t FloatToHalf(float f);
float BFloat16ToFloat(uint16_t b);
uint16_t FloatToBFloat16(float f);

}  // namespace cleave

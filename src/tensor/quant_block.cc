#include "tensor/quant_block.h"

#include <cstring>

namespace cleave {
namespace {

uint32_t ByteAt(const std::byte* p, size_t i) { return std::to_integer<uint32_t>(p[i]); }

uint16_t Load16(const std::byte* p) {
  uint16_t v = 0;
  std::memcpy(&v, p, sizeof v);
  return v;
}

uint32_t Load32(const std::byte* p) {
  uint32_t v = 0;
  std::memcpy(&v, p, sizeof v);
  return v;
}

float LoadHalf(const std::byte* p) { return HalfToFloat(Load16(p)); }

void SetScale(float d, QuantBlock* b) { b->scale = {d, d}; }

// 16 bytes: the low nibbles are elements 0..15, the high ones 16..31.
void ReadNibbles(const std::byte* p, QuantBlock* b) {
  for (size_t i = 0; i < 16; ++i) {
    const uint32_t v = ByteAt(p, i);
    b->codes[i] = static_cast<uint8_t>(v & 15U);
    b->codes[i + 16] = static_cast<uint8_t>(v >> 4U);
  }
}

void AddFifthBits(const std::byte* p, QuantBlock* b) {
  const uint32_t bits = Load32(p);
  for (size_t i = 0; i < 32; ++i) {
    b->codes[i] = static_cast<uint8_t>(b->codes[i] | ((bits >> i) & 1U) << 4U);
  }
}

// 32 bytes of nibbles shared by two sub-blocks: the even one has the low nibbles.
void ReadSharedNibbles(const std::byte* p, uint32_t half, QuantBlock* b) {
  for (size_t i = 0; i < 32; ++i) {
    b->codes[i] = static_cast<uint8_t>((ByteAt(p, i) >> (4U * half)) & 15U);
  }
}

// Sub-block j of 8 of a Q4_K or Q5_K block. Scales 0..3 are the low six bits of bytes 0..3,
// minimums those of bytes 4..7; scale and minimum 4 + k share byte 8 + k as nibbles, their top two
// bits being the top two of bytes k and 4 + k.
void ReadScaleMin(const std::byte* block, uint32_t j, QuantBlock* b) {
  const std::byte* s = block + 4;
  uint32_t scale = 0;
  uint32_t min = 0;
  if (j < 4) {
    scale = ByteAt(s, j) & 63U;
    min = ByteAt(s, j + 4) & 63U;
  } else {
    const uint32_t low = ByteAt(s, j + 4);
    scale = (low & 15U) | (ByteAt(s, j - 4) >> 6U) << 4U;
    min = low >> 4U | (ByteAt(s, j) >> 6U) << 4U;
  }
  SetScale(LoadHalf(block) * static_cast<float>(scale), b);
  b->min = -(LoadHalf(block + 2) * static_cast<float>(min));
}

// Halves of 128; in each, quarter k = 0..3 of 32: low nibbles of bytes 0..31 and 32..63, then their
// high nibbles; two more bits at 2k of byte i of the half's 32.
void ReadQ6K(const std::byte* block, uint32_t j, QuantBlock* b) {
  const uint32_t half = j / 4;     // of 128 elements
  const uint32_t quarter = j % 4;  // of 32 in it
  const std::byte* low = block + 64 * half + 32 * (quarter % 2);
  const std::byte* high = block + 128 + 32 * half;
  for (size_t i = 0; i < 32; ++i) {
    const uint32_t nibble = (ByteAt(low, i) >> (4U * (quarter / 2))) & 15U;
    const uint32_t top = (ByteAt(high, i) >> (2U * quarter)) & 3U;
    b->codes[i] = static_cast<uint8_t>(nibble | top << 4U);
  }
  const float d = LoadHalf(block + 208);
  for (size_t h = 0; h < 2; ++h) {
    const auto scale = static_cast<int8_t>(ByteAt(block, 192 + 2 * j + h));
    b->scale[h] = d * static_cast<float>(scale);
  }
}

QuantBlock ReadKQuant(DType dtype, const std::byte* row, uint64_t window) {
  QuantBlock b;
  const auto j = static_cast<uint32_t>(window % 8);
  const std::byte* block = row + window / 8 * InfoOf(dtype).block_bytes;
  if (dtype == DType::kQ6K) {
    ReadQ6K(block, j, &b);
    return b;
  }
  ReadScaleMin(block, j, &b);
  const size_t nibbles_at = dtype == DType::kQ4K ? 16 : 48;
  ReadSharedNibbles(block + nibbles_at + 32 * (j / 2), j % 2, &b);
  if (dtype == DType::kQ5K) {
    for (size_t i = 0; i < 32; ++i) {
      const uint32_t fifth = (ByteAt(block, 16 + i) >> j) & 1U;
      b.codes[i] = static_cast<uint8_t>(b.codes[i] | fifth << 4U);
    }
  }
  return b;
}

}  // namespace

QuantBlock ReadQuantBlock(DType dtype, const std::byte* row, uint64_t window) {
  const DTypeInfo& info = InfoOf(dtype);
  if (info.block_elements == 256) return ReadKQuant(dtype, row, window);
  QuantBlock b;
  const std::byte* block = row + window * info.block_bytes;
  const std::byte* p = block + 2;
  SetScale(LoadHalf(block), &b);
  if (dtype == DType::kQ80) {
    for (size_t i = 0; i < 32; ++i) b.codes[i] = static_cast<uint8_t>(ByteAt(p, i) ^ 0x80U);
    return b;
  }
  if (HasMin(dtype)) {
    b.min = LoadHalf(p);
    p += 2;
  }
  const bool five = dtype == DType::kQ50 || dtype == DType::kQ51;
  ReadNibbles(five ? p + 4 : p, &b);
  if (five) AddFifthBits(p, &b);
  return b;
}

void Dequantise(DType dtype, const QuantBlock& block, float* out) {
  const auto zero = static_cast<int>(ZeroCode(dtype));
  const bool has_min = HasMin(dtype);
  for (size_t i = 0; i < 32; ++i) {
    const float product = static_cast<float>(block.codes[i] - zero) * block.scale[i / 16];
    out[i] = has_min ? product + block.min : product;
  }
}

}  // namespace cleave

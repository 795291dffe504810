#include "kernels/weight_block.h"

#include <cstring>

namespace cleave {
namespace {

uint32_t ByteAt(const std::byte* p, size_t i) { return std::to_integer<uint32_t>(p[i]); }

uint16_t Load16(const std::byte* p) {
  uint16_t v = 0;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <typename T>
uint32_t Load32(const T* p) {
  uint32_t v = 0;
  std::memcpy(&v, p, sizeof v);
  return v;
}

void Store32(std::byte* p, uint32_t v) { std::memcpy(p, &v, sizeof v); }

float LoadHalf(const std::byte* p) { return HalfToFloat(Load16(p)); }

void SetScale(float d, WeightBlock* b) { b->scale = {d, d}; }

// 16 bytes: the low nibbles are elements 0..15, the high ones 16..31.
void ReadNibbles(const std::byte* p, WeightBlock* b) {
  for (size_t i = 0; i < 16; ++i) {
    const uint32_t v = ByteAt(p, i);
    b->codes[i] = static_cast<uint8_t>(v & 15U);
    b->codes[i + 16] = static_cast<uint8_t>(v >> 4U);
  }
}

void AddFifthBits(const std::byte* p, WeightBlock* b) {
  const uint32_t bits = Load32(p);
  for (size_t i = 0; i < 32; ++i) {
    b->codes[i] = static_cast<uint8_t>(b->codes[i] | ((bits >> i) & 1U) << 4U);
  }
}

// 32 bytes of nibbles shared by two sub-blocks: the even one has the low nibbles.
void ReadSharedNibbles(const std::byte* p, uint32_t half, WeightBlock* b) {
  for (size_t i = 0; i < 32; ++i) {
    b->codes[i] = static_cast<uint8_t>((ByteAt(p, i) >> (4U * half)) & 15U);
  }
}

// Effective scale and minimum of sub-block j of a Q4_K or Q5_K block, each one fp32 product.
void ReadScaleMin(const std::byte* block, uint32_t j, WeightBlock* b) {
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

void ReadQ6K(const std::byte* block, uint32_t j, WeightBlock* b) {
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

WeightBlock ReadKQuant(DType dtype, const std::byte* row, uint32_t window) {
  WeightBlock b;
  const uint32_t j = window % 8;
  const std::byte* block = row + static_cast<size_t>(window / 8) * InfoOf(dtype).block_bytes;
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

void StoreNibbles(const RecordLayout& layout, const uint8_t* codes, uint32_t lane,
                  std::byte* record) {
  for (size_t v = 0; v < 4; ++v) {
    const uint32_t low = Load32(codes + 8 * v) & 0x0F0F0F0FU;
    const uint32_t high = Load32(codes + 8 * v + 4) & 0x0F0F0F0FU;
    Store32(record + 64 * v + 4 * lane, low | high << 4U);
  }
  std::byte* plane = record + layout.high_at + 4 * lane;
  if (layout.code_bits == 5) {
    uint32_t bits = 0;
    for (uint32_t j = 0; j < 8; ++j) bits |= (Load32(codes + 4 * j) >> 4U & 0x01010101U) << j;
    Store32(plane, bits);
  }
  if (layout.code_bits == 6) {
    for (uint32_t p = 0; p < 2; ++p) {
      uint32_t bits = 0;
      for (uint32_t t = 0; t < 4; ++t) {
        bits |= (Load32(codes + 16 * p + 4 * t) >> 4U & 0x03030303U) << (2 * t);
      }
      Store32(plane + 64 * p, bits);
    }
  }
}

void LoadNibbles(const RecordLayout& layout, const std::byte* record, uint32_t lane,
                 uint8_t* codes) {
  const std::byte* plane = record + layout.high_at + 4 * lane;
  for (uint32_t j = 0; j < 8; ++j) {
    uint32_t word = Load32(record + 64 * (j / 2) + 4 * lane) >> (4 * (j % 2)) & 0x0F0F0F0FU;
    if (layout.code_bits == 5) word |= (Load32(plane) >> j & 0x01010101U) << 4U;
    if (layout.code_bits == 6) {
      word |= (Load32(plane + 64 * (j / 4)) >> (2 * (j % 4)) & 0x03030303U) << 4U;
    }
    std::memcpy(codes + 4 * j, &word, sizeof word);
  }
}

// A value of the record's table of 16 fp16 or fp32 at `at`. Storing fp16 is exact: the value came
// from one.
void StoreLane(const RecordLayout& layout, uint32_t at, uint32_t lane, float v, std::byte* record) {
  if (layout.half_scales) {
    const uint16_t half = FloatToHalf(v);
    std::memcpy(record + at + 2 * lane, &half, sizeof half);
  } else {
    std::memcpy(record + at + 4 * lane, &v, sizeof v);
  }
}

float LoadLane(const RecordLayout& layout, uint32_t at, uint32_t lane, const std::byte* record) {
  if (layout.half_scales) return LoadHalf(record + at + 2 * lane);
  float v = 0;
  std::memcpy(&v, record + at + 4 * lane, sizeof v);
  return v;
}

}  // namespace

WeightBlock ReadSourceBlock(DType dtype, const std::byte* row, uint32_t window) {
  const DTypeInfo& info = InfoOf(dtype);
  if (info.block_elements == 256) return ReadKQuant(dtype, row, window);
  WeightBlock b;
  const std::byte* block = row + static_cast<size_t>(window) * info.block_bytes;
  const std::byte* p = block + 2;
  SetScale(LoadHalf(block), &b);
  if (dtype == DType::kQ80) {
    for (size_t i = 0; i < 32; ++i) b.codes[i] = static_cast<uint8_t>(ByteAt(p, i) ^ 0x80U);
    return b;
  }
  if (dtype == DType::kQ41 || dtype == DType::kQ51) {
    b.min = LoadHalf(p);
    p += 2;
  }
  const bool five = dtype == DType::kQ50 || dtype == DType::kQ51;
  ReadNibbles(five ? p + 4 : p, &b);
  if (five) AddFifthBits(p, &b);
  return b;
}

void StoreBlock(const RecordLayout& layout, const WeightBlock& block, uint32_t lane,
                std::byte* record) {
  const uint8_t* codes = block.codes.data();
  if (layout.code_bits == 8) {
    for (size_t j = 0; j < 8; ++j) Store32(record + 64 * j + 4 * lane, Load32(codes + 4 * j));
  } else {
    StoreNibbles(layout, codes, lane, record);
  }
  for (uint32_t s = 0; s < layout.scales; ++s) {
    StoreLane(layout, layout.scale_at + 64 * s, lane, block.scale[s], record);
  }
  if (layout.has_min) StoreLane(layout, layout.min_at, lane, block.min, record);
}

WeightBlock LoadBlock(const RecordLayout& layout, const std::byte* record, uint32_t lane) {
  WeightBlock b;
  uint8_t* codes = b.codes.data();
  if (layout.code_bits == 8) {
    for (size_t j = 0; j < 8; ++j) std::memcpy(codes + 4 * j, record + 64 * j + 4 * lane, 4);
  } else {
    LoadNibbles(layout, record, lane, codes);
  }
  for (uint32_t s = 0; s < 2; ++s) {
    const uint32_t at = layout.scale_at + (layout.scales == 2 ? 64 * s : 0);
    b.scale[s] = LoadLane(layout, at, lane, record);
  }
  if (layout.has_min) b.min = LoadLane(layout, layout.min_at, lane, record);
  return b;
}

void LoadPlain(DType dtype, const std::byte* record, uint32_t lane, float* out) {
  for (size_t k = 0; k < 32; ++k) {
    switch (dtype) {
      case DType::kBF16:
        out[k] = BFloat16ToFloat(Load16(record + 64 * (k / 2) + 4 * lane + 2 * (k % 2)));
        break;
      case DType::kF16:
        out[k] = LoadHalf(record + 32 * k + 2 * lane);
        break;
      default:
        std::memcpy(out + k, record + 64 * k + 4 * lane, 4);
    }
  }
}

}  // namespace cleave

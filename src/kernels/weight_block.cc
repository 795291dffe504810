#include "kernels/weight_block.h"

#include <cstring>

namespace cleave {
namespace {

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

void StoreBlock(const RecordLayout& layout, const QuantBlock& block, uint32_t lane,
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

QuantBlock LoadBlock(const RecordLayout& layout, const std::byte* record, uint32_t lane) {
  QuantBlock b;
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

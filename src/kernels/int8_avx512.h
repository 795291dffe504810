// Quantised weights by VNNI: four elements of K a step in vpdpbusd, whose unsigned operand is the
// code and whose zero point is undone by the start of the accumulator. Shared by the sources with
// and without AMX. Unnamed namespace: see tile_driver.h.

#pragma once

#include <immintrin.h>

#include "kernels/tile_avx512.h"

namespace cleave {
namespace {  // NOLINT(google-build-namespaces)

// Codes of elements 4j .. 4j + 3 of sixteen rows, a byte each.
template <uint32_t kBits>
[[gnu::always_inline]] inline __m512i Quad(const std::byte* record, int j) {
  if (kBits == 8) return _mm512_loadu_si512(record + 64 * j);
  const __m512i nibble = _mm512_set1_epi8(0x0F);
  const __m512i pair = _mm512_loadu_si512(record + 64 * (j / 2));
  const __m512i low = _mm512_and_si512(j % 2 == 0 ? pair : _mm512_srli_epi16(pair, 4), nibble);
  if (kBits == 4) return low;
  constexpr int kField = kBits == 5 ? 1 : 2;  // high bits of an element
  constexpr int kPerByte = kBits == 5 ? 8 : 4;
  const __m512i plane = _mm512_loadu_si512(record + 256 + 64 * (j / kPerByte));
  const int at = j % kPerByte * kField;  // where they are; they go to bit 4
  const __m512i moved = at < 4 ? _mm512_slli_epi16(plane, static_cast<unsigned>(4 - at))
                               : _mm512_srli_epi16(plane, static_cast<unsigned>(at - 4));
  const __m512i mask = _mm512_set1_epi8(kBits == 5 ? 0x10 : 0x30);
  return _mm512_ternarylogic_epi32(low, moved, mask, 0xF8);  // low | (moved & mask)
}

template <RecordLayout kL>
[[gnu::always_inline]] inline __m512 LoadLanes(const std::byte* record, uint32_t at) {
  const std::byte* p = record + at;
  if (kL.half_scales) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  return _mm512_loadu_ps(p);
}

template <DType kType>
struct Int8Format {
  static constexpr RecordLayout kLayout = LayoutOf(kType);
  static constexpr Tables kTables = Tables::kInt8;

  // Adds quads [first, last) to the integer dots, then the dots times `scale` to the chains.
  template <int kRows, int kFirst, int kLast>
  [[gnu::always_inline]] static inline void Dots(const Tile& t, const std::byte* record,
                                                 uint32_t block, __m512 scale, Chains<kRows>* c) {
    __m512i dot[kRows];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const int32_t start =
          kFirst == 0 ? t.start[block * kRows + r] : t.start_high[block * kRows + r];
      dot[r] = kLayout.zero != 0 ? _mm512_set1_epi32(start) : _mm512_setzero_si512();
    }
    const int8_t* acts = static_cast<const int8_t*>(t.acts) + size_t{32} * block;
#pragma GCC unroll 8
    for (int j = kFirst; j < kLast; ++j) {
      const __m512i codes = Quad<kLayout.code_bits>(record, j);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const int32_t quad = Load32(acts + static_cast<size_t>(r) * t.act_stride + 4 * j);
        dot[r] = _mm512_dpbusd_epi32(dot[r], codes, _mm512_set1_epi32(quad));
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512 product = _mm512_mul_ps(scale, _mm512_set1_ps(t.scale[block * kRows + r]));
      c->f[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), product, c->f[r]);
    }
  }

  template <int kRows>
  [[gnu::always_inline]] static inline void Step(const Tile& t, const std::byte* record,
                                                 uint32_t block, Chains<kRows>* c) {
    const __m512 scale = LoadLanes<kLayout>(record, kLayout.scale_at);
    if (kLayout.scales == 1) {
      Dots<kRows, 0, 8>(t, record, block, scale, c);
    } else {
      Dots<kRows, 0, 4>(t, record, block, scale, c);
      Dots<kRows, 4, 8>(t, record, block, LoadLanes<kLayout>(record, kLayout.scale_at + 64), c);
    }
    if (!kLayout.has_min) return;
    const __m512 min = LoadLanes<kLayout>(record, kLayout.min_at);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      c->f[r] = _mm512_fmadd_ps(min, _mm512_set1_ps(t.scaled_sum[block * kRows + r]), c->f[r]);
    }
  }
};

}  // namespace
}  // namespace cleave

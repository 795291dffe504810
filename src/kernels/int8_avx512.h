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

  // Adds quads [first, last) to the integer dots, then the dots times the scales at `scale_at` to
  // the chains.
  template <int kFirst, int kLast, int kRows, int kGroups>
  [[gnu::always_inline]] static inline void Dots(const Tile& t, const std::byte* record,
                                                 uint32_t block, uint32_t scale_at,
                                                 Chains<kRows, kGroups>* c) {
    __m512i dot[kGroups * kRows];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const int32_t start =
          kFirst == 0 ? t.start[block * kRows + r] : t.start_high[block * kRows + r];
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        dot[g * kRows + r] = kLayout.zero != 0 ? _mm512_set1_epi32(start) : _mm512_setzero_si512();
      }
    }
    const int8_t* acts = static_cast<const int8_t*>(t.acts) + size_t{32} * block;
#pragma GCC unroll 8
    for (int j = kFirst; j < kLast; ++j) {
      __m512i codes[kGroups];
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        codes[g] = Quad<kLayout.code_bits>(record + g * t.group_bytes, j);
      }
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const __m512i quad =
            _mm512_set1_epi32(Load32(acts + static_cast<size_t>(r) * t.act_stride + 4 * j));
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) {
          dot[g * kRows + r] = _mm512_dpbusd_epi32(dot[g * kRows + r], codes[g], quad);
        }
      }
    }
    __m512 scale[kGroups];
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      scale[g] = LoadLanes<kLayout>(record + g * t.group_bytes, scale_at);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512 act_scale = _mm512_set1_ps(t.scale[block * kRows + r]);
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        const int i = g * kRows + r;
        const __m512 product = _mm512_mul_ps(scale[g], act_scale);
        c->f[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i]), product, c->f[i]);
      }
    }
  }

  template <int kRows, int kGroups>
  [[gnu::always_inline]] static inline void Step(const Tile& t, const std::byte* record,
                                                 uint32_t block, Chains<kRows, kGroups>* c) {
    if (kLayout.scales == 1) {
      Dots<0, 8>(t, record, block, kLayout.scale_at, c);
    } else {
      Dots<0, 4>(t, record, block, kLayout.scale_at, c);
      Dots<4, 8>(t, record, block, kLayout.scale_at + 64, c);
    }
    if (!kLayout.has_min) return;
    __m512 min[kGroups];
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      min[g] = LoadLanes<kLayout>(record + g * t.group_bytes, kLayout.min_at);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512 sum = _mm512_set1_ps(t.scaled_sum[block * kRows + r]);
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        c->f[g * kRows + r] = _mm512_fmadd_ps(min[g], sum, c->f[g * kRows + r]);
      }
    }
  }
};

}  // namespace
}  // namespace cleave

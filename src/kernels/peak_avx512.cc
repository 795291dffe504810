// The peak of AVX-512 with VNNI. Twelve chains of sixteen outputs, as the products' largest tile.
//
// Hide makes the compiler take an operand for a new value, so that it neither merges equal
// operations nor moves them out of the loop; it is no instruction.

#include <immintrin.h>

#include "kernels/peak_table.h"

namespace cleave {
namespace {

constexpr int kRows = 12;
constexpr int kChains = 24;       // fma: 4 cycles of latency, 2 a cycle, and as many to spare
constexpr int kStepsOfRound = 8;  // fma of a chain in a round

template <typename V>
[[gnu::always_inline]] inline void Hide(V* v) {
  asm volatile("" : "+v"(*v));
}

// The least that a block of any quantised type takes: eight dot products of four bytes, conversion,
// the product of the two scales, fma. Codes and activations are ones.
void RunInt8(uint64_t rounds, float* accumulators) {
  __m512 chain[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) chain[r] = _mm512_setzero_ps();
  __m512i codes = _mm512_set1_epi8(1);
  __m512i acts = codes;
  __m512i start = _mm512_setzero_si512();
  __m512 scale = _mm512_set1_ps(1.0F);
  __m512 act_scale = scale;
  Hide(&start);
  Hide(&scale);
  for (uint64_t round = 0; round < rounds; ++round) {
    __m512i dot[kRows];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) dot[r] = start;
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      Hide(&codes);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        Hide(&acts);
        dot[r] = _mm512_dpbusd_epi32(dot[r], codes, acts);
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      Hide(&act_scale);
      const __m512 product = _mm512_mul_ps(scale, act_scale);
      chain[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), product, chain[r]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(accumulators + kPeakLanes * r, chain[r]);
}

void RunF32(uint64_t rounds, float* accumulators) {
  __m512 chain[kChains];
#pragma GCC unroll 24
  for (int r = 0; r < kChains; ++r) {
    chain[r] = _mm512_setzero_ps();
    Hide(&chain[r]);
  }
  __m512 weight = _mm512_set1_ps(1.0F);
  __m512 act = weight;
  Hide(&act);
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 8
    for (int j = 0; j < kStepsOfRound; ++j) {
      Hide(&weight);
#pragma GCC unroll 24
      for (int r = 0; r < kChains; ++r) chain[r] = _mm512_fmadd_ps(weight, act, chain[r]);
    }
  }
#pragma GCC unroll 24
  for (int r = 0; r < kChains; ++r) _mm512_storeu_ps(accumulators + kPeakLanes * r, chain[r]);
}

}  // namespace

const PeakLoop kPeakInt8Avx512 = {RunInt8, kRows, 2 * 16 * 32};
const PeakLoop kPeakF32Avx512 = {RunF32, kChains, 2 * 16 * kStepsOfRound};

}  // namespace cleave

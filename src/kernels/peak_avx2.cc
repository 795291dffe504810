// The peak of AVX2 with FMA. Hide: see peak_avx512.cc.

#include <immintrin.h>

#include "kernels/peak_table.h"

namespace cleave {
namespace {

constexpr int kHalfLanes = 8;
constexpr int kRows = 6;           // as the products' largest tile
constexpr int kChains = 12;        // fma: 4 or 5 cycles of latency, 2 a cycle
constexpr int kStepsOfRound = 16;  // fma of a chain in a round

template <typename V>
[[gnu::always_inline]] inline void Hide(V* v) {
  asm volatile("" : "+x"(*v));
}

// The least that eight outputs of a block of any quantised type take, which is that of 4 bits:
// eight products of bytes, added in pairs, whose sums fit 16 bits; one widening of these; then
// conversion, the product of the two scales, fma. Codes and activations are ones, in one register:
// there is none to spare.
void RunInt8(uint64_t rounds, float* accumulators) {
  __m256 chain[kRows];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) chain[r] = _mm256_setzero_ps();
  __m256i bytes = _mm256_set1_epi8(1);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256 act_scale = _mm256_set1_ps(1.0F);
  for (uint64_t round = 0; round < rounds; ++round) {
    __m256i pairs[kRows];
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        Hide(&bytes);
        const __m256i product = _mm256_maddubs_epi16(bytes, bytes);
        pairs[r] = j == 0 ? product : _mm256_add_epi16(pairs[r], product);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      Hide(&act_scale);
      const __m256 product = _mm256_mul_ps(act_scale, act_scale);
      const __m256i dot = _mm256_madd_epi16(pairs[r], ones);
      chain[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), product, chain[r]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) _mm256_storeu_ps(accumulators + kPeakLanes * r, chain[r]);
}

void RunF32(uint64_t rounds, float* accumulators) {
  __m256 chain[kChains];
#pragma GCC unroll 12
  for (int r = 0; r < kChains; ++r) {
    chain[r] = _mm256_setzero_ps();
    Hide(&chain[r]);
  }
  __m256 weight = _mm256_set1_ps(1.0F);
  __m256 act = weight;
  Hide(&act);
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int j = 0; j < kStepsOfRound; ++j) {
      Hide(&weight);
#pragma GCC unroll 12
      for (int r = 0; r < kChains; ++r) chain[r] = _mm256_fmadd_ps(weight, act, chain[r]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kChains; ++r) _mm256_storeu_ps(accumulators + kPeakLanes * r, chain[r]);
}

}  // namespace

const PeakLoop kPeakInt8Avx2 = {RunInt8, kRows, 2 * kHalfLanes * 32};
const PeakLoop kPeakF32Avx2 = {RunF32, kChains, 2 * kHalfLanes* kStepsOfRound};

}  // namespace cleave

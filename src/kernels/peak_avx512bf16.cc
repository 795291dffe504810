// The peak of vdpbf16ps, two multiply-adds a lane.

#include <immintrin.h>

#include "kernels/peak_table.h"

namespace cleave {
namespace {

constexpr int kChains = 24;       // 6 cycles of latency, 2 a cycle, and as many to spare
constexpr int kStepsOfRound = 8;  // dot products of a chain in a round

void RunDotBf16(uint64_t rounds, float* accumulators) {
  __m512 chain[kChains];
#pragma GCC unroll 24
  for (int r = 0; r < kChains; ++r) {
    chain[r] = _mm512_setzero_ps();
    asm volatile("" : "+v"(chain[r]));  // another value each, for all that the compiler knows
  }
  __m512i weights = _mm512_set1_epi16(0x3F80);  // 1
  const __m512i acts = weights;
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 8
    for (int j = 0; j < kStepsOfRound; ++j) {
      asm volatile("" : "+v"(weights));
#pragma GCC unroll 24
      for (int r = 0; r < kChains; ++r) {
        chain[r] = _mm512_dpbf16_ps(chain[r], (__m512bh)weights, (__m512bh)acts);
      }
    }
  }
#pragma GCC unroll 24
  for (int r = 0; r < kChains; ++r) _mm512_storeu_ps(accumulators + kPeakLanes * r, chain[r]);
}

}  // namespace

const PeakLoop kPeakDotBf16 = {RunDotBf16, kChains, 2 * 16 * 2 * kStepsOfRound};

}  // namespace cleave

// Reading by AVX2: half a line a load.

#include <immintrin.h>

#include "kernels/read_stream_table.h"

namespace cleave {
namespace {

constexpr size_t kLineWords = 8;
constexpr size_t kLoadWords = 4;
constexpr int kLoads = static_cast<int>(kStreamTurnWords / kLoadWords);

[[gnu::always_inline]] inline void AddTurn(const uint64_t* words, __m256i* sums) {
#pragma GCC unroll 4
  for (size_t i = 0; i < kStreamTurnWords; i += kLineWords) {
    _mm_prefetch(reinterpret_cast<const char*>(words + kStreamAheadWords + i), _MM_HINT_T0);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kLoads; ++i) {
    const void* at = words + kLoadWords * static_cast<size_t>(i);
    sums[i % 4] =
        _mm256_add_epi64(sums[i % 4], _mm256_loadu_si256(static_cast<const __m256i*>(at)));
  }
}

}  // namespace

uint64_t SumStreamsAvx2(const uint64_t* first, const uint64_t* second, size_t count) {
  __m256i of_first[4];
  __m256i of_second[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) of_first[i] = of_second[i] = _mm256_setzero_si256();
  for (size_t i = 0; i < count; i += kStreamTurnWords) {
    AddTurn(first + i, of_first);
    AddTurn(second + i, of_second);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) of_first[i] = _mm256_add_epi64(of_first[i], of_second[i]);
  of_first[0] = _mm256_add_epi64(_mm256_add_epi64(of_first[0], of_first[1]),
                                 _mm256_add_epi64(of_first[2], of_first[3]));
  uint64_t lanes[kLoadWords];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), of_first[0]);
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace cleave

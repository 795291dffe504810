// Reading by AVX-512: a line a load.

#include <immintrin.h>

#include "kernels/read_stream_table.h"

namespace cleave {
namespace {

constexpr size_t kLineWords = 8;
constexpr size_t kLoadWords = 8;
constexpr int kLoads = static_cast<int>(kStreamTurnWords / kLoadWords);

[[gnu::always_inline]] inline void AddTurn(const uint64_t* words, __m512i* sums) {
#pragma GCC unroll 4
  for (size_t i = 0; i < kStreamTurnWords; i += kLineWords) {
    _mm_prefetch(reinterpret_cast<const char*>(words + kStreamAheadWords + i), _MM_HINT_T0);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kLoads; ++i) {
    const void* at = words + kLoadWords * static_cast<size_t>(i);
    sums[i % 4] = _mm512_add_epi64(sums[i % 4], _mm512_loadu_si512(at));
  }
}

}  // namespace

uint64_t SumStreamsAvx512(const uint64_t* first, const uint64_t* second, size_t count) {
  __m512i of_first[4];
  __m512i of_second[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) of_first[i] = of_second[i] = _mm512_setzero_si512();
  for (size_t i = 0; i < count; i += kStreamTurnWords) {
    AddTurn(first + i, of_first);
    AddTurn(second + i, of_second);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) of_first[i] = _mm512_add_epi64(of_first[i], of_second[i]);
  of_first[0] = _mm512_add_epi64(_mm512_add_epi64(of_first[0], of_first[1]),
                                 _mm512_add_epi64(of_first[2], of_first[3]));
  uint64_t lanes[kLoadWords];
  _mm512_storeu_si512(lanes, of_first[0]);
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace cleave

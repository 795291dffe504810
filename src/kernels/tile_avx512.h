// AVX-512 pieces of the tile kernels, shared by the sources with and without vdpbf16ps. Unnamed
// namespace: see tile_driver.h.

#pragma once

#include <immintrin.h>

#include "kernels/tile_driver.h"

namespace cleave {
namespace {  // NOLINT(google-build-namespaces)

// Bytes: 1 to 2 KB ahead gains 10-30 % from memory, 4 KB and more lose it again.
constexpr size_t kAhead = 2048;

template <int kRows>
struct Chains {
  __m512 f[kRows];
};

template <int kRows>
[[gnu::always_inline]] inline void LoadChains(const Tile& t, Chains<kRows>* c) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) c->f[r] = _mm512_load_ps(t.f[r]);
}

template <int kRows>
[[gnu::always_inline]] inline void StoreChains(const Chains<kRows>& c, Tile* t) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) _mm512_store_ps(t->f[r], c.f[r]);
}

// A sum group ends: its chains become quanta and start again at zero. kScale: the chain does not
// have the power of two in it yet.
template <bool kScale, int kRows>
[[gnu::always_inline]] inline void CloseSumGroup(Tile* t, Chains<kRows>* c) {
  if (kScale) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      c->f[r] = _mm512_mul_ps(c->f[r], _mm512_set1_ps(t->power[r]));
    }
  }
  if (t->any_wide) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512i low = _mm512_cvtps_epi64(_mm512_castps512_ps256(c->f[r]));
      const __m512i high = _mm512_cvtps_epi64(_mm512_extractf32x8_ps(c->f[r], 1));
      int64_t* sum = t->wide[r];
      _mm512_store_si512(sum, _mm512_add_epi64(_mm512_load_si512(sum), low));
      _mm512_store_si512(sum + 8, _mm512_add_epi64(_mm512_load_si512(sum + 8), high));
      c->f[r] = _mm512_setzero_ps();
    }
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    int32_t* sum = t->narrow[r];
    const __m512i quanta = _mm512_cvtps_epi32(c->f[r]);
    _mm512_store_si512(sum, _mm512_add_epi32(_mm512_load_si512(sum), quanta));
    c->f[r] = _mm512_setzero_ps();
  }
}

// Fetches the lines of the record `kAhead` bytes on: a stream is read once, in order, also across
// groups, but the processor's own prefetcher stops at every page.
template <class Format>
[[gnu::always_inline]] inline void PrefetchRecord(const std::byte* record) {
#pragma GCC unroll 32
  for (uint32_t at = 0; at < Format::kLayout.bytes; at += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(record) + kAhead + at, _MM_HINT_T0);
  }
}

// Walks a chunk: Format::Step takes one block, given its record and its index in the chunk. One
// loop over all blocks: a loop per sum group would set up the rows' addresses anew for every two
// blocks.
template <class Format, int kRows>
void WalkChunk(Tile* t) {
  Chains<kRows> c;
  LoadChains(*t, &c);
  const std::byte* record = t->records;
  const uint32_t* end = t->ends;
  const uint32_t* last_end = t->ends + t->end_count;
  for (uint32_t block = 0; block < t->blocks; ++block) {
    PrefetchRecord<Format>(record);
    Format::template Step<kRows>(*t, record, block, &c);
    record += Format::kLayout.bytes;
    if (end != last_end && t->first_block + block + 1 == *end) {
      CloseSumGroup<Format::kLayout.scales == 0>(t, &c);
      ++end;
    }
  }
  StoreChains(c, t);
}

// Twelve rows of two dots each do not fit the registers.
template <class Format>
struct Kernels {
  static constexpr KernelTable kTable = {
      {nullptr, WalkChunk<Format, 1>, WalkChunk<Format, 2>, WalkChunk<Format, 3>,
       WalkChunk<Format, 4>, nullptr, WalkChunk<Format, 6>, nullptr, WalkChunk<Format, 8>, nullptr,
       nullptr, nullptr, Format::kLayout.scales == 2 ? nullptr : WalkChunk<Format, 12>}};
};

}  // namespace
}  // namespace cleave

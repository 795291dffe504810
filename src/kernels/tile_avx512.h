// AVX-512 pieces of the tile kernels, shared by the sources with and without vdpbf16ps. Unnamed
// namespace: see tile_driver.h.

#pragma once

#include <immintrin.h>

#include "kernels/tile_driver.h"

namespace cleave {
namespace {  // NOLINT(google-build-namespaces)

// Bytes: 1 to 2 KB ahead gains 10-30 % from memory, 4 KB and more lose it again.
constexpr size_t kAhead = 2048;

// Of every row for the first group, then of every row for the next.
template <int kRows, int kGroups = 1>
struct Chains {
  __m512 f[kGroups * kRows];
};

template <int kRows, int kGroups>
[[gnu::always_inline]] inline void LoadChains(const Tile& t, Chains<kRows, kGroups>* c) {
#pragma GCC unroll 16
  for (int i = 0; i < kGroups * kRows; ++i) {
    c->f[i] = t.first_block == 0 ? _mm512_setzero_ps() : _mm512_load_ps(t.f[i]);
  }
}

template <int kRows, int kGroups>
[[gnu::always_inline]] inline void StoreChains(const Chains<kRows, kGroups>& c, Tile* t) {
#pragma GCC unroll 16
  for (int i = 0; i < kGroups * kRows; ++i) {
    float* to = t->y == nullptr ? t->f[i] : t->y + i % kRows * t->y_stride + i / kRows * kLanes;
    _mm512_storeu_ps(to, c.f[i]);
  }
}

// A sum group ends: its chains become quanta and start again at zero. kScale: the chain does not
// have the power of two in it yet.
template <bool kScale, int kRows, int kGroups>
[[gnu::always_inline]] inline void CloseSumGroup(Tile* t, Chains<kRows, kGroups>* c) {
  if (kScale) {
#pragma GCC unroll 16
    for (int i = 0; i < kGroups * kRows; ++i) {
      c->f[i] = _mm512_mul_ps(c->f[i], _mm512_set1_ps(t->power[i % kRows]));
    }
  }
  if (t->any_wide) {
#pragma GCC unroll 16
    for (int i = 0; i < kGroups * kRows; ++i) {
      const __m512i low = _mm512_cvtps_epi64(_mm512_castps512_ps256(c->f[i]));
      const __m512i high = _mm512_cvtps_epi64(_mm512_extractf32x8_ps(c->f[i], 1));
      int64_t* sum = t->wide[i];
      _mm512_store_si512(sum, _mm512_add_epi64(_mm512_load_si512(sum), low));
      _mm512_store_si512(sum + 8, _mm512_add_epi64(_mm512_load_si512(sum + 8), high));
      c->f[i] = _mm512_setzero_ps();
    }
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kGroups * kRows; ++i) {
    int32_t* sum = t->narrow[i];
    const __m512i quanta = _mm512_cvtps_epi32(c->f[i]);
    _mm512_store_si512(sum, _mm512_add_epi32(_mm512_load_si512(sum), quanta));
    c->f[i] = _mm512_setzero_ps();
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

// Walks a chunk: Format::Step takes one block of every group, given the first group's record and
// the block's index in the chunk. One loop over all blocks: a loop per sum group would set up the
// rows' addresses anew for every two blocks. A single group's stream is fetched as it is read; what
// a pair reads, the driver has had fetched.
template <class Format, int kRows, int kGroups>
void WalkChunk(Tile* t) {
  static_assert(kGroups * kRows <= kMaxTileRows);
  Chains<kRows, kGroups> c;
  LoadChains(*t, &c);
  const std::byte* record = t->records;
  const uint32_t* end = t->ends;
  const uint32_t* last_end = t->ends + t->end_count;
  for (uint32_t block = 0; block < t->blocks; ++block) {
    if (kGroups == 1) {
      PrefetchRecord<Format>(record);
    } else if (t->fetches_records) {
      PrefetchRecord<Format>(record);
      PrefetchRecord<Format>(record + t->group_bytes);
    } else {
      t->ahead.FetchPiece();
    }
    Format::Step(*t, record, block, &c);
    record += Format::kLayout.bytes;
    if (end != last_end && t->first_block + block + 1 == *end) {
      CloseSumGroup<Format::kLayout.scales == 0>(t, &c);
      ++end;
    }
  }
  StoreChains(c, t);
}

// Few rows: a group at a time, a single stream from memory. More: two groups share what is loaded
// of the activations, so that a block takes 6 · 8 loads of them and 16 of codes where twelve rows
// of one group take 96 and 8, of 132 and more operations (Zen 4 loads one vector a cycle). Twelve
// chains and twelve dots fit the registers; eight of each where halves of a block have their own
// scales.
template <class Format>
struct Kernels {
  static constexpr bool kHalves = Format::kLayout.scales == 2;
  static constexpr uint32_t kFew = Format::kLayout.scales > 0 ? 8 : 5;  // what wait for the memory
  static constexpr KernelTable kOfFew = {
      .by_rows = {nullptr, WalkChunk<Format, 1, 1>, WalkChunk<Format, 2, 1>,
                  WalkChunk<Format, 3, 1>, WalkChunk<Format, 4, 1>, nullptr,
                  WalkChunk<Format, 6, 1>, nullptr, WalkChunk<Format, 8, 1>},
      .pairs = {}};
  static constexpr KernelTable kOfMany = {
      .by_rows = {nullptr, WalkChunk<Format, 1, 1>, WalkChunk<Format, 2, 1>,
                  WalkChunk<Format, 3, 1>, WalkChunk<Format, 4, 1>, nullptr,
                  kHalves ? nullptr : WalkChunk<Format, 6, 1>},
      .pairs = {nullptr, WalkChunk<Format, 1, 2>, WalkChunk<Format, 2, 2>, WalkChunk<Format, 3, 2>,
                WalkChunk<Format, 4, 2>, nullptr, kHalves ? nullptr : WalkChunk<Format, 6, 2>}};
  static constexpr const KernelTable& TableOf(uint32_t rows) {
    return rows > kFew ? kOfMany : kOfFew;
  }
};

}  // namespace
}  // namespace cleave

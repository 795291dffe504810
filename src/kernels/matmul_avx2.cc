// Products by AVX2: a group's sixteen outputs as two walks of eight, each with up to six rows in
// registers.
//
// vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits and saturates. Codes of
// 4, 5 and 6 bits cannot reach that: pairs are at most 2·127·15, 2·127·31 and 2·127·63, so 8, 4 and
// 2 of them are added before the sums are widened. 8-bit weights are used signed: |w| times the
// activation with w's sign is at most 2·128·127 = 32512.

#include <immintrin.h>

#include "kernels/matmul_job.h"
#include "kernels/tile_driver.h"

namespace cleave {
namespace {

constexpr int kHalfLanes = 8;

template <int kRows>
struct Chains {
  __m256 f[kRows];
};

[[gnu::always_inline]] inline __m256i LoadBytes(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Sum groups of eight lanes, in int64. There is no vector conversion from float to int64 here; the
// scalar one gives the same value out of range and for NaN.
inline void AddWide(__m256 f, int64_t* sum) {
  alignas(32) float lanes[kHalfLanes];
  _mm256_store_ps(lanes, f);
  for (int i = 0; i < kHalfLanes; ++i) {
    const auto quanta = static_cast<uint64_t>(_mm_cvtss_si64(_mm_load_ss(lanes + i)));
    sum[i] = static_cast<int64_t>(static_cast<uint64_t>(sum[i]) + quanta);
  }
}

// A sum group ends: its chains become quanta and start again at zero. kScale: the chain does not
// have the power of two in it yet.
template <bool kScale, int kHalf, int kRows>
[[gnu::always_inline]] inline void CloseSumGroup(Tile* t, Chains<kRows>* c) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    if (kScale) c->f[r] = _mm256_mul_ps(c->f[r], _mm256_set1_ps(t->power[r]));
    if (t->any_wide) {
      AddWide(c->f[r], t->wide[r] + kHalf * kHalfLanes);
    } else {
      auto* sum = reinterpret_cast<__m256i*>(t->narrow[r] + kHalf * kHalfLanes);
      const __m256i quanta = _mm256_cvtps_epi32(c->f[r]);
      _mm256_store_si256(sum, _mm256_add_epi32(_mm256_load_si256(sum), quanta));
    }
    c->f[r] = _mm256_setzero_ps();
  }
}

// Eight lanes of a chunk: Format::Step takes one block, given its record and index in the chunk.
template <class Format, int kRows, int kHalf>
[[gnu::always_inline]] inline void WalkHalf(Tile* t) {
  Chains<kRows> c;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    c.f[r] =
        t->first_block == 0 ? _mm256_setzero_ps() : _mm256_load_ps(t->f[r] + kHalf * kHalfLanes);
  }
  const std::byte* record = t->records;
  const uint32_t* end = t->ends;
  const uint32_t* last_end = t->ends + t->end_count;
  for (uint32_t block = 0; block < t->blocks; ++block) {
    Format::template Step<kRows, kHalf>(*t, record, block, &c);
    record += Format::kLayout.bytes;
    if (end != last_end && t->first_block + block + 1 == *end) {
      CloseSumGroup<Format::kLayout.scales == 0, kHalf>(t, &c);
      ++end;
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    float* to = t->y == nullptr ? t->f[r] : t->y + r * t->y_stride;
    _mm256_storeu_ps(to + kHalf * kHalfLanes, c.f[r]);
  }
}

template <class Format, int kRows>
void WalkChunk(Tile* t) {
  WalkHalf<Format, kRows, 0>(t);
  WalkHalf<Format, kRows, 1>(t);
}

template <class Format>
struct Kernels {
  static constexpr KernelTable kTable = {
      .by_rows = {nullptr, WalkChunk<Format, 1>, WalkChunk<Format, 2>, WalkChunk<Format, 3>,
                  WalkChunk<Format, 4>, nullptr, WalkChunk<Format, 6>},
      .pairs = {}};
  static constexpr const KernelTable& TableOf(uint32_t /*rows*/) { return kTable; }
};

// Codes of elements 4j .. 4j + 3 of eight rows, a byte each; of 8 bits, as signed weights.
template <uint32_t kBits, int kHalf>
[[gnu::always_inline]] inline __m256i Quad(const std::byte* record, int j) {
  const std::byte* half = record + 32 * kHalf;
  if (kBits == 8) {
    return _mm256_xor_si256(LoadBytes(half + 64 * j), _mm256_set1_epi8(static_cast<char>(0x80)));
  }
  const __m256i nibble = _mm256_set1_epi8(0x0F);
  const __m256i pair = LoadBytes(half + 64 * (j / 2));
  const __m256i low = _mm256_and_si256(j % 2 == 0 ? pair : _mm256_srli_epi16(pair, 4), nibble);
  if (kBits == 4) return low;
  constexpr int kField = kBits == 5 ? 1 : 2;  // high bits of an element
  constexpr int kPerByte = kBits == 5 ? 8 : 4;
  const __m256i plane = LoadBytes(half + 256 + 64 * (j / kPerByte));
  const int at = j % kPerByte * kField;  // where they are; they go to bit 4
  const __m256i moved =
      at < 4 ? _mm256_slli_epi16(plane, 4 - at) : _mm256_srli_epi16(plane, at - 4);
  const __m256i mask = _mm256_set1_epi8(kBits == 5 ? 0x10 : 0x30);
  return _mm256_or_si256(low, _mm256_and_si256(moved, mask));
}

template <RecordLayout kL, int kHalf>
[[gnu::always_inline]] inline __m256 LoadLanes(const std::byte* record, uint32_t at) {
  const std::byte* p = record + at + (kL.half_scales ? 16 : 32) * kHalf;
  if (kL.half_scales) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
}

template <DType kType>
struct Int8Format {
  static constexpr RecordLayout kLayout = LayoutOf(kType);
  static constexpr Tables kTables = Tables::kInt8;
  static constexpr uint32_t kBits = kLayout.code_bits;
  // Pairs added in 16 bits before they are widened; see the top of the file.
  static constexpr int kPairSums = kBits == 4 ? 8 : kBits == 5 ? 4 : kBits == 6 ? 2 : 1;

  // dot[r] += quads [kFirst, kLast) of row r. Recursive, so that every index is a constant and the
  // arrays stay in registers.
  template <int kRows, int kHalf, int kFirst, int kLast>
  [[gnu::always_inline]] static inline void AddQuads(const int8_t* acts, size_t stride,
                                                     const std::byte* record, __m256i* dot) {
    __m256i pairs[kRows];
#pragma GCC unroll 8
    for (int j = kFirst; j < kFirst + kPairSums; ++j) {
      const __m256i codes = Quad<kBits, kHalf>(record, j);
      const __m256i magnitude = kBits == 8 ? _mm256_abs_epi8(codes) : codes;
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        __m256i a = _mm256_set1_epi32(Load32(acts + static_cast<size_t>(r) * stride + 4 * j));
        if (kBits == 8) a = _mm256_sign_epi8(a, codes);
        const __m256i product = _mm256_maddubs_epi16(magnitude, a);
        pairs[r] = j == kFirst ? product : _mm256_add_epi16(pairs[r], product);
      }
    }
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      dot[r] = _mm256_add_epi32(dot[r], _mm256_madd_epi16(pairs[r], ones));
    }
    if constexpr (kFirst + kPairSums < kLast) {
      AddQuads<kRows, kHalf, kFirst + kPairSums, kLast>(acts, stride, record, dot);
    }
  }

  // The integer dots of quads [first, last), then these times `scale` into the chains.
  template <int kRows, int kHalf, int kFirst, int kLast>
  [[gnu::always_inline]] static inline void Dots(const Tile& t, const std::byte* record,
                                                 uint32_t block, __m256 scale, Chains<kRows>* c) {
    __m256i dot[kRows];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const int32_t start =
          kFirst == 0 ? t.start[block * kRows + r] : t.start_high[block * kRows + r];
      const bool shifted = kLayout.zero != 0 && kBits != 8;
      dot[r] = shifted ? _mm256_set1_epi32(start) : _mm256_setzero_si256();
    }
    const int8_t* acts = static_cast<const int8_t*>(t.acts) + static_cast<size_t>(32) * block;
    AddQuads<kRows, kHalf, kFirst, kLast>(acts, t.act_stride, record, dot);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 product = _mm256_mul_ps(scale, _mm256_set1_ps(t.scale[block * kRows + r]));
      c->f[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r]), product, c->f[r]);
    }
  }

  template <int kRows, int kHalf>
  [[gnu::always_inline]] static inline void Step(const Tile& t, const std::byte* record,
                                                 uint32_t block, Chains<kRows>* c) {
    const __m256 scale = LoadLanes<kLayout, kHalf>(record, kLayout.scale_at);
    if (kLayout.scales == 1) {
      Dots<kRows, kHalf, 0, 8>(t, record, block, scale, c);
    } else {
      Dots<kRows, kHalf, 0, 4>(t, record, block, scale, c);
      const __m256 high = LoadLanes<kLayout, kHalf>(record, kLayout.scale_at + 64);
      Dots<kRows, kHalf, 4, 8>(t, record, block, high, c);
    }
    if (!kLayout.has_min) return;
    const __m256 min = LoadLanes<kLayout, kHalf>(record, kLayout.min_at);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      c->f[r] = _mm256_fmadd_ps(min, _mm256_set1_ps(t.scaled_sum[block * kRows + r]), c->f[r]);
    }
  }
};

// f32 and f16: one element of K of eight rows a step.
template <DType kType>
struct FloatFormat {
  static constexpr RecordLayout kLayout = LayoutOf(kType);
  static constexpr Tables kTables = Tables::kNone;

  template <int kRows, int kHalf>
  [[gnu::always_inline]] static inline void Step(const Tile& t, const std::byte* record,
                                                 uint32_t block, Chains<kRows>* c) {
    const float* acts = static_cast<const float*>(t.acts) + static_cast<size_t>(32) * block;
#pragma GCC unroll 4
    for (size_t k = 0; k < 32; ++k) {
      const std::byte* p = record + (2 * k + kHalf) * kLayout.code_bits;
      const __m256 w = kType == DType::kF32
                           ? _mm256_loadu_ps(reinterpret_cast<const float*>(p))
                           : _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const float a = acts[static_cast<size_t>(r) * t.act_stride + k];
        c->f[r] = _mm256_fmadd_ps(w, _mm256_set1_ps(a), c->f[r]);
      }
    }
  }
};

// bf16: two fma a pair, the odd element first.
struct Bf16Format {
  static constexpr RecordLayout kLayout = LayoutOf(DType::kBF16);
  static constexpr Tables kTables = Tables::kExpandedBf16;

  template <int kRows, int kHalf>
  [[gnu::always_inline]] static inline void Step(const Tile& t, const std::byte* record,
                                                 uint32_t block, Chains<kRows>* c) {
    const uint32_t* acts = &t.expanded[0][32 * block];
    const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000U));
#pragma GCC unroll 4
    for (size_t j = 0; j < 16; ++j) {
      const __m256i w = LoadBytes(record + 64 * j + 32 * kHalf);
      const __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(w, high));
      const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const uint32_t* a = acts + static_cast<size_t>(r) * (32 * kChunkBlocksBf16) + 2 * j;
        c->f[r] = _mm256_fmadd_ps(
            odd, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int32_t>(a[1]))), c->f[r]);
        c->f[r] = _mm256_fmadd_ps(
            even, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int32_t>(a[0]))), c->f[r]);
      }
    }
  }
};

}  // namespace

void MatmulAvx2(const MatmulJob& job) {
  Formats<Int8Format, FloatFormat, Bf16Format, Kernels>::Run(job);
}

}  // namespace cleave

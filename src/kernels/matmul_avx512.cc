// Products by AVX-512: sixteen outputs in the lanes of one register.

#include <immintrin.h>

#include "kernels/int8_avx512.h"
#include "kernels/matmul_job.h"
#include "kernels/tile_avx512.h"

namespace cleave {
namespace {

// f32 and f16: one element of K of sixteen rows a step.
template <DType kType>
struct FloatFormat {
  static constexpr RecordLayout kLayout = LayoutOf(kType);
  static constexpr Tables kTables = Tables::kNone;

  template <int kRows, int kGroups>
  [[gnu::always_inline]] static inline void Step(const Tile& t, const std::byte* record,
                                                 uint32_t block, Chains<kRows, kGroups>* c) {
    const float* acts = static_cast<const float*>(t.acts) + size_t{32} * block;
#pragma GCC unroll 4
    for (size_t k = 0; k < 32; ++k) {
      __m512 w[kGroups];
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        const std::byte* p = record + g * t.group_bytes + k * (kLayout.code_bits * 2);
        w[g] = kType == DType::kF32
                   ? _mm512_loadu_ps(p)
                   : _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
      }
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const __m512 a = _mm512_set1_ps(acts[static_cast<size_t>(r) * t.act_stride + k]);
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) {
          c->f[g * kRows + r] = _mm512_fmadd_ps(w[g], a, c->f[g * kRows + r]);
        }
      }
    }
  }
};

// bf16 where vdpbf16ps is missing or slow: the same chain by two fma a pair, the odd element first.
struct Bf16Format {
  static constexpr RecordLayout kLayout = LayoutOf(DType::kBF16);
  static constexpr Tables kTables = Tables::kExpandedBf16;

  template <int kRows, int kGroups>
  [[gnu::always_inline]] static inline void Step(const Tile& t, const std::byte* record,
                                                 uint32_t block, Chains<kRows, kGroups>* c) {
    const uint32_t* acts = &t.expanded[0][32 * block];
    const __m512i high = _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000U));
#pragma GCC unroll 4
    for (size_t j = 0; j < 16; ++j) {
      __m512 odd[kGroups];
      __m512 even[kGroups];
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        const __m512i w = _mm512_loadu_si512(record + g * t.group_bytes + 64 * j);
        odd[g] = _mm512_castsi512_ps(_mm512_and_si512(w, high));
        even[g] = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
      }
      AddProducts(odd, acts + 2 * j + 1, c);
      AddProducts(even, acts + 2 * j, c);
    }
  }

  // Of one element of K.
  template <int kRows, int kGroups>
  [[gnu::always_inline]] static inline void AddProducts(const __m512 (&w)[kGroups],
                                                        const uint32_t* acts,
                                                        Chains<kRows, kGroups>* c) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const uint32_t bits = acts[static_cast<size_t>(r) * (32 * kChunkBlocksBf16)];
      const __m512 a = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int32_t>(bits)));
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        c->f[g * kRows + r] = _mm512_fmadd_ps(w[g], a, c->f[g * kRows + r]);
      }
    }
  }
};

}  // namespace

void MatmulAvx512(const MatmulJob& job) {
  Formats<Int8Format, FloatFormat, Bf16Format, Kernels>::Run(job);
}

}  // namespace cleave

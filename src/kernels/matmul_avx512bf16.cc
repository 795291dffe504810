// bf16 weights by vdpbf16ps, which is fma(odd) then fma(even) of a pair with denormals flushed: the
// chain of docs/arithmetic.md in one instruction.

#include <immintrin.h>

#include "kernels/matmul_job.h"
#include "kernels/tile_avx512.h"

namespace cleave {
namespace {

struct DotFormat {
  static constexpr RecordLayout kLayout = LayoutOf(DType::kBF16);

  template <int kRows, int kGroups>
  [[gnu::always_inline]] static inline void Step(const Tile& t, const std::byte* record,
                                                 uint32_t block, Chains<kRows, kGroups>* c) {
    const uint16_t* acts = static_cast<const uint16_t*>(t.acts) + size_t{32} * block;
#pragma GCC unroll 8
    for (size_t j = 0; j < 16; ++j) {
      __m512i w[kGroups];
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        w[g] = _mm512_loadu_si512(record + g * t.group_bytes + 64 * j);
      }
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const __m512i a =
            _mm512_set1_epi32(Load32(acts + static_cast<size_t>(r) * t.act_stride + 2 * j));
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) {
          const int i = g * kRows + r;
          c->f[i] = _mm512_dpbf16_ps(c->f[i], (__m512bh)w[g], (__m512bh)a);
        }
      }
    }
  }
};

}  // namespace

void MatmulAvx512Bf16(const MatmulJob& job) {
  RunJob(job, ShapeOf(DotFormat::kLayout, Tables::kNone), Kernels<DotFormat>::TableOf(job.rows));
}

}  // namespace cleave

// Preparing activations by AVX2, as matmul_scalar.cc does it.

#include <immintrin.h>

#include "kernels/prepare_driver.h"

namespace cleave {
namespace {

float LargestLane(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
  return _mm_cvtss_f32(m);
}

int32_t SumLanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
  return _mm_cvtsi128_si32(s) + _mm_extract_epi32(s, 1);
}

void QuantiseBlock(const QuantiseJob& job, uint32_t b) {
  const float* x = job.x + 32 * static_cast<size_t>(b);
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  const __m256 largest = _mm256_set1_ps(kLargest);
  __m256 v[4];
  __m256 amax4 = _mm256_setzero_ps();
  __m256 not_finite = _mm256_setzero_ps();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    const __m256 a = _mm256_and_ps(v[i], magnitude);
    amax4 = _mm256_max_ps(amax4, a);
    not_finite = _mm256_or_ps(not_finite, _mm256_cmp_ps(a, largest, _CMP_NLE_UQ));
  }
  if (_mm256_movemask_ps(not_finite) != 0) return SetZero(job, b, __builtin_nanf(""));
  const float amax = LargestLane(amax4);
  if (amax < kSmallestAmax) return SetZero(job, b, 0.0F);
  const float d = amax / 127.0F;
  const __m256 inverse = _mm256_set1_ps(1.0F / d);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  job.scale[b] = d;
  job.half_sum[b] = SumLanes(_mm256_add_epi32(q[0], q[1]));
  job.sum[b] = job.half_sum[b] + SumLanes(_mm256_add_epi32(q[2], q[3]));
  // Packing works within halves of a register: fours of elements come out as 0 2 4 6 1 3 5 7.
  const __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(job.q + 32 * static_cast<size_t>(b)),
                      _mm256_permutevar8x32_epi32(bytes, order));
}

__m256i RoundEight(const float* x) {
  const __m256 v = _mm256_loadu_ps(x);
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i top = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
  const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, nan);
}

}  // namespace

void QuantiseAvx2(const QuantiseJob& job) {
  for (uint32_t b = 0; b < job.count; ++b) QuantiseBlock(job, b);
}

void RoundToBf16Avx2(const float* x, uint32_t n, uint16_t* out) {
  for (uint32_t i = 0; i < n; i += 16) {
    const __m256i packed = _mm256_packus_epi32(RoundEight(x + i), RoundEight(x + i + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm256_permute4x64_epi64(packed, 0xD8));
  }
}

}  // namespace cleave

// Preparing activations by AVX-512, as matmul_scalar.cc does it.

#include <immintrin.h>

#include "kernels/prepare_driver.h"

namespace cleave {
namespace {

struct Halves {
  __m512 low;
  __m512 high;
};

void QuantiseBlock(const QuantiseJob& job, uint32_t b) {
  const float* x = job.x + 32 * static_cast<size_t>(b);
  const Halves v = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
  const Halves a = {_mm512_abs_ps(v.low), _mm512_abs_ps(v.high)};
  const __m512 largest = _mm512_set1_ps(kLargest);
  const auto not_finite = static_cast<uint32_t>(_mm512_cmp_ps_mask(a.low, largest, _CMP_NLE_UQ) |
                                                _mm512_cmp_ps_mask(a.high, largest, _CMP_NLE_UQ));
  if (not_finite != 0) return SetZero(job, b, __builtin_nanf(""));
  const float amax = _mm512_reduce_max_ps(_mm512_max_ps(a.low, a.high));
  if (amax < kSmallestAmax) return SetZero(job, b, 0.0F);
  const float d = amax / 127.0F;
  const __m512 inverse = _mm512_set1_ps(1.0F / d);
  const __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(v.low, inverse));
  const __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(v.high, inverse));
  auto* q = reinterpret_cast<__m128i*>(job.q + 32 * static_cast<size_t>(b));
  _mm_storeu_si128(q, _mm512_cvtepi32_epi8(low));
  _mm_storeu_si128(q + 1, _mm512_cvtepi32_epi8(high));
  job.scale[b] = d;
  job.half_sum[b] = _mm512_reduce_add_epi32(low);
  job.sum[b] = job.half_sum[b] + _mm512_reduce_add_epi32(high);
}

}  // namespace

void QuantiseAvx512(const QuantiseJob& job) {
  for (uint32_t b = 0; b < job.count; ++b) QuantiseBlock(job, b);
}

void RoundToBf16Avx512(const float* x, uint32_t n, uint16_t* out) {
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i bias = _mm512_set1_epi32(0x7FFF);
  const __m512i quiet = _mm512_set1_epi32(0x40);
  for (uint32_t i = 0; i < n; i += 16) {
    const __m512 v = _mm512_loadu_ps(x + i);
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i top = _mm512_srli_epi32(bits, 16);
    const __m512i up = _mm512_add_epi32(bias, _mm512_and_si512(top, one));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i result = _mm512_mask_or_epi32(rounded, nan, top, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtepi32_epi16(result));
  }
}

}  // namespace cleave

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

// Sixteen blocks at once: what is reduced lies across the lanes of a block's vectors, so that
// sixteen such vectors are merged, two by two, into one whose lanes are the blocks'.
constexpr uint32_t kBatch = 16;

// {a[0], b[0], a[1], b[1]} of each four lanes, where x[i] has merged lanes i and i + 2.
[[gnu::always_inline]] inline __m512i MergeMax(__m512i a, __m512i b) {
  return _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

// Lane b: the largest of the sixteen lanes of m[b].
[[gnu::always_inline]] inline __m512i LargestOfEach(const __m512i* m) {
  __m512i quarter[4];  // [four blocks in each four lanes]
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i ab = MergeMax(m[4 * i], m[4 * i + 1]);
    const __m512i cd = MergeMax(m[4 * i + 2], m[4 * i + 3]);
    quarter[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  }
  const auto merge = [](__m512i x, __m512i y) {
    return _mm512_max_epi32(_mm512_shuffle_i32x4(x, y, 0x88), _mm512_shuffle_i32x4(x, y, 0xDD));
  };
  return merge(merge(quarter[0], quarter[1]), merge(quarter[2], quarter[3]));
}

// Σq of eight blocks from their bytes.
[[gnu::always_inline]] inline void SumEight(const int8_t* q, int32_t* half_sum, int32_t* sum) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i four[4];  // [pair of blocks]: its lanes are sums of four elements
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    four[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, _mm512_loadu_si512(q + 64 * i));
  }
  const auto add = [](__m512i low, __m512i high) { return _mm512_add_epi32(low, high); };
  const __m512i ab =
      add(_mm512_unpacklo_epi32(four[0], four[1]), _mm512_unpackhi_epi32(four[0], four[1]));
  const __m512i cd =
      add(_mm512_unpacklo_epi32(four[2], four[3]), _mm512_unpackhi_epi32(four[2], four[3]));
  // Four lanes each: first halves of blocks 0, 2, 4, 6; their second halves; those of 1, 3, 5, 7.
  const __m512i all = add(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m512i first = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(4));
  const __m256i half = _mm512_castsi512_si256(_mm512_permutexvar_epi32(first, all));
  const __m256i rest = _mm512_castsi512_si256(_mm512_permutexvar_epi32(second, all));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(half_sum), half);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sum), _mm256_add_epi32(half, rest));
}

// Blocks [b, b + 16); false, and nothing is written, when one is not finite.
bool QuantiseBatch(const QuantiseJob& job, uint32_t b) {
  const float* x = job.x + 32 * static_cast<size_t>(b);
  __m512i m[kBatch];  // bits of magnitudes: as integers they are ordered as the floats, NaN last
#pragma GCC unroll 16
  for (uint32_t i = 0; i < kBatch; ++i) {
    const __m512i sign = _mm512_set1_epi32(static_cast<int32_t>(0x80000000U));
    m[i] = _mm512_max_epi32(_mm512_andnot_si512(sign, _mm512_loadu_si512(x + 32 * i)),
                            _mm512_andnot_si512(sign, _mm512_loadu_si512(x + 32 * i + 16)));
  }
  const __m512i bits = LargestOfEach(m);
  const __m512 amax = _mm512_castsi512_ps(bits);
  const __m512i largest = _mm512_castps_si512(_mm512_set1_ps(kLargest));
  if (_mm512_cmpgt_epi32_mask(bits, largest) != 0) return false;
  // Of a block of zeros: scale 0, and no element counts.
  const __mmask16 counts = _mm512_cmp_ps_mask(amax, _mm512_set1_ps(kSmallestAmax), _CMP_NLT_UQ);
  const __m512 d = _mm512_maskz_div_ps(counts, amax, _mm512_set1_ps(127.0F));
  _mm512_storeu_ps(job.scale + b, d);
  alignas(64) float inverse[kBatch];
  _mm512_store_ps(inverse, _mm512_maskz_div_ps(counts, _mm512_set1_ps(1.0F), d));
  int8_t* q = job.q + 32 * static_cast<size_t>(b);
#pragma GCC unroll 2
  for (uint32_t i = 0; i < 2 * kBatch; ++i) {
    const __m512 scaled =
        _mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), _mm512_set1_ps(inverse[i / 2]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16 * i),
                     _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(scaled)));
  }
  SumEight(q, job.half_sum + b, job.sum + b);
  SumEight(q + 256, job.half_sum + b + 8, job.sum + b + 8);
  return true;
}

}  // namespace

void QuantiseAvx512(const QuantiseJob& job) {
  uint32_t b = 0;
  for (; b + kBatch <= job.count; b += kBatch) {
    if (QuantiseBatch(job, b)) continue;
    for (uint32_t i = b; i < b + kBatch; ++i) QuantiseBlock(job, i);
  }
  for (; b < job.count; ++b) QuantiseBlock(job, b);
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

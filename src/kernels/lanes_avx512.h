#pragma once
// Lanes: sixteen fp32 values in one AVX-512 register. Only for sources compiled with those
// instructions; lanes_avx2.h is the same interface in two halves. The anonymous namespace keeps
// everything built from it inside the one source that includes it.

#include <immintrin.h>

#include <cstdint>

// Functions here are never called across sources, so how they pass registers is of no matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace cleave {
namespace {

struct Lanes {
  // How many Lanes fit the registers as accumulators, next to a few operands.
  static constexpr int kAccumulators = 24;
  // The most query rows of an attention tile.
  static constexpr int kRows = 6;
  using Mask = __mmask16;

  __m512 v;

  static Lanes Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  // The first n < 16 values; zeros after them.
  static Lanes LoadFirst(const float* p, uint32_t n) {
    return {_mm512_maskz_loadu_ps(FirstMask(n), p)};
  }
  static Lanes LoadHalf(const void* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
  }
  static Lanes LoadBrain(const void* p) {
    const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  static Lanes LoadInt8(const void* p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
  }
  static void Prefetch(const void* p) { _mm_prefetch(p, _MM_HINT_T0); }
  static Lanes Set(float x) { return {_mm512_set1_ps(x)}; }
  static Lanes Zero() { return {_mm512_setzero_ps()}; }

  void Store(float* p) const { _mm512_storeu_ps(p, v); }
  void StoreFirst(float* p, uint32_t n) const { _mm512_mask_storeu_ps(p, FirstMask(n), v); }
  void StoreHalf(void* p) const {
    _mm256_storeu_si256(static_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Rounds to nearest even; |v| < 127.5.
  void StoreInt8(void* p) const {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  }

  friend Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
  // a·b + c, rounded once.
  static Lanes Fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Lanes FmaMinus(Lanes a, Lanes b, Lanes c) { return {_mm512_fmsub_ps(a.v, b.v, c.v)}; }
  // The larger; b where either is NaN.
  static Lanes Max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Lanes Min(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
  static Lanes Abs(Lanes a) { return {_mm512_abs_ps(a.v)}; }
  // The magnitude of a >= 0 with the sign of b.
  static Lanes WithSign(Lanes a, Lanes b) {
    return {_mm512_or_ps(a.v, _mm512_and_ps(b.v, _mm512_set1_ps(-0.0F)))};
  }
  static Lanes Round(Lanes a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // p·2^n for a whole n where both p and the result are normal.
  static Lanes TimesPowerOfTwo(Lanes p, Lanes n) { return {_mm512_scalef_ps(p.v, n.v)}; }

  // Ordered comparisons: false where either is NaN.
  static Mask Less(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
  static Mask AtLeast(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
  static Mask Equal(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
  static uint32_t Bits(Mask m) { return m; }
  static Mask FirstMask(uint32_t n) { return static_cast<Mask>((1U << n) - 1U); }
  // Lanes [begin, end), both at most 16.
  static Mask Between(uint32_t begin, uint32_t end) {
    return static_cast<Mask>(((1U << end) - 1U) & ~((1U << begin) - 1U));
  }
  static Lanes Select(Mask m, Lanes yes, Lanes no) {
    return {_mm512_mask_blend_ps(m, no.v, yes.v)};
  }

  // The tree 8-4-2-1.
  static float Sum(Lanes a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  // The largest of sixteen values none of which is NaN.
  static float Largest(Lanes a) { return _mm512_reduce_max_ps(a.v); }
  // max(|a|, b) by bit pattern, for b >= 0: infinity and then NaN are the largest.
  static Lanes MaxMagnitude(Lanes a, Lanes b) {
    return {_mm512_castsi512_ps(
        _mm512_max_epi32(_mm512_castps_si512(Abs(a).v), _mm512_castps_si512(b.v)))};
  }
  static float LargestMagnitude(Lanes a) {
    const int32_t bits = _mm512_reduce_max_epi32(_mm512_castps_si512(a.v));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
  }

  // Sixteen int64 to fp32, rounded once.
  static Lanes FromInt64(const int64_t* p) {
    const __m256 low = _mm512_cvtepi64_ps(_mm512_loadu_si512(p));
    const __m256 high = _mm512_cvtepi64_ps(_mm512_loadu_si512(p + 8));
    return {_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1)};
  }
  // Rounds to int64 (|a| < 2^62) and stores, or adds to what is there.
  static void StoreInt64(Lanes a, int64_t* p) {
    _mm512_storeu_si512(p, Low64(a));
    _mm512_storeu_si512(p + 8, High64(a));
  }
  static void AddInt64(Lanes a, int64_t* p) {
    _mm512_storeu_si512(p, _mm512_add_epi64(_mm512_loadu_si512(p), Low64(a)));
    _mm512_storeu_si512(p + 8, _mm512_add_epi64(_mm512_loadu_si512(p + 8), High64(a)));
  }

 private:
  static __m512i Low64(Lanes a) { return _mm512_cvtps_epi64(_mm512_castps512_ps256(a.v)); }
  static __m512i High64(Lanes a) { return _mm512_cvtps_epi64(_mm512_extractf32x8_ps(a.v, 1)); }
};

// Eight doubles, for the end of a row of attention.
struct WideLanes {
  static constexpr uint32_t kCount = 8;

  __m512d v;

  static WideLanes FromInt64(const int64_t* p) {
    return {_mm512_cvtepi64_pd(_mm512_loadu_si512(p))};
  }
  static WideLanes Set(double x) { return {_mm512_set1_pd(x)}; }
  friend WideLanes operator+(WideLanes a, WideLanes b) { return {_mm512_add_pd(a.v, b.v)}; }
  friend WideLanes operator*(WideLanes a, WideLanes b) { return {_mm512_mul_pd(a.v, b.v)}; }
  // Rounded to fp32.
  void Store(float* p) const { _mm256_storeu_ps(p, _mm512_cvtpd_ps(v)); }
};

}  // namespace
}  // namespace cleave

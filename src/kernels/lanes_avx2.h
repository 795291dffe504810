#pragma once
// Lanes: sixteen fp32 values in two AVX2 registers. Only for sources compiled with those
// instructions; lanes_avx512.h is the same interface in one register. The anonymous namespace keeps
// everything built from it inside the one source that includes it.

#include <immintrin.h>

#include <cstdint>

// Functions here are never called across sources, so how they pass registers is of no matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace cleave {
namespace {

struct Lanes {
  // How many Lanes fit the registers as accumulators, next to a few operands.
  static constexpr int kAccumulators = 6;
  // The most query rows of an attention tile.
  static constexpr int kRows = 3;
  struct Mask {
    __m256 low;
    __m256 high;
  };

  __m256 a;  // values 0..7
  __m256 b;  // values 8..15

  static Lanes Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  // The first n < 16 values; zeros after them.
  static Lanes LoadFirst(const float* p, uint32_t n) {
    const Mask m = FirstMask(n);
    return {_mm256_maskload_ps(p, _mm256_castps_si256(m.low)),
            _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.high))};
  }
  static Lanes LoadHalf(const void* p) {
    const auto* h = static_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
  }
  static Lanes LoadBrain(const void* p) {
    const auto* h = static_cast<const __m128i*>(p);
    return {Brain(_mm_loadu_si128(h)), Brain(_mm_loadu_si128(h + 1))};
  }
  static Lanes LoadInt8(const void* p) {
    const auto* bytes = static_cast<const char*>(p);
    return {Bytes(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))),
            Bytes(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + 8)))};
  }
  static void Prefetch(const void* p) { _mm_prefetch(p, _MM_HINT_T0); }
  static Lanes Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Lanes Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }

  void Store(float* p) const {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + 8, b);
  }
  void StoreFirst(float* p, uint32_t n) const {
    const Mask m = FirstMask(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.low), a);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.high), b);
  }
  void StoreHalf(void* p) const {
    auto* h = static_cast<__m128i*>(p);
    _mm_storeu_si128(h, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(h + 1, _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Rounds to nearest even; magnitudes under 127.5.
  void StoreInt8(void* p) const {
    const __m256i pairs = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
    // The lower half holds values 0..3 and 8..11.
    const __m256i ordered = _mm256_permute4x64_epi64(pairs, _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128(
        static_cast<__m128i*>(p),
        _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
  }

  friend Lanes operator+(Lanes x, Lanes y) {
    return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
  }
  friend Lanes operator-(Lanes x, Lanes y) {
    return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
  }
  friend Lanes operator*(Lanes x, Lanes y) {
    return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
  }
  friend Lanes operator/(Lanes x, Lanes y) {
    return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
  }
  // x·y + z, rounded once.
  static Lanes Fma(Lanes x, Lanes y, Lanes z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  static Lanes FmaMinus(Lanes x, Lanes y, Lanes z) {
    return {_mm256_fmsub_ps(x.a, y.a, z.a), _mm256_fmsub_ps(x.b, y.b, z.b)};
  }
  // The larger; y where either is NaN.
  static Lanes Max(Lanes x, Lanes y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static Lanes Min(Lanes x, Lanes y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static Lanes Abs(Lanes x) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
  }
  // The magnitude of x >= 0 with the sign of y.
  static Lanes WithSign(Lanes x, Lanes y) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_or_ps(x.a, _mm256_and_ps(y.a, sign)),
            _mm256_or_ps(x.b, _mm256_and_ps(y.b, sign))};
  }
  static Lanes Round(Lanes x) {
    return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // p·2^n for a whole n where both p and the result are normal.
  static Lanes TimesPowerOfTwo(Lanes p, Lanes n) { return {Shift(p.a, n.a), Shift(p.b, n.b)}; }

  // Ordered comparisons: false where either is NaN.
  static Mask Less(Lanes x, Lanes y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
  }
  static Mask AtLeast(Lanes x, Lanes y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)};
  }
  static Mask Equal(Lanes x, Lanes y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)};
  }
  static uint32_t Bits(Mask m) {
    return static_cast<uint32_t>(_mm256_movemask_ps(m.low)) |
           static_cast<uint32_t>(_mm256_movemask_ps(m.high)) << 8;
  }
  static Mask FirstMask(uint32_t n) {
    const __m256i count = _mm256_set1_epi32(static_cast<int>(n));
    return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(count, Indices(0))),
            _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, Indices(8)))};
  }
  // Lanes [begin, end), both at most 16.
  static Mask Between(uint32_t begin, uint32_t end) {
    const Mask to = FirstMask(end);
    const Mask from = FirstMask(begin);
    return {_mm256_andnot_ps(from.low, to.low), _mm256_andnot_ps(from.high, to.high)};
  }
  static Lanes Select(Mask m, Lanes yes, Lanes no) {
    return {_mm256_blendv_ps(no.a, yes.a, m.low), _mm256_blendv_ps(no.b, yes.b, m.high)};
  }

  // The tree 8-4-2-1.
  static float Sum(Lanes x) {
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  // The largest of sixteen values none of which is NaN.
  static float Largest(Lanes x) {
    const __m256 eight = _mm256_max_ps(x.a, x.b);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  // max(|x|, y) by bit pattern, for y >= 0: infinity and then NaN are the largest.
  static Lanes MaxMagnitude(Lanes x, Lanes y) {
    const Lanes m = Abs(x);
    return {MaxBits(m.a, y.a), MaxBits(m.b, y.b)};
  }
  static float LargestMagnitude(Lanes x) {
    const __m256i eight = _mm256_castps_si256(MaxBits(x.a, x.b));
    const __m128i four =
        _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
    const __m128i one = _mm_max_epi32(two, _mm_shuffle_epi32(two, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm_cvtss_f32(_mm_castsi128_ps(one));
  }

  // Sixteen int64 to fp32, rounded once. AVX2 converts them one by one.
  static Lanes FromInt64(const int64_t* p) {
    float x[16];
    for (int i = 0; i < 16; ++i) x[i] = static_cast<float>(p[i]);
    return Load(x);
  }
  // Rounds to int64 (|x| < 2^62) and stores, or adds to what is there.
  static void StoreInt64(Lanes x, int64_t* p) {
    float values[16];
    x.Store(values);
    for (int i = 0; i < 16; ++i) p[i] = _mm_cvtss_si64(_mm_load_ss(values + i));
  }
  static void AddInt64(Lanes x, int64_t* p) {
    float values[16];
    x.Store(values);
    for (int i = 0; i < 16; ++i) p[i] += _mm_cvtss_si64(_mm_load_ss(values + i));
  }

 private:
  static __m256 Brain(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static __m256 Bytes(__m128i eight) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)); }
  static __m256 Shift(__m256 p, __m256 n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
  }
  static __m256 MaxBits(__m256 x, __m256 y) {
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(x), _mm256_castps_si256(y)));
  }
  static __m256i Indices(int first) {
    return _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

// Four doubles, for the end of a row of attention.
struct WideLanes {
  static constexpr uint32_t kCount = 4;

  __m256d v;

  static WideLanes FromInt64(const int64_t* p) {
    return {_mm256_setr_pd(static_cast<double>(p[0]), static_cast<double>(p[1]),
                           static_cast<double>(p[2]), static_cast<double>(p[3]))};
  }
  static WideLanes Set(double x) { return {_mm256_set1_pd(x)}; }
  friend WideLanes operator+(WideLanes a, WideLanes b) { return {_mm256_add_pd(a.v, b.v)}; }
  friend WideLanes operator*(WideLanes a, WideLanes b) { return {_mm256_mul_pd(a.v, b.v)}; }
  // Rounded to fp32.
  void Store(float* p) const { _mm_storeu_ps(p, _mm256_cvtpd_ps(v)); }
};

}  // namespace
}  // namespace cleave

#pragma once
// The row operations on Lanes, once for every vector instruction set. L is the Lanes of the
// including source. A row's last n mod 16 elements are one more step on partly filled lanes.

#include <cstdint>

#include "kernels/math_lanes.h"
#include "kernels/vector_ops_table.h"

namespace cleave {

template <typename L>
struct RowOps {
  // out[i] = fn(x[i]).
  template <typename Fn>
  static void Map(const float* x, uint32_t n, float* out, Fn fn) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) fn(L::Load(x + i)).Store(out + i);
    if (i < n) fn(L::LoadFirst(x + i, n - i)).StoreFirst(out + i, n - i);
  }

  // out[i] = fn(x[i], y[i]).
  template <typename Fn>
  static void Zip(const float* x, const float* y, uint32_t n, float* out, Fn fn) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) fn(L::Load(x + i), L::Load(y + i)).Store(out + i);
    if (i == n) return;
    fn(L::LoadFirst(x + i, n - i), L::LoadFirst(y + i, n - i)).StoreFirst(out + i, n - i);
  }

  static float SumOfSquares(const float* x, uint32_t n) {
    L sum = L::Zero();
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
      const L v = L::Load(x + i);
      sum = L::Fma(v, v, sum);
    }
    if (i < n) {
      const L v = L::LoadFirst(x + i, n - i);
      sum = L::Fma(v, v, sum);
    }
    return L::Sum(sum);
  }

  static void ScaleByWeight(const float* x, float scale, const float* weight, uint32_t n,
                            float* out) {
    const L s = L::Set(scale);
    if (weight == nullptr) {
      Map(x, n, out, [s](L v) { return v * s; });
    } else {
      Zip(x, weight, n, out, [s](L v, L w) { return (v * s) * w; });
    }
  }

  static void RotateLanes(L a, L b, L cosine, L sine, L* first, L* second) {
    *first = L::FmaMinus(a, cosine, b * sine);
    *second = L::Fma(b, cosine, a * sine);
  }

  static void Rotate(float* x, uint32_t half, const float* cosines, const float* sines) {
    L first;
    L second;
    uint32_t i = 0;
    for (; i + 16 <= half; i += 16) {
      RotateLanes(L::Load(x + i), L::Load(x + half + i), L::Load(cosines + i), L::Load(sines + i),
                  &first, &second);
      first.Store(x + i);
      second.Store(x + half + i);
    }
    if (i == half) return;
    const uint32_t n = half - i;
    RotateLanes(L::LoadFirst(x + i, n), L::LoadFirst(x + half + i, n), L::LoadFirst(cosines + i, n),
                L::LoadFirst(sines + i, n), &first, &second);
    first.StoreFirst(x + i, n);
    second.StoreFirst(x + half + i, n);
  }

  static void SiluTimes(const float* gate, const float* up, uint32_t n, float* out) {
    Zip(gate, up, n, out, [](L g, L u) { return SiluOf(g) * u; });
  }
  static void GeluTimes(const float* gate, const float* up, uint32_t n, float* out) {
    Zip(gate, up, n, out, [](L g, L u) { return GeluTanhOf(g) * u; });
  }
  static void SoftCap(float* x, float cap, uint32_t n) {
    const L c = L::Set(cap);
    Map(x, n, x, [c](L v) { return TanhOf(v / c) * c; });
  }
  static void Add(float* x, const float* y, uint32_t n) {
    Zip(x, y, n, x, [](L a, L b) { return a + b; });
  }
  static void Scale(float* x, float s, uint32_t n) {
    const L factor = L::Set(s);
    Map(x, n, x, [factor](L v) { return v * factor; });
  }
  static void QuantaTo(const int64_t* totals, float unit, uint32_t n, float* y) {
    const L u = L::Set(unit);
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) (L::FromInt64(totals + i) * u).Store(y + i);
    for (; i < n; ++i) y[i] = static_cast<float>(totals[i]) * unit;
  }
  static void Exp2Row(const float* x, uint32_t n, float* out) {
    Map(x, n, out, [](L v) { return Exp2Of(v); });
  }

  static constexpr VectorOpsTable Table() {
    return {SumOfSquares, ScaleByWeight, Rotate, SiluTimes, GeluTimes,
            SoftCap,      Add,           Scale,  QuantaTo,  Exp2Row};
  }
};

}  // namespace cleave

#pragma once
// The logit reductions on Lanes, once for every vector instruction set. L is the Lanes of the
// including source.

#include <cstdint>

#include "kernels/logits_table.h"
#include "kernels/math_lanes.h"

namespace cleave {

template <typename L>
struct LogitOps {
  static constexpr float kMinusInfinity = -__builtin_inff();

  // The maximum first, then the first place that holds it: two plain passes, no index lanes.
  static MaxLogit FindMax(const float* logits, uint32_t n) {
    L best = L::Set(kMinusInfinity);
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) best = L::Max(L::Load(logits + i), best);
    float value = L::Largest(best);
    for (; i < n; ++i) value = logits[i] > value ? logits[i] : value;
    if (value == kMinusInfinity) return {kMinusInfinity, -1};
    const uint32_t at = FindFirst(logits, n, value);
    return {logits[at], static_cast<int32_t>(at)};
  }

  static int64_t ComputeMasses(const float* logits, uint32_t n, float max, float scale_log2e,
                               int64_t* mass) {
    int64_t lane_sum[16] = {};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
      const L quanta = QuantaOf(L::Load(logits + i), max, scale_log2e);
      L::AddInt64(quanta, lane_sum);
      if (mass != nullptr) L::StoreInt64(quanta, mass + i);
    }
    if (i < n) {
      float rest[16];
      int64_t rest_mass[16];
      for (uint32_t k = 0; k < 16; ++k) rest[k] = i + k < n ? logits[i + k] : kMinusInfinity;
      const L quanta = QuantaOf(L::Load(rest), max, scale_log2e);
      L::AddInt64(quanta, lane_sum);
      L::StoreInt64(quanta, rest_mass);
      for (uint32_t k = 0; mass != nullptr && i + k < n; ++k) mass[i + k] = rest_mass[k];
    }
    int64_t sum = 0;
    for (const int64_t s : lane_sum) sum += s;
    return sum;
  }

  static constexpr LogitsTable Table() { return {FindMax, ComputeMasses}; }

 private:
  // The first i with logits[i] == value; there is one.
  static uint32_t FindFirst(const float* logits, uint32_t n, float value) {
    const L wanted = L::Set(value);
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
      const uint32_t hits = L::Bits(L::Equal(L::Load(logits + i), wanted));
      if (hits != 0) return i + static_cast<uint32_t>(__builtin_ctz(hits));
    }
    while (logits[i] != value) ++i;
    return i;
  }

  static L QuantaOf(L logit, float max, float scale_log2e) {
    const L exponent = (logit - L::Set(max)) * L::Set(scale_log2e);
    const L power = Exp2InRange(L::Min(L::Zero(), exponent));
    const L quanta = power * L::Set(static_cast<float>(int64_t{1} << kMassBits));
    return L::Select(L::AtLeast(exponent, L::Set(math::kExp2Lowest)), quanta, L::Zero());
  }
};

}  // namespace cleave

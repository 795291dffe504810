#pragma once
// Reductions over a row of logits that a split vocabulary can share: exact maxima and integer
// masses, so that ranks exchange a maximum, sums and candidates, in any order.
// Threads may split the range; integers add. No allocation.

#include <cstdint>

#include "kernels/isa.h"

namespace cleave {

// Quanta of one: a token at the maximum has mass 2^40; 2^22 tokens fit int64.
inline constexpr int kMassBits = 40;

struct MaxLogit {
  float value;
  int32_t id;  // ties go to the lower id
};
// NaNs are skipped; {-inf, -1} when no logit is above -inf.
MaxLogit FindMax(Isa isa, const float* logits, uint32_t n);

// mass[i] = rne(2^((logits[i] - max) · scale_log2e) · 2^40); the difference, the product and the
// power are each rounded once in that order; -inf and NaN give 0, as does a power under 2^-126; a
// logit above max counts as max. Returns Σ mass. mass may be null when only the sum is wanted.
// scale_log2e = log2(e) / temperature.
int64_t ComputeMasses(Isa isa, const float* logits, uint32_t n, float max, float scale_log2e,
                      int64_t* mass);

// ln Σ exp(logits): max + ln2 · (log2(sum) - 40), from ComputeMasses at scale log2(e).
float LogSumExp(float max, int64_t mass_sum);

}  // namespace cleave

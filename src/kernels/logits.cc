#include "kernels/logits.h"

#include "kernels/logits_table.h"
#include "kernels/math.h"

namespace cleave {
namespace {

const LogitsTable& LogitsFor(Isa isa) {
  return *OfIsa(isa, &kLogitsScalar, &kLogitsAvx2, &kLogitsAvx512);
}

}  // namespace

MaxLogit FindMax(Isa isa, const float* logits, uint32_t n) {
  return LogitsFor(isa).find_max(logits, n);
}

int64_t ComputeMasses(Isa isa, const float* logits, uint32_t n, float max, float scale_log2e,
                      int64_t* mass) {
  return LogitsFor(isa).compute_masses(logits, n, max, scale_log2e, mass);
}

float LogSumExp(float max, int64_t mass_sum) {
  // Scaled before the logarithm: log2 of the sum itself, about 40, would lose six bits.
  const float sum = static_cast<float>(mass_sum) * PowerOfTwo(-kMassBits);
  return max + kLn2 * Log2(sum);
}

}  // namespace cleave

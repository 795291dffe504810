// The logit reductions, plain.

#include <limits>

#include "kernels/logits_table.h"
#include "kernels/math.h"
#include "kernels/math_constants.h"

namespace cleave {
namespace {

MaxLogit FindMaxPlain(const float* logits, uint32_t n) {
  MaxLogit best{-std::numeric_limits<float>::infinity(), -1};
  for (uint32_t i = 0; i < n; ++i) {
    if (logits[i] > best.value) best = {logits[i], static_cast<int32_t>(i)};
  }
  return best;
}

int64_t MassOf(float logit, float max, float scale_log2e) {
  const float exponent = (logit - max) * scale_log2e;
  if (!(exponent >= math::kExp2Lowest)) return 0;
  const float power = Exp2(exponent > 0.0F ? 0.0F : exponent);
  const double quanta = static_cast<double>(power) * static_cast<double>(int64_t{1} << kMassBits);
  return static_cast<int64_t>((quanta + math::kRoundDouble) - math::kRoundDouble);
}

int64_t ComputeMassesPlain(const float* logits, uint32_t n, float max, float scale_log2e,
                           int64_t* mass) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const int64_t m = MassOf(logits[i], max, scale_log2e);
    if (mass != nullptr) mass[i] = m;
    sum += m;
  }
  return sum;
}

}  // namespace

const LogitsTable kLogitsScalar = {FindMaxPlain, ComputeMassesPlain};

}  // namespace cleave

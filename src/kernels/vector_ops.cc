#include "kernels/vector_ops.h"

#include <bit>
#include <cmath>

#include "base/status.h"
#include "kernels/math.h"
#include "kernels/vector_ops_table.h"

namespace cleave {
namespace {

constexpr int32_t kExponentLimit = 40;
constexpr double kTwoPi = 6.283185307179586476925;

// e with sqrt(mean) in [2^(e-1), 2^e): mean in [2^(2e-2), 2^(2e)).
int32_t ExponentOf(float mean) {
  const auto biased = static_cast<int32_t>(std::bit_cast<uint32_t>(mean) >> 23);
  if (biased == 0 || biased >= 255) return 0;  // zero or denormal; infinite or not a number
  const int32_t e = ((biased - 127) >> 1) + 1;
  if (e > kExponentLimit) return kExponentLimit;
  return e < -kExponentLimit ? -kExponentLimit : e;
}

float MeanOfSquares(Isa isa, const float* x, uint32_t n) {
  return VectorOpsFor(isa).sum_of_squares(x, n) / static_cast<float>(n);
}

// The "llama3" rope type: long wavelengths are stretched by the factor, short ones are kept, those
// between are blended by how often they turn in the original context.
double StretchLlama3(double frequency, const RopeScaling& scaling) {
  const double turns = scaling.original_context * frequency / kTwoPi;
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  if (turns > scaling.high_freq_factor) return frequency;
  const double smooth =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

double Stretch(double frequency, uint32_t pair, const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      return frequency;
    case RopeScaling::Kind::kLinear:
      return frequency / scaling.factor;
    case RopeScaling::Kind::kLlama3:
      return StretchLlama3(frequency, scaling);
    case RopeScaling::Kind::kFactors:
      return frequency / scaling.freq_factors[pair];
  }
  return frequency;
}

}  // namespace

const VectorOpsTable& VectorOpsFor(Isa isa) {
  return *OfIsa(isa, &kVectorOpsScalar, &kVectorOpsAvx2, &kVectorOpsAvx512);
}

int32_t RmsNorm(Isa isa, const float* x, const float* weight, uint32_t n, float eps, float* out) {
  const float mean = MeanOfSquares(isa, x, n);
  const float scale = 1.0F / std::sqrt(mean + eps);
  VectorOpsFor(isa).scale_by_weight(x, scale, weight, n, out);
  return ExponentOf(mean);
}

int32_t RowExponent(Isa isa, const float* x, uint32_t n) {
  return ExponentOf(MeanOfSquares(isa, x, n));
}

RopeFrequencies::RopeFrequencies(double theta, const RopeScaling& scaling, uint32_t head_dim)
    : frequency_(head_dim / 2) {
  CLEAVE_CHECK(scaling.kind != RopeScaling::Kind::kFactors ||
               scaling.freq_factors.size() == frequency_.size());
  for (uint32_t i = 0; i < frequency_.size(); ++i) {
    // The reference takes the power in fp32 and then its reciprocal: rounded twice, as here.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float plain = 1.0F / static_cast<float>(PowDouble(theta, exponent));
    frequency_[i] = static_cast<float>(Stretch(plain, i, scaling));
  }
}

void RopeFrequencies::MakeRow(uint32_t position, float* row) const {
  const size_t half = frequency_.size();
  for (size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * frequency_[i];
    const SinCos at = SinCosOf(angle);
    row[i] = static_cast<float>(at.cos);
    row[half + i] = static_cast<float>(at.sin);
  }
}

void ApplyRope(Isa isa, float* x, uint32_t heads, uint32_t head_dim, const float* rope_row) {
  const auto rotate = VectorOpsFor(isa).rotate;
  const uint32_t half = head_dim / 2;
  for (uint32_t h = 0; h < heads; ++h) {
    rotate(x + static_cast<size_t>(h) * head_dim, half, rope_row, rope_row + half);
  }
}

void GatedActivation(Isa isa, Activation activation, const float* gate, const float* up, uint32_t n,
                     float* out) {
  const VectorOpsTable& ops = VectorOpsFor(isa);
  (activation == Activation::kSilu ? ops.silu_times : ops.gelu_times)(gate, up, n, out);
}

void SoftCapInPlace(Isa isa, float* x, float cap, uint32_t n) {
  VectorOpsFor(isa).soft_cap(x, cap, n);
}

void AddInPlace(Isa isa, float* x, const float* y, uint32_t n) { VectorOpsFor(isa).add(x, y, n); }

void ScaleInPlace(Isa isa, float* x, float s, uint32_t n) { VectorOpsFor(isa).scale(x, s, n); }

void QuantaToFloat(Isa isa, const int64_t* totals, int32_t shift, uint32_t n, float* y) {
  VectorOpsFor(isa).quanta_to_float(totals, PowerOfTwo(-shift), n, y);
}

}  // namespace cleave

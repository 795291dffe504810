// The row operations, plain: what the vector kernels must equal to the bit.

#include <cmath>

#include "kernels/math.h"
#include "kernels/vector_ops_table.h"

namespace cleave {
namespace {

float SumOfSquares(const float* x, uint32_t n) {
  float lane[16] = {};
  for (uint32_t i = 0; i < n; ++i) lane[i % 16] = std::fmaf(x[i], x[i], lane[i % 16]);
  for (uint32_t width = 8; width > 0; width /= 2) {
    for (uint32_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}

void ScaleByWeight(const float* x, float scale, const float* weight, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) {
    const float scaled = x[i] * scale;
    out[i] = weight == nullptr ? scaled : scaled * weight[i];
  }
}

void Rotate(float* x, uint32_t half, const float* cosines, const float* sines) {
  for (uint32_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = std::fmaf(a, cosines[i], -(b * sines[i]));
    x[i + half] = std::fmaf(b, cosines[i], a * sines[i]);
  }
}

void SiluTimes(const float* gate, const float* up, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = Silu(gate[i]) * up[i];
}

void GeluTimes(const float* gate, const float* up, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = GeluTanh(gate[i]) * up[i];
}

void SoftCap(float* x, float cap, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) x[i] = Tanh(x[i] / cap) * cap;
}

void Add(float* x, const float* y, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) x[i] += y[i];
}

void Scale(float* x, float s, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) x[i] *= s;
}

void QuantaTo(const int64_t* totals, float unit, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = static_cast<float>(totals[i]) * unit;
}

void Exp2Row(const float* x, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = Exp2(x[i]);
}

}  // namespace

const VectorOpsTable kVectorOpsScalar = {
    SumOfSquares, ScaleByWeight, Rotate, SiluTimes, GeluTimes,
    SoftCap,      Add,           Scale,  QuantaTo,  Exp2Row,
};

}  // namespace cleave

#pragma once
// Row-wise operations between matrix products: norms, rotary embedding, gated activations,
// residual adds. Each is elementwise or has a fixed sum order (16 lanes, then a tree 8-4-2-1), so
// instruction sets agree to the bit. Rows are independent; threads split rows. No allocation.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/isa.h"
#include "model/config.h"

namespace cleave {

// out[i] = x[i] · (1/sqrt(mean(x²) + eps)) · weight[i], over n elements. Lane i sums x[i + 16·j]²
// by fma; tree; then mean, + eps, sqrt, 1/, each one IEEE operation. weight may be null (all ones).
// Returns e with rms(x) in [2^(e-1), 2^e) (from mean(x²) without eps), clamped to ±40; 0 for a zero
// or non-finite row. out may alias x.
int32_t RmsNorm(Isa isa, const float* x, const float* weight, uint32_t n, float eps, float* out);

// The exponent alone (the scale of a residual row that no norm has just read).
int32_t RowExponent(Isa isa, const float* x, uint32_t n);

// The frequencies of one rotary setting. Rows are made for the positions of a batch as they come,
// so the memory of a long context is none. inv_freq is rounded to fp32 and the angle p·inv_freq to
// fp32 before the sine is taken in double, which is what the reference implementations do.
class RopeFrequencies {
 public:
  // Factors of `scaling` are as many as ModelConfig::Validate wants.
  RopeFrequencies(double theta, const RopeScaling& scaling, uint32_t head_dim);
  // row[0, d/2) = cos, row[d/2, d) = sin of position · inv_freq[i].
  void MakeRow(uint32_t position, float* row) const;

 private:
  std::vector<float> frequency_;  // [d/2]
};

// Rotates `heads` heads of d elements at x in place, halves form: (a, b) = (x[i], x[i + d/2])
// becomes (fma(a, cos, -(b·sin)), fma(b, cos, a·sin)), each product rounded once.
void ApplyRope(Isa isa, float* x, uint32_t heads, uint32_t head_dim, const float* rope_row);

// out[i] = act(gate[i]) · up[i]. out may alias either.
void GatedActivation(Isa isa, Activation activation, const float* gate, const float* up, uint32_t n,
                     float* out);

// x[i] += bias[i]; x[i] += y[i]; x[i] *= s.
void AddInPlace(Isa isa, float* x, const float* y, uint32_t n);
void ScaleInPlace(Isa isa, float* x, float s, uint32_t n);

// x[i] = tanh(x[i] / cap) · cap, the soft cap of final logits.
void SoftCapInPlace(Isa isa, float* x, float cap, uint32_t n);

// y[i] = float(totals[i]) · 2^-shift, the end of a row-parallel product.
void QuantaToFloat(Isa isa, const int64_t* totals, int32_t shift, uint32_t n, float* y);

}  // namespace cleave

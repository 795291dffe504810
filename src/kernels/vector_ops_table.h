#pragma once
// The row operations of one instruction set (vector_ops.cc chooses). Functions follow vector_ops.h
// and math.h; every table gives the same bits.

#include <cstdint>

#include "kernels/isa.h"

namespace cleave {

struct VectorOpsTable {
  // Σ x² over 16 lanes and the tree.
  float (*sum_of_squares)(const float* x, uint32_t n);
  // out[i] = (x[i]·scale)·weight[i]; weight may be null.
  void (*scale_by_weight)(const float* x, float scale, const float* weight, uint32_t n, float* out);
  // One head of d = 2·half elements.
  void (*rotate)(float* x, uint32_t half, const float* cosines, const float* sines);
  // out[i] = act(gate[i])·up[i].
  void (*silu_times)(const float* gate, const float* up, uint32_t n, float* out);
  void (*gelu_times)(const float* gate, const float* up, uint32_t n, float* out);
  void (*soft_cap)(float* x, float cap, uint32_t n);
  void (*add)(float* x, const float* y, uint32_t n);
  void (*scale)(float* x, float s, uint32_t n);
  // y[i] = float(totals[i])·unit.
  void (*quanta_to_float)(const int64_t* totals, float unit, uint32_t n, float* y);
  // out[i] = Exp2(x[i]): so that tests reach the function inside the kernels.
  void (*exp2)(const float* x, uint32_t n, float* out);
};

extern const VectorOpsTable kVectorOpsScalar;
extern const VectorOpsTable kVectorOpsAvx2;
extern const VectorOpsTable kVectorOpsAvx512;

const VectorOpsTable& VectorOpsFor(Isa isa);

}  // namespace cleave

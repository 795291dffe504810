#pragma once
// Random weights as views and as packed matrices, for the tests and benchmarks of the kernels.

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/packed_matrix.h"
#include "kernels/random_weights.h"
#include "tensor/view.h"

namespace cleave {

// Equality of answers is equality of bits, also of NaN and -0.
inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

// Owns what a TensorView points at.
struct Weights {
  std::vector<std::byte> bytes;
  TensorView view;
};

inline Weights MakeWeights(DType dtype, uint32_t rows, uint32_t cols, uint32_t seed,
                           float scale = 0.01F) {
  Weights w;
  w.bytes = RandomWeights(dtype, rows, cols, seed, scale);
  w.view = {.data = w.bytes.data(), .dtype = dtype, .shape = {rows, cols}};
  return w;
}

inline PackedMatrix Pack(const TensorView& view, KPlan plan) {
  Result<PackedMatrix> m =
      PackedMatrix::Allocate(view, static_cast<uint32_t>(view.rows()), std::move(plan));
  CLEAVE_CHECK(m.ok());
  m->PackGroups(
      view, [](uint64_t r) { return r; }, 0, m->groups());
  m->Finish();
  return std::move(m).value();
}

// The matrix as fp32, row by row, by the slow truth of tensor/dtype.h.
inline std::vector<float> Dequantise(const TensorView& view) {
  std::vector<float> out(view.elements());
  const uint64_t row_bytes = *RowBytes(view.dtype, view.cols());
  for (uint64_t r = 0; r < view.rows(); ++r) {
    DequantiseRow(view.dtype, view.data + r * row_bytes, view.cols(), out.data() + r * view.cols());
  }
  return out;
}

}  // namespace cleave

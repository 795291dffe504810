#pragma once
// Seeded random weights in every storage format, for the tests and benchmarks of the kernels.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/packed_matrix.h"
#include "tensor/view.h"

namespace cleave {

inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ40,
                                       DType::kQ41, DType::kQ50, DType::kQ51,  DType::kQ80,
                                       DType::kQ4K, DType::kQ5K, DType::kQ6K};

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

inline void PutHalf(float v, std::byte* at) {
  const uint16_t h = FloatToHalf(v);
  std::memcpy(at, &h, sizeof h);
}

// Values of about unit size over K: random codes, scales around `scale`.
inline void FillBlock(DType dtype, std::mt19937& rng, float scale, std::byte* block) {
  const DTypeInfo& info = InfoOf(dtype);
  std::normal_distribution<float> normal;
  const float sign = rng() % 2 == 0 ? 1.0F : -1.0F;
  for (uint32_t i = 0; i < info.block_bytes; ++i) block[i] = static_cast<std::byte>(rng());
  const float d = sign * scale * (0.5F + std::fabs(normal(rng)));
  switch (dtype) {
    case DType::kF32: {
      const float v = normal(rng) * scale * 8;
      std::memcpy(block, &v, sizeof v);
      break;
    }
    case DType::kF16:
      PutHalf(normal(rng) * scale * 8, block);
      break;
    case DType::kBF16: {
      const uint16_t b = FloatToBFloat16(normal(rng) * scale * 8);
      std::memcpy(block, &b, sizeof b);
      break;
    }
    case DType::kQ41:
    case DType::kQ51:
      PutHalf(-8 * d, block + 2);
      PutHalf(d, block);
      break;
    case DType::kQ4K:
    case DType::kQ5K:
      PutHalf(d / 16, block);
      PutHalf(d / 2, block + 2);
      break;
    case DType::kQ80:
      PutHalf(d / 8, block);
      break;
    case DType::kQ6K:
      PutHalf(d / 64, block + 208);
      break;
    default:
      PutHalf(d, block);
  }
}

inline Weights MakeWeights(DType dtype, uint32_t rows, uint32_t cols, uint32_t seed,
                           float scale = 0.01F) {
  const DTypeInfo& info = InfoOf(dtype);
  std::mt19937 rng(seed);
  Weights w;
  w.bytes.resize(rows * *RowBytes(dtype, cols));
  for (size_t at = 0; at < w.bytes.size(); at += info.block_bytes) {
    FillBlock(dtype, rng, scale, w.bytes.data() + at);
  }
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

// Normal activations of a spread that grows and shrinks along a row, with `outlier` planted here
// and there when it is not zero.
inline std::vector<float> MakeActivations(uint32_t rows, uint32_t cols, uint32_t seed,
                                          float outlier = 0) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t{rows} * cols);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = normal(rng) * (i % 7 == 0 ? 4.0F : 0.5F);
    if (outlier != 0 && rng() % 61 == 0) x[i] = rng() % 2 == 0 ? outlier : -outlier;
  }
  return x;
}

}  // namespace cleave

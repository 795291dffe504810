#pragma once
// Seeded random weights in every storage format, and activations for them: what kernels are tested
// and measured on.
// Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace cleave {

inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ40,
                                       DType::kQ41, DType::kQ50, DType::kQ51,  DType::kQ80,
                                       DType::kQ4K, DType::kQ5K, DType::kQ6K};

// A matrix as a file holds it, `cols` whole blocks: random codes, scales around `scale`, values of
// either sign. The same seed gives the same bytes.
std::vector<std::byte> RandomWeights(DType dtype, uint64_t rows, uint64_t cols, uint32_t seed,
                                     float scale = 0.01F);

// Normal activations [rows, cols] of a spread that grows and shrinks along a row, with `outlier`
// planted here and there when it is not zero.
std::vector<float> MakeActivations(uint32_t rows, uint32_t cols, uint32_t seed, float outlier = 0);

}  // namespace cleave

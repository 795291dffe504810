#pragma once
// QuantBlock: 32 elements of one quantised row as codes and scales, read from a file's blocks
// (layouts: tensor/dtype.h). Everything that looks into such blocks reads them here.
// Pure; any thread.

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace cleave {

// Element i is float(codes[i] - ZeroCode) · scale[i / 16], plus min in formats that have one.
struct QuantBlock {
  std::array<uint8_t, 32> codes{};
  std::array<float, 2> scale{};  // of elements 0..15 and 16..31; equal unless the format has two
  float min = 0;                 // added, so the negative of a K-quant's minimum
};

// Window `window` (elements 32·window + 0..31) of a quantised row. The effective scale and minimum
// of a sub-block are one fp32 product each.
QuantBlock ReadQuantBlock(DType dtype, const std::byte* row, uint64_t window);

// Its values, fp32 [32]: the product and the sum each rounded once.
void Dequantise(DType dtype, const QuantBlock& block, float* out);

}  // namespace cleave

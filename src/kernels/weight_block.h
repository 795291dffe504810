#pragma once
// WeightBlock: 32 elements of one weight row as codes and scales: what packing reads from a file's
// blocks, writes into records and, for tests, look-ups and the scalar kernels, reads back.
// Internal to kernels. Pure; any thread.

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/record.h"

namespace cleave {

struct WeightBlock {
  std::array<uint8_t, 32> codes{};
  std::array<float, 2> scale{};  // of elements 0..15 and 16..31; equal unless the format has two
  float min = 0;                 // added; 0 in formats without one
};

// Window `window` (elements 32·window + 0..31) of a quantised row in its file's format.
WeightBlock ReadSourceBlock(DType dtype, const std::byte* row, uint32_t window);

// Lane `lane` of a record of a quantised type.
void StoreBlock(const RecordLayout& layout, const WeightBlock& block, uint32_t lane,
                std::byte* record);
WeightBlock LoadBlock(const RecordLayout& layout, const std::byte* record, uint32_t lane);

// Lane `lane` of a record of a plain type, as fp32 [32].
void LoadPlain(DType dtype, const std::byte* record, uint32_t lane, float* out);

}  // namespace cleave

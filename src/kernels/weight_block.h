#pragma once
// A lane's 32 elements of a record: what packing writes and, for tests, look-ups and the scalar
// kernels, reads back.
// Internal to kernels. Pure; any thread.

#include <cstddef>
#include <cstdint>

#include "kernels/record.h"
#include "tensor/quant_block.h"

namespace cleave {

// Lane `lane` of a record of a quantised type.
void StoreBlock(const RecordLayout& layout, const QuantBlock& block, uint32_t lane,
                std::byte* record);
QuantBlock LoadBlock(const RecordLayout& layout, const std::byte* record, uint32_t lane);

// Lane `lane` of a record of a plain type, as fp32 [32].
void LoadPlain(DType dtype, const std::byte* record, uint32_t lane, float* out);

}  // namespace cleave

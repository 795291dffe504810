#pragma once
// Prepared activation rows as bytes, for a rank that did not prepare them: what the row is
// multiplied by, no more, so that both ranks multiply the same. Pure; any thread.
//
//   int8  blocks · 32 int8, blocks · 4 scales (fp32); the sums are made again
//   bf16  blocks · 32 · 2        f32   blocks · 32 · 4

#include <cstddef>
#include <cstdint>

#include "kernels/matmul.h"

namespace cleave {

// Of a row of `blocks` blocks.
size_t ActRowBytes(ActKind kind, size_t blocks);

// Row `row` of the buffer, of one term.
void StoreActRow(ActKind kind, const ActBuffer& from, size_t blocks, uint32_t row, std::byte* out);
void LoadActRow(ActKind kind, const std::byte* in, size_t blocks, uint32_t row, ActBuffer* to);

}  // namespace cleave

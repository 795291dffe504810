#pragma once
// PackJob: one matrix of a rank to repack: which rows of the checkpoint, in which order, become
// what. Views into the checkpoint and into ModelWeights. Any thread.

#include <cstdint>

#include "kernels/packed_matrix.h"
#include "model/checkpoint.h"
#include "tensor/view.h"

namespace cleave {

struct PackJob {
  TensorView source = {};  // as stored
  RowOrder order = RowOrder::kPlain;
  uint32_t head_dim = 0;
  uint32_t first_row = 0;          // of the plain order; a border of heads where they are reordered
  PackedMatrix* target = nullptr;  // described; its type may be another one (--dtype)

  // Where the target's output row `row` lies in the source.
  [[nodiscard]] uint64_t SourceRowOf(uint64_t row) const {
    return SourceRow(order, first_row + row, head_dim);
  }
};

}  // namespace cleave

#pragma once
// How a row that matrices take as `kind` goes to another rank (split/traffic.h): in the fewest
// bytes that give it the input it would prepare itself. Pure; any thread.

#include "kernels/packed_matrix.h"
#include "split/traffic.h"

namespace cleave {

inline RowWire WireOf(ActKind kind) {
  if (kind == ActKind::kInt8) return RowWire::kInt8;
  return kind == ActKind::kBF16 ? RowWire::kBf16 : RowWire::kFloat;
}

// The kind that rows travel in, prepared. Not of kFloat.
inline ActKind KindOf(RowWire wire) {
  return wire == RowWire::kInt8 ? ActKind::kInt8 : ActKind::kBF16;
}

}  // namespace cleave

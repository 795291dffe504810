#pragma once
// What a checkpoint's weights take in memory, in the parts that a cut shares out, and how they take
// their rows. Reads no weight. Any thread. Fails as Checkpoint::Weight.

#include <optional>
#include <vector>

#include "model/checkpoint.h"
#include "split/layout_report.h"

namespace cleave {

// `float_type`: unquantised matrices are rounded to it; kF32 takes quantised ones too.
Result<ModelBytes> BytesOf(const Checkpoint& checkpoint, std::optional<DType> float_type);
// [num_layers]
Result<std::vector<LayerWires>> WiresOf(const Checkpoint& checkpoint,
                                        std::optional<DType> float_type);

}  // namespace cleave

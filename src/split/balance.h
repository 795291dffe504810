#pragma once
// How many layers each pipeline stage takes. Pure; any thread.

#include <cstdint>
#include <vector>

#include "split/model_shape.h"

namespace cleave {

// Contiguous stages of at least one layer each; the first also pays the
// embedding, the last the head. The largest stage cost is the smallest there
// is; among those, the sum of the squares of the stage costs (so that 7 layers
// go 3,2,2 and not 3,3,1); among those, earlier stages take more. 1 <= stages
// <= costs.layers.size(); costs are finite and not negative. At most stages ·
// layers² / 2 additions.
std::vector<uint32_t> BalanceLayers(const LayerCosts& costs, uint32_t stages);

}  // namespace cleave

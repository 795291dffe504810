#pragma once
// What a layer and the head of a model take on this machine, by running them: pipeline stages are
// balanced by it. Multiply-adds alone would not do: a head stored in more bits, or too large for
// the caches, takes longer than its share of them.
//
// Loads a few layers and the head (a model's layers are alike) and lets them go again. Main thread.
// Fails with what loading a rank of the model fails with.

#include <memory>

#include "base/status.h"
#include "engine/open_model.h"
#include "split/model_shape.h"

namespace cleave {

// In nanoseconds of one core, for a decoding step of kCostRows sequences of kCostContext tokens,
// the least of several runs; the head at most three times off its multiply-adds. `plan` is one of
// the checkpoint; its types are used, its cut is not.
inline constexpr uint32_t kCostRows = 16;
inline constexpr uint32_t kCostContext = 256;
Result<LayerCosts> MeasureCosts(std::unique_ptr<Checkpoint> checkpoint, const ModelPlan& plan);

}  // namespace cleave

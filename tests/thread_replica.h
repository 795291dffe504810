#pragma once
// Tests only: a replica whose ranks are threads of this process, with the same shared segment,
// groups and plans as processes have.

#include <memory>
#include <string>

#include "engine/executor.h"
#include "engine/open_model.h"
#include "split/split.h"

namespace cleave {

// The leader's executor; it owns the other ranks and ends them when it goes.
Result<std::unique_ptr<Executor>> MakeThreadReplica(const std::string& model, const ModelPlan& plan,
                                                    const Split& split);

}  // namespace cleave

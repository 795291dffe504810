#pragma once
// Tests only: a replica whose ranks are threads of this process, with the same shared segment,
// groups and plans as processes have. At its end it checks that the bill of every rank is exact.

#include <memory>
#include <string>

#include "comm/world.h"
#include "engine/executor.h"
#include "engine/open_model.h"
#include "split/split.h"

namespace cleave {

struct ThreadReplicaOptions {
  uint64_t one_shot_max_bytes = WorldOptions().one_shot_max_bytes;
  Bill* bill = nullptr;  // gets what the ranks moved, when they are done
};

// The leader's executor; it owns the other ranks and ends them when it goes.
Result<std::unique_ptr<Executor>> MakeThreadReplica(const std::string& model, const ModelPlan& plan,
                                                    const Split& split,
                                                    const ThreadReplicaOptions& options = {});

}  // namespace cleave

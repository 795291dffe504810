#pragma once
// From a plan to what every worker process is told: the orders of all ranks of all replicas.
// Pure but for the topology it is given; any thread.

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/open_model.h"
#include "launch/cpu_plan.h"
#include "launch/worker_spec.h"

namespace cleave {

struct OrdersInput {
  std::string model_path;
  ModelSettings settings;
  EngineConfig engine;
  std::string log_level;
  std::string log_format;
};

// orders[replica][rank]; ranks pinned to their own cores where there are enough.
std::vector<std::vector<WorkerSpec>> MakeOrders(const OrdersInput& input, const ModelPlan& plan,
                                                const CpuTopology& topology);

}  // namespace cleave

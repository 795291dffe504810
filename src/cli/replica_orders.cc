#include "cli/replica_orders.h"

#include <utility>

namespace cleave {

std::vector<std::vector<WorkerSpec>> MakeOrders(const OrdersInput& input, const ModelPlan& plan,
                                                const CpuTopology& topology) {
  Split split = plan.layout.split;
  const uint32_t ranks = split.ranks_per_replica();
  split.pp_layers.clear();
  for (uint32_t stage = 0; stage < split.pp; ++stage) {
    split.pp_layers.push_back(plan.layout.of({.pp = stage}).layers.size());
  }
  const uint32_t threads = input.settings.threads > 0
                               ? input.settings.threads
                               : ThreadsPerRank(topology.cores(), split.world_size());
  const auto cpus = PlanCpus(topology, split.world_size(), threads);
  std::vector<std::vector<WorkerSpec>> orders(split.dp);
  for (uint32_t replica = 0; replica < split.dp; ++replica) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      WorkerSpec spec;
      spec.model_path = input.model_path;
      spec.settings = input.settings;
      spec.split = split;
      spec.replica = replica;
      spec.rank = rank;
      spec.threads = threads;
      spec.cpus = cpus[replica * ranks + rank];
      spec.sizing = plan.sizing;
      spec.engine = input.engine;
      spec.log_level = input.log_level;
      spec.log_format = input.log_format;
      orders[replica].push_back(std::move(spec));
    }
  }
  return orders;
}

}  // namespace cleave

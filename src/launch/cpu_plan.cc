#include "launch/cpu_plan.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <memory>

namespace cleave {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

Result<Topology> LoadTopology(const std::string& synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Unavailable("hwloc does not start");
  Topology topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0) {
    return InvalidArgument(fmt::format("'{}' describes no machine to hwloc", synthetic));
  }
  if (hwloc_topology_load(raw) != 0) return Unavailable("hwloc finds no topology of this machine");
  return topology;
}

// The first logical processor of the core that may be used; -1 when none may.
int FirstUsable(hwloc_const_cpuset_t core, const cpu_set_t* allowed) {
  for (int pu = hwloc_bitmap_first(core); pu >= 0; pu = hwloc_bitmap_next(core, pu)) {
    if (allowed == nullptr || (pu < CPU_SETSIZE && CPU_ISSET(pu, allowed))) return pu;
  }
  return -1;
}

// How many ranks each node takes: one after another goes where the most cores are left. Empty when
// some rank fits into no node.
std::vector<uint32_t> RanksOfNodes(const CpuTopology& topology, uint32_t ranks, size_t threads) {
  std::vector<uint32_t> taken(topology.nodes.size(), 0);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const auto left = [&](size_t node) {
      return topology.nodes[node].size() - taken[node] * threads;
    };
    size_t best = 0;
    for (size_t node = 1; node < taken.size(); ++node) {
      if (left(node) > left(best)) best = node;
    }
    if (left(best) < threads) return {};
    ++taken[best];
  }
  return taken;
}

}  // namespace

uint32_t CpuTopology::cores() const {
  size_t count = 0;
  for (const std::vector<int>& node : nodes) count += node.size();
  return static_cast<uint32_t>(count);
}

Result<CpuTopology> ReadCpuTopology(const std::string& synthetic) {
  ASSIGN_OR_RETURN(const Topology topology, LoadTopology(synthetic));
  cpu_set_t mask;
  const cpu_set_t* allowed = nullptr;
  if (synthetic.empty() && ::sched_getaffinity(0, sizeof(mask), &mask) == 0) allowed = &mask;
  CpuTopology result;
  hwloc_obj_t core = nullptr;
  hwloc_obj_t node = nullptr;
  while ((core = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_CORE, core)) != nullptr) {
    const int pu = FirstUsable(core->cpuset, allowed);
    if (pu < 0) continue;
    // Cores come in the order of the tree, so a node's stand together.
    if (node == nullptr || !hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(pu))) {
      node = nullptr;
      while ((node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node)) !=
             nullptr) {
        if (hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(pu))) break;
      }
      result.nodes.emplace_back();
    }
    result.nodes.back().push_back(pu);
  }
  if (result.nodes.empty()) return Unavailable("hwloc finds no core that this process may use");
  return result;
}

bool PinThisThread(std::span<const int> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  return CPU_COUNT(&set) == 0 || ::sched_setaffinity(0, sizeof(set), &set) == 0;
}

uint32_t ThreadsPerRank(uint32_t cores, uint32_t ranks) {
  return std::max<uint32_t>(1, ranks == 0 ? cores : cores / ranks);
}

std::vector<std::vector<int>> PlanCpus(const CpuTopology& topology, uint32_t ranks,
                                       uint32_t threads_per_rank) {
  std::vector<std::vector<int>> plan(ranks);
  const size_t threads =
      threads_per_rank != 0 ? threads_per_rank : ThreadsPerRank(topology.cores(), ranks);
  if (ranks * threads > topology.cores()) return plan;

  const std::vector<uint32_t> of_nodes = RanksOfNodes(topology, ranks, threads);
  if (of_nodes.empty()) {  // some rank must straddle: in order, so that few do
    std::vector<int> all;
    for (const std::vector<int>& node : topology.nodes) {
      all.insert(all.end(), node.begin(), node.end());
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>(rank * threads);
      plan[rank].assign(begin, begin + static_cast<ptrdiff_t>(threads));
    }
    return plan;
  }
  size_t rank = 0;
  for (size_t node = 0; node < of_nodes.size(); ++node) {
    auto next = topology.nodes[node].begin();
    for (uint32_t i = 0; i < of_nodes[node]; ++i, ++rank) {
      plan[rank].assign(next, next + static_cast<ptrdiff_t>(threads));
      next += static_cast<ptrdiff_t>(threads);
    }
  }
  return plan;
}

}  // namespace cleave

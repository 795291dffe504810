#pragma once
// Which cores the ranks of this host are pinned to.
//
// Each rank gets whole cores, in one NUMA node where one has room for it; nodes are filled as
// evenly as ranks go, and neighbouring ranks stand beside each other. Where ranks want more cores
// than there are, nobody is pinned: the kernel then shares better than a plan could.
// PlanCpus is pure; ReadCpuTopology asks hwloc, within this process's affinity mask. Any thread.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace cleave {

struct CpuTopology {
  // Of each NUMA node, one logical processor per core that may be used, neighbours side by side.
  std::vector<std::vector<int>> nodes;
  [[nodiscard]] uint32_t cores() const;
};

// `synthetic` describes a machine in hwloc's words ("pack:2 core:4 pu:2"); empty: this one.
// Fails with kInvalidArgument on a description that is none, kUnavailable without a topology.
Result<CpuTopology> ReadCpuTopology(const std::string& synthetic = "");

// Processors of each rank, one a thread; empty lists when they are not pinned. threads_per_rank 0:
// cores are shared out evenly, at least one each.
std::vector<std::vector<int>> PlanCpus(const CpuTopology& topology, uint32_t ranks,
                                       uint32_t threads_per_rank);

// The calling thread, and those it starts from now on, run on these processors only; anywhere when
// there are none. False where the system does not allow it.
bool PinThisThread(std::span<const int> cpus);

// Threads a rank runs when nobody said how many.
uint32_t ThreadsPerRank(uint32_t cores, uint32_t ranks);

}  // namespace cleave

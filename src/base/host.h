#pragma once
// What this host gives one program: memory within its cgroup, cores within its affinity mask and
// CPU quota.
// Read once at start; any thread. Never fails: what cannot be read is taken from the next coarser
// source (cgroup, then /proc, then the C library).

#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

struct HostMemory {
  uint64_t total_bytes = 0;      // the smaller of the machine's and the cgroup's
  uint64_t available_bytes = 0;  // of that, what could be taken now without swapping
  std::string limited_by;        // "machine" or the cgroup file that says so
};

// `root` is prepended to /proc and /sys paths; tests give a folder.
HostMemory ReadHostMemory(const std::string& root = "");

// One logical processor per physical core that this process may run on, ascending; never empty.
std::vector<int> UsableCores();
// UsableCores().size(), lowered to the cgroup's CPU quota (at least 1).
uint32_t UsableCoreCount(const std::string& root = "");

}  // namespace cleave

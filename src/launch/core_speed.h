#pragma once
// How quick the cores of ranks are beside each other, for --tp-shares auto. Any thread.

#include <cstdint>
#include <span>
#include <vector>

namespace cleave {

// Work a second of processor time that each rank's threads do on their cores (cpu_plan.h), within
// the same 30 ms, as ranks of a layer work: in any common unit. An empty list of cores: one thread,
// wherever the system puts it.
std::vector<double> MeasureCoreSpeeds(const std::vector<std::vector<int>>& cpus_of_ranks);

// Shares in proportion to speeds, as --tp-shares takes them: whole numbers, the largest
// kLargestShare at most. Empty, even shares, where no rank is quicker than another by a tenth: a
// measurement is not that exact.
inline constexpr uint32_t kLargestShare = 16;
std::vector<uint32_t> SharesBySpeed(std::span<const double> speeds);

}  // namespace cleave

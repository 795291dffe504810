#pragma once
// Crossover: from which size on a group's reductions go by reduce-scatter and all-gather.
//
// Found by trial, in a few milliseconds, at start: it hangs on caches, memory and the number of
// members. Every member makes the same calls, adds up what all have measured and so takes the same
// decision. What was metered until then is forgotten. Fails as the group does.

#include <array>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace cleave {

class ShmGroup;

// Payload bytes of the trials: rows of 576 columns, about doubling.
inline constexpr std::array<uint32_t, 6> kTrialRows = {1, 4, 8, 16, 32, 64};

Result<uint64_t> MeasureCrossover(ShmGroup* group);

// The decision alone: times by trial, summed over members. One-shot up to the last trial before the
// first that it loses; for ever when it loses none, never when it loses the first.
uint64_t CrossoverOf(std::span<const uint64_t> one_shot_ns, std::span<const uint64_t> two_shot_ns);
// What a trial of so many rows counts as.
uint64_t TrialBytes(uint32_t rows);

}  // namespace cleave

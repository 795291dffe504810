#pragma once
// Crossover: from which size on a group's reductions go by reduce-scatter and all-gather; and how
// its large messages are best stored.
//
// Found by trial, in a few milliseconds, at start: they hang on caches, memory and the number of
// members. Every member makes the same calls, adds up what all have measured and so takes the same
// decision. What was metered until then is forgotten. Fails as the group does.

#include <array>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "comm/row_codec.h"

namespace cleave {

class ShmGroup;

// The trials: rows of 576 columns, 2.3 KB to 295 KB.
inline constexpr std::array<uint32_t, 4> kTrialRows = {1, 8, 32, 128};

// Sets what it finds. First the stores: the crossover hangs on them.
Result<StoreKind> MeasureStores(ShmGroup* group);
Result<uint64_t> MeasureCrossover(ShmGroup* group);

// The decision alone, of times by trial, summed over members: the border that loses least, each
// trial counted relative to its faster way, so that one disturbed trial does not decide. For ever
// when it lies behind the last trial, never when before the first.
uint64_t CrossoverOf(std::span<const uint64_t> one_shot_ns, std::span<const uint64_t> two_shot_ns);
// What a trial of so many rows counts as.
uint64_t TrialBytes(uint32_t rows);

}  // namespace cleave

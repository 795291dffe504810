#pragma once
// Tokens that went to each expert: how ranks count them and what the counts say.
//
// A rank counts, over all its layers, the tokens that it computed for each expert; where ranks
// compute one together (columns of it, or equal rows), the first of them counts. So the ranks' sums
// count each once. Smoke forwards are steps like others.
// Counts are read while they grow, each for itself. Pure values else; any thread.

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "split/split.h"

namespace cleave {

// One writer, the rank's thread 0; readers are any thread of any process.
using ExpertCount = std::atomic<uint64_t>;
static_assert(ExpertCount::is_always_lock_free && sizeof(ExpertCount) == sizeof(uint64_t));

// [E] tokens of each expert; empty: a model without.
using ExpertTokens = std::vector<uint64_t>;

ExpertTokens ReadCounts(std::span<const ExpertCount> counts);
// An empty sum becomes `more`; one too large stays at the most.
void AddTokens(const ExpertTokens& more, ExpertTokens* sum);

// Of one replica, by rank: the largest load over the mean one, of the ep ranks or, where ep is 1,
// of the experts. 1: even, or nothing was counted.
double ExpertImbalance(const Split& split, std::span<const ExpertTokens> ranks);

}  // namespace cleave

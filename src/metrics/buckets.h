#pragma once
// Histogram edges, vLLM's. Pure; any thread.

#include <cstdint>
#include <vector>

namespace cleave {

// 1, 2, 5, 10, 20, 50, … up to `most`.
std::vector<double> SizeBuckets(uint32_t most);

const std::vector<double>& IterationTokenBuckets();
const std::vector<double>& ChoiceBuckets();
const std::vector<double>& PreemptionBuckets();
const std::vector<double>& FirstTokenBuckets();
const std::vector<double>& TokenTimeBuckets();
const std::vector<double>& RequestTimeBuckets();
const std::vector<double>& HttpFineBuckets();
const std::vector<double>& HttpCoarseBuckets();

}  // namespace cleave

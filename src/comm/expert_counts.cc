#include "comm/expert_counts.h"

#include <algorithm>
#include <numeric>

namespace cleave {

ExpertTokens ReadCounts(std::span<const ExpertCount> counts) {
  ExpertTokens tokens(counts.size());
  for (size_t i = 0; i < counts.size(); ++i) tokens[i] = counts[i].load(std::memory_order_relaxed);
  return tokens;
}

void AddTokens(const ExpertTokens& more, ExpertTokens* sum) {
  if (sum->size() < more.size()) sum->resize(more.size(), 0);
  for (size_t i = 0; i < more.size(); ++i) {
    (*sum)[i] += std::min(more[i], UINT64_MAX - (*sum)[i]);
  }
}

double ExpertImbalance(const Split& split, std::span<const ExpertTokens> ranks) {
  ExpertTokens loads;
  if (split.ep == 1) {
    for (const ExpertTokens& rank : ranks) AddTokens(rank, &loads);
  } else {
    loads.resize(split.ep, 0);
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
      loads[ExpertPlaceOf(split, CoordOf(split, rank)).ep_rank] +=
          std::accumulate(ranks[rank].begin(), ranks[rank].end(), uint64_t{0});
    }
  }
  const auto sum = static_cast<double>(std::accumulate(loads.begin(), loads.end(), uint64_t{0}));
  if (sum == 0) return 1;
  const auto most = static_cast<double>(*std::max_element(loads.begin(), loads.end()));
  return most * static_cast<double>(loads.size()) / sum;
}

}  // namespace cleave

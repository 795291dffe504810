#pragma once
// RowShare: rows that the cp ranks computed a share of each (CpRowsOf), made whole on all of them.
//
// Owner: a part of the forward pass. Thread: the rank's thread 0. No allocation after construction.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/forward/rank_context.h"

namespace cleave {

class RowShare {
 public:
  explicit RowShare(const RankContext& context) : context_(context), sizes_(context.cp_size()) {}

  // rows: [tokens, width], of which each rank has its own.
  Status Gather(uint32_t tokens, uint32_t width, float* rows);

 private:
  const RankContext& context_;
  std::vector<uint64_t> sizes_;  // [cp]
};

}  // namespace cleave

#pragma once
// RowShare: rows that the ranks of an axis computed a share of each, made whole on all of them.
//
//   cp: rows of a large step (CpRowsOf)     tp: of those, the residual rows (TpRowsOf)
//
// Owner: a part of the forward pass. Thread: the rank's thread 0. No allocation after construction.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/forward/rank_context.h"

namespace cleave {

class RowShare {
 public:
  // axis: kTp or kCp.
  RowShare(const RankContext& context, Axis axis);

  // Of rows [0, rows): whether they are shared out, and what this rank has of them.
  [[nodiscard]] bool Shares(uint32_t rows) const;
  [[nodiscard]] Range OwnOf(uint32_t rows) const { return PartOf(me_, rows); }
  // [members] in order; until the next call.
  std::span<const Range> PartsOf(uint32_t rows);
  // rows: [rows, width], of which each rank has its own.
  Status Gather(uint32_t rows, uint32_t width, float* data);

 private:
  [[nodiscard]] Range PartOf(uint32_t member, uint32_t rows) const;

  const RankContext& context_;
  const Axis axis_;
  const uint32_t me_;
  std::vector<Range> parts_;     // [members]
  std::vector<uint64_t> sizes_;  // [members]
};

}  // namespace cleave

#pragma once
// TeamRows: which rows of a batch are which team's (split/split.h): one stretch each, in the order
// of teams, maybe none.
//
// Owner: a rank's runner. Pure but for its own memory, which is taken at construction; one thread.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/executor.h"
#include "split/layout.h"

namespace cleave {

class TeamRows {
 public:
  explicit TeamRows(uint32_t teams) : rows_(teams), sequences_(teams) {}

  // kInvalidArgument: sequences of no team or not in the order of teams, or of other tokens than
  // the batch has.
  Status Assign(const ForwardBatch& batch);

  // Of the last batch assigned.
  [[nodiscard]] std::span<const Range> all() const { return rows_; }  // [teams]
  [[nodiscard]] const Range& of(uint32_t team) const { return rows_[team]; }
  [[nodiscard]] uint32_t TeamOf(uint32_t row) const;
  // The team's part of that batch, `wanted` aside.
  [[nodiscard]] ForwardBatch PartOf(uint32_t team, const ForwardBatch& batch) const;

 private:
  std::vector<Range> rows_;       // [teams]
  std::vector<Range> sequences_;  // [teams]
};

}  // namespace cleave

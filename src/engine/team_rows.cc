#include "engine/team_rows.h"

#include <fmt/format.h>

namespace cleave {

Status TeamRows::Assign(const ForwardBatch& batch) {
  size_t next = 0;
  uint64_t row = 0;
  for (uint32_t team = 0; team < rows_.size(); ++team) {
    const auto first = static_cast<uint32_t>(next);
    const uint64_t first_row = row;
    for (; next < batch.sequences.size() && batch.sequences[next].team == team; ++next) {
      row += batch.sequences[next].tokens;
    }
    if (row > batch.token_ids.size()) break;
    sequences_[team] = {first, static_cast<uint32_t>(next)};
    rows_[team] = {static_cast<uint32_t>(first_row), static_cast<uint32_t>(row)};
  }
  if (next < batch.sequences.size() && row <= batch.token_ids.size()) {
    return InvalidArgument(
        fmt::format("sequence {} of a batch is of team {}: out of order, or not "
                    "one of {}",
                    next, batch.sequences[next].team, rows_.size()));
  }
  if (row == batch.token_ids.size()) return OkStatus();
  return InvalidArgument(fmt::format("{} token ids for sequences of {}{} tokens",
                                     batch.token_ids.size(), row,
                                     row > batch.token_ids.size() ? " or more" : ""));
}

uint32_t TeamRows::TeamOf(uint32_t row) const {
  uint32_t team = 0;
  while (team + 1 < rows_.size() && row >= rows_[team].end) ++team;
  return team;
}

ForwardBatch TeamRows::PartOf(uint32_t team, const ForwardBatch& batch) const {
  return {.token_ids = batch.token_ids.subspan(rows_[team].begin, rows_[team].size()),
          .sequences = batch.sequences.subspan(sequences_[team].begin, sequences_[team].size()),
          .wanted = {}};
}

}  // namespace cleave

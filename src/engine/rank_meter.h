#pragma once
// RankMeter: keeps one rank's bill (comm/bill.h). After each half of a step it adds what
// split/traffic.h says of it and writes that down beside what the rank's groups have metered.
//
// Owner and thread: the rank's runner. Does nothing for a rank that keeps no bill. No allocation.

#include <cstdint>
#include <span>

#include "engine/executor.h"
#include "engine/forward/rank_context.h"
#include "engine/team_rows.h"

namespace cleave {

class RankMeter {
 public:
  // `context` outlives the meter. Results go in groups of `group_rows` rows at most.
  RankMeter(const RankContext& context, uint32_t group_rows)
      : context_(context), group_rows_(group_rows) {}

  // What a rank reports since the start: rows that went into reductions as int64, normed rows that
  // went to the tp group, and what went over ep and cp.
  struct Reported {
    uint64_t wide_rows = 0;
    WireCounts normed_rows = {};
    EpCounts ep = {};
    CpCounts cp = {};
  };
  // token_ids: of the rank's team, of a batch of so many in all.
  void BookForward(std::span<const int32_t> token_ids, uint32_t batch_tokens,
                   const Reported& reported, uint64_t took_ns);
  void BookResults(std::span<const WantedRow> wanted, const TeamRows& teams, uint64_t took_ns);

 private:
  void Book(const StepCounts& counts, uint64_t took_ns);

  const RankContext& context_;
  const uint32_t group_rows_;
  TrafficTotals predicted_;
  Reported before_;
  uint64_t step_ns_ = 0;
};

}  // namespace cleave

#include "engine/rank_meter.h"

#include <algorithm>

#include "comm/bill.h"

namespace cleave {

void RankMeter::BookForward(std::span<const int32_t> token_ids, uint32_t batch_tokens,
                            const Reported& reported, uint64_t took_ns) {
  if (context_.comm.bill == nullptr) return;
  StepCounts counts;
  counts.tokens = static_cast<uint32_t>(token_ids.size());
  counts.others.tokens = batch_tokens - counts.tokens;
  const RankLayout& mine = context_.mine();
  if (mine.first_stage) {
    counts.embedded_tokens =
        static_cast<uint32_t>(std::count_if(token_ids.begin(), token_ids.end(), [&](int32_t id) {
          return mine.vocab_rows.contains(static_cast<uint32_t>(id));
        }));
  }
  counts.wide_rows = reported.wide_rows - before_.wide_rows;
  for (uint32_t wire = 0; wire < kRowWires; ++wire) {
    counts.normed_rows[wire] = reported.normed_rows[wire] - before_.normed_rows[wire];
  }
  counts.ep = reported.ep - before_.ep;
  counts.cp = reported.cp - before_.cp;
  before_ = reported;
  Book(counts, took_ns);
}

void RankMeter::BookResults(std::span<const WantedRow> wanted, const TeamRows& teams,
                            uint64_t took_ns) {
  if (context_.comm.bill == nullptr) return;
  const Range mine = teams.of(context_.mine().coord.team);
  StepCounts counts;
  for (size_t first = 0; first < wanted.size(); first += group_rows_) {
    const auto group = wanted.subspan(first, std::min<size_t>(group_rows_, wanted.size() - first));
    uint32_t greedy = 0;
    uint32_t full = 0;
    uint32_t others_greedy = 0;
    for (const WantedRow& row : group) {
      const bool is_full = row.use == RowUse::kLogits;
      if (mine.contains(row.row)) {
        ++(is_full ? full : greedy);
      } else {
        ++(is_full ? counts.others.full_rows : others_greedy);
      }
    }
    counts.greedy_rows += greedy;
    counts.greedy_groups += greedy > 0 ? 1 : 0;
    counts.full_rows += full;
    counts.full_groups += full > 0 ? 1 : 0;
    counts.others.greedy_rows += others_greedy;
    counts.others.greedy_groups += others_greedy > 0 && greedy == 0 ? 1 : 0;
  }
  Book(counts, took_ns);
}

void RankMeter::Book(const StepCounts& counts, uint64_t took_ns) {
  const RankComm& comm = context_.comm;
  TrafficOptions options;
  if (comm.tp != nullptr) options.one_shot_max_bytes = comm.tp->one_shot_max_bytes();
  AddTrafficOfStep(*context_.layout, context_.rank, counts, options, &predicted_);
  step_ns_ += took_ns;
  RankBill bill;
  if (comm.pp != nullptr) bill.AddMetered(Axis::kPp, comm.pp->stats());
  if (comm.tp != nullptr) bill.AddMetered(Axis::kTp, comm.tp->stats());
  for (const Group* group : {comm.ep, comm.team}) {
    if (group != nullptr) bill.AddMetered(Axis::kEp, group->stats());
  }
  for (const Group* group : {comm.cp, comm.dcp}) {
    if (group != nullptr) bill.AddMetered(Axis::kCp, group->stats());
  }
  bill.AddPredicted(predicted_);
  bill.AddStepTime(step_ns_);
  comm.bill->Write(bill);
}

}  // namespace cleave

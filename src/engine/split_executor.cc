#include "engine/split_executor.h"

#include <utility>

namespace cleave {
namespace {

void Enter(RankPhase phase, RankLine* line) { line->Enter(phase, SteadyNanos()); }

}  // namespace

SplitExecutor::SplitExecutor(std::unique_ptr<RankRunner> runner, BroadcastRing ring, RankLine* line)
    : runner_(std::move(runner)),
      ring_(std::move(ring)),
      line_(line),
      wanted_(runner_->layout().split.pp) {
  Enter(RankPhase::kIdle, line_);
}

Status SplitExecutor::Submit(const ForwardBatch& batch) {
  if (under_way_ == wanted_.size()) return Internal("more batches under way than stages");
  WritePlan(batch, &message_);
  RETURN_IF_ERROR(ring_.Write(message_));
  wanted_[(oldest_ + under_way_++) % wanted_.size()].assign(batch.wanted.begin(),
                                                            batch.wanted.end());
  Enter(RankPhase::kComputing, line_);
  return runner_->Forward(batch);
}

Status SplitExecutor::Collect(const RowSink& sink) {
  if (under_way_ == 0) return Internal("no batch is under way");
  const Status status = runner_->Results(wanted_[oldest_], sink);
  oldest_ = (oldest_ + 1) % wanted_.size();
  if (--under_way_ == 0) Enter(RankPhase::kIdle, line_);
  return status;
}

Status FollowPlans(RankRunner* runner, BroadcastRing* ring, RankLine* line) {
  const ScopedFpMode fp_mode;
  std::vector<std::byte> message;
  ParsedPlan plan;
  const RowSink nobody = [](uint32_t, const RowResult&) { return OkStatus(); };
  for (;;) {
    Enter(RankPhase::kIdle, line);
    RETURN_IF_ERROR(ring->Read(&message));
    Enter(RankPhase::kComputing, line);
    RETURN_IF_ERROR(ParsePlan(message, &plan));
    RETURN_IF_ERROR(runner->Forward(plan.batch()));
    RETURN_IF_ERROR(runner->Results(plan.wanted, nobody));
  }
}

}  // namespace cleave

#include "engine/split_executor.h"

#include <utility>

namespace cleave {

SplitExecutor::SplitExecutor(std::unique_ptr<RankRunner> runner, BroadcastRing ring)
    : runner_(std::move(runner)), ring_(std::move(ring)), wanted_(runner_->layout().split.pp) {
  runner_->Enter(RankPhase::kIdle);
}

SplitExecutor::~SplitExecutor() { (void)ring_.Write({}); }

Status SplitExecutor::Submit(const ForwardBatch& batch) {
  if (under_way_ == wanted_.size()) return Internal("more batches under way than stages");
  WritePlan(batch, &message_);
  RETURN_IF_ERROR(ring_.Write(message_));
  wanted_[(oldest_ + under_way_++) % wanted_.size()].assign(batch.wanted.begin(),
                                                            batch.wanted.end());
  runner_->Enter(RankPhase::kComputing);
  return runner_->Forward(batch);
}

Status SplitExecutor::Collect(const RowSink& sink) {
  if (under_way_ == 0) return Internal("no batch is under way");
  Status status = runner_->Results(wanted_[oldest_], sink);
  oldest_ = (oldest_ + 1) % wanted_.size();
  if (--under_way_ == 0) runner_->Enter(RankPhase::kIdle);
  return status;
}

Status FollowPlans(RankRunner* runner, BroadcastRing* ring) {
  const ScopedFpMode fp_mode;
  std::vector<std::byte> message;
  ParsedPlan plan;
  const RowSink nobody = [](uint32_t, const RowResult&) { return OkStatus(); };
  for (;;) {
    runner->Enter(RankPhase::kIdle);
    RETURN_IF_ERROR(ring->Read(&message));
    if (message.empty()) return OkStatus();
    runner->Enter(RankPhase::kComputing);
    RETURN_IF_ERROR(ParsePlan(message, &plan));
    RETURN_IF_ERROR(runner->Forward(plan.batch()));
    RETURN_IF_ERROR(runner->Results(plan.wanted, nobody));
  }
}

}  // namespace cleave

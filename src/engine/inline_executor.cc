#include "engine/inline_executor.h"

#include <fmt/format.h>

#include <utility>

namespace cleave {

InlineExecutor::InlineExecutor(std::unique_ptr<RankRunner> runner) : runner_(std::move(runner)) {
  wanted_.reserve(runner_->options().max_batch_tokens + runner_->options().max_sequences);
}

Result<std::unique_ptr<InlineExecutor>> InlineExecutor::Create(
    std::unique_ptr<Checkpoint> checkpoint, const RankOptions& options, const Layout& layout,
    const LoadProgress& progress) {
  if (layout.ranks.size() != 1) {
    return InvalidArgument(
        fmt::format("{} ranks in one process; {}", layout.ranks.size(), layout.split.ToString()));
  }
  ASSIGN_OR_RETURN(auto runner, RankRunner::Create(std::move(checkpoint), options, layout, 0,
                                                   RankComm(), progress));
  return std::make_unique<InlineExecutor>(std::move(runner));
}

Status InlineExecutor::Submit(const ForwardBatch& batch) {
  wanted_.assign(batch.wanted.begin(), batch.wanted.end());
  runner_->Enter(RankPhase::kComputing);
  return runner_->Forward(batch);
}

Status InlineExecutor::Collect(const RowSink& sink) {
  Status status = runner_->Results(wanted_, sink);
  runner_->Enter(RankPhase::kIdle);
  return status;
}

Status RunBatch(Executor* executor, const ForwardBatch& batch, const RowSink& sink) {
  RETURN_IF_ERROR(executor->Submit(batch));
  return executor->Collect(sink);
}

}  // namespace cleave

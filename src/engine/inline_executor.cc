#include "engine/inline_executor.h"

#include <fmt/format.h>

#include <utility>

namespace cleave {

Result<std::unique_ptr<InlineExecutor>> InlineExecutor::Create(
    std::unique_ptr<Checkpoint> checkpoint, const RankOptions& options, const Layout& layout,
    const LoadProgress& progress) {
  if (layout.ranks.size() != 1) {
    return InvalidArgument(
        fmt::format("{} ranks in one process; {}", layout.ranks.size(), layout.split.ToString()));
  }
  ASSIGN_OR_RETURN(auto runner, RankRunner::Create(std::move(checkpoint), options, layout, 0,
                                                   RankComm(), progress));
  auto executor = std::unique_ptr<InlineExecutor>(new InlineExecutor(std::move(runner)));
  executor->wanted_.reserve(options.max_batch_tokens + options.max_sequences);
  return executor;
}

Status InlineExecutor::Submit(const ForwardBatch& batch) {
  wanted_.assign(batch.wanted.begin(), batch.wanted.end());
  return runner_->Forward(batch);
}

Status InlineExecutor::Collect(const RowSink& sink) { return runner_->Results(wanted_, sink); }

Status RunBatch(Executor* executor, const ForwardBatch& batch, const RowSink& sink) {
  RETURN_IF_ERROR(executor->Submit(batch));
  return executor->Collect(sink);
}

}  // namespace cleave

#include "bench/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "kernels/isa.h"
#include "kernels/logits.h"
#include "kernels/math.h"

namespace cleave {
namespace {

// Sum of -ln p over the window's scored tokens.
class WindowScorer {
 public:
  WindowScorer(Executor* executor, Isa isa, const PerplexityOptions& options)
      : executor_(executor),
        isa_(isa),
        context_(options.context),
        blocks_(CeilDiv(options.context, options.block_tokens)) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  [[nodiscard]] uint32_t first_scored() const { return context_ / 2 + 1; }

  Result<double> Score(std::span<const int32_t> window) {
    double sum = 0;
    for (uint32_t begin = 0; begin < context_;) {
      const uint32_t tokens = std::min(executor_->max_batch_tokens(), context_ - begin);
      const BatchSequence sequence{
          .first_position = begin, .tokens = tokens, .block_table = blocks_};
      // Position p's logits score token p + 1.
      rows_.clear();
      const uint32_t first = std::max(begin, first_scored() - 1);
      const uint32_t last = std::min(begin + tokens, context_ - 1);
      for (uint32_t p = first; p < last; ++p) rows_.push_back({.row = p - begin});
      RETURN_IF_ERROR(RunBatch(executor_,
                               {.token_ids = window.subspan(begin, tokens),
                                .sequences = {&sequence, 1},
                                .wanted = rows_},
                               [&](uint32_t i, const RowResult& result) {
                                 sum += ScoreRow(result.logits, window[first + i + 1]);
                                 return OkStatus();
                               }));
      begin += tokens;
    }
    return sum;
  }

 private:
  // -ln p of `token`.
  [[nodiscard]] double ScoreRow(const float* row, int32_t token) const {
    const float max = FindMax(isa_, row, executor_->vocab_size()).value;
    const int64_t mass = ComputeMasses(isa_, row, executor_->vocab_size(), max, kLog2E, nullptr);
    return LogSumExp(max, mass) - row[token];
  }

  Executor* const executor_;
  const Isa isa_;
  const uint32_t context_;
  std::vector<int32_t> blocks_;
  std::vector<WantedRow> rows_;
};

}  // namespace

Result<PerplexityResult> MeasurePerplexity(Executor* executor, std::span<const int32_t> tokens,
                                           const PerplexityOptions& options,
                                           const OnWindow& on_window) {
  if (options.context < 4) {
    return InvalidArgument(fmt::format("--context {}: at least 4 tokens", options.context));
  }
  size_t windows = tokens.size() / options.context;
  if (options.max_windows > 0) windows = std::min<size_t>(windows, options.max_windows);
  if (windows == 0) {
    return InvalidArgument(fmt::format(
        "the text has {} tokens, less than one window of {}; give more text or a smaller --context",
        tokens.size(), options.context));
  }
  ASSIGN_OR_RETURN(const Isa isa, ChooseIsa());
  const ScopedFpMode fp_mode;
  WindowScorer scorer(executor, isa, options);
  PerplexityResult result;
  double sum = 0;
  const uint64_t scored = options.context - scorer.first_scored();
  for (size_t w = 0; w < windows; ++w) {
    ASSIGN_OR_RETURN(const double window_sum,
                     scorer.Score(tokens.subspan(w * options.context, options.context)));
    sum += window_sum;
    result.scored_tokens += scored;
    result.window_perplexity.push_back(std::exp(window_sum / static_cast<double>(scored)));
    result.perplexity = std::exp(sum / static_cast<double>(result.scored_tokens));
    if (on_window) on_window(w + 1, windows, result.perplexity);
  }
  return result;
}

}  // namespace cleave

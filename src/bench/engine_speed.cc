#include "bench/engine_speed.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "base/clock.h"
#include "base/rng.h"
#include "kernels/isa.h"
#include "kernels/logits.h"

namespace cleave {
namespace {

class SpeedRun {
 public:
  SpeedRun(Executor* executor, const SpeedOptions& options, Isa isa)
      : executor_(executor), options_(options), isa_(isa) {
    const uint32_t blocks =
        CeilDiv(options.prompt_tokens + options.output_tokens, options.block_tokens);
    tables_.resize(options.batch, std::vector<int32_t>(blocks));
    for (uint32_t i = 0; i < options.batch; ++i) {
      std::iota(tables_[i].begin(), tables_[i].end(), static_cast<int32_t>(i * blocks));
    }
    last_.resize(options.batch);
    logits_.resize(static_cast<size_t>(executor->max_sequences()) * executor->vocab_size());
  }

  Status Prefill() {
    RngStream random(7);
    std::vector<int32_t> ids(options_.prompt_tokens);
    for (uint32_t i = 0; i < options_.batch; ++i) {
      for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(executor_->vocab_size()));
      uint32_t tokens = 0;
      for (uint32_t begin = 0; begin < ids.size(); begin += tokens) {
        tokens = std::min(executor_->max_batch_tokens(), options_.prompt_tokens - begin);
        const BatchSequence piece{
            .first_position = begin, .tokens = tokens, .block_table = tables_[i]};
        RETURN_IF_ERROR(executor_->Forward(
            {.token_ids = {ids.data() + begin, tokens}, .sequences = {&piece, 1}}));
      }
      const uint32_t row = tokens - 1;
      RETURN_IF_ERROR(executor_->Logits({&row, 1}, logits_.data()));
      last_[i] = FindMax(isa_, logits_.data(), executor_->vocab_size()).id;
    }
    return OkStatus();
  }

  Status Decode() {
    std::vector<BatchSequence> batch(options_.batch);
    std::vector<uint32_t> rows(options_.batch);
    std::iota(rows.begin(), rows.end(), 0);
    for (uint32_t step = 0; step < options_.output_tokens; ++step) {
      for (uint32_t i = 0; i < options_.batch; ++i) {
        batch[i] = {.first_position = options_.prompt_tokens + step,
                    .tokens = 1,
                    .block_table = tables_[i]};
      }
      RETURN_IF_ERROR(executor_->Forward({.token_ids = last_, .sequences = batch}));
      RETURN_IF_ERROR(executor_->Logits(rows, logits_.data()));
      for (uint32_t i = 0; i < options_.batch; ++i) {
        const float* row = &logits_[static_cast<size_t>(i) * executor_->vocab_size()];
        last_[i] = FindMax(isa_, row, executor_->vocab_size()).id;
      }
    }
    return OkStatus();
  }

 private:
  Executor* const executor_;
  const SpeedOptions options_;
  const Isa isa_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<int32_t> last_;
  std::vector<float> logits_;
};

}  // namespace

Result<Speed> MeasureSpeed(Executor* executor, const SpeedOptions& options) {
  ASSIGN_OR_RETURN(const Isa isa, ChooseIsa());
  const ScopedFpMode fp_mode;
  SpeedRun run(executor, options, isa);
  const TimePoint start = SteadyClock::now();
  RETURN_IF_ERROR(run.Prefill());
  const TimePoint middle = SteadyClock::now();
  RETURN_IF_ERROR(run.Decode());
  const TimePoint end = SteadyClock::now();
  Speed speed;
  speed.batch = options.batch;
  speed.prefill_s = SecondsBetween(start, middle);
  speed.decode_s = SecondsBetween(middle, end);
  speed.prefill_tokens_per_s = options.batch * options.prompt_tokens / speed.prefill_s;
  speed.decode_tokens_per_s = options.batch * options.output_tokens / speed.decode_s;
  return speed;
}

}  // namespace cleave

#include "bench/engine_speed.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "base/clock.h"
#include "base/rng.h"
#include "kernels/isa.h"

namespace cleave {
namespace {

class SpeedRun {
 public:
  SpeedRun(Executor* executor, const SpeedOptions& options)
      : executor_(executor), options_(options) {
    const uint32_t blocks =
        CeilDiv(options.prompt_tokens + options.output_tokens, options.block_tokens);
    tables_.resize(options.batch, std::vector<int32_t>(blocks));
    for (uint32_t i = 0; i < options.batch; ++i) {
      std::iota(tables_[i].begin(), tables_[i].end(), static_cast<int32_t>(i * blocks));
    }
    last_.resize(options.batch);
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
        const WantedRow row{.row = tokens - 1, .use = RowUse::kHighest};
        RETURN_IF_ERROR(RunBatch(executor_,
                                 {.token_ids = {ids.data() + begin, tokens},
                                  .sequences = {&piece, 1},
                                  .wanted = {&row, begin + tokens == ids.size() ? 1U : 0U}},
                                 [&](uint32_t /*index*/, const RowResult& result) {
                                   last_[i] = result.highest.id;
                                   return OkStatus();
                                 }));
      }
    }
    return OkStatus();
  }

  Status Decode() {
    std::vector<BatchSequence> batch(options_.batch);
    std::vector<WantedRow> rows(options_.batch);
    for (uint32_t i = 0; i < options_.batch; ++i) rows[i] = {.row = i, .use = RowUse::kHighest};
    for (uint32_t step = 0; step < options_.output_tokens; ++step) {
      for (uint32_t i = 0; i < options_.batch; ++i) {
        batch[i] = {.first_position = options_.prompt_tokens + step,
                    .tokens = 1,
                    .block_table = tables_[i]};
      }
      RETURN_IF_ERROR(RunBatch(executor_, {.token_ids = last_, .sequences = batch, .wanted = rows},
                               [this](uint32_t i, const RowResult& result) {
                                 last_[i] = result.highest.id;
                                 return OkStatus();
                               }));
    }
    return OkStatus();
  }

 private:
  Executor* const executor_;
  const SpeedOptions options_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<int32_t> last_;
};

}  // namespace

Result<Speed> MeasureSpeed(Executor* executor, const SpeedOptions& options) {
  const ScopedFpMode fp_mode;
  SpeedRun run(executor, options);
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

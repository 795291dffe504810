#pragma once
// Speed of an executor without engine or HTTP: a prefill of fresh tokens, then decode steps of a
// whole batch.
//
// Main thread; the executor must hold batch × (prompt + output) tokens.

#include <cstdint>

#include "base/status.h"
#include "engine/executor.h"

namespace cleave {

struct SpeedOptions {
  uint32_t prompt_tokens = 512;
  uint32_t output_tokens = 128;
  uint32_t batch = 1;
  uint32_t block_tokens = 16;
};

struct Speed {
  uint32_t batch = 0;
  double prefill_s = 0;  // all prompts of the batch
  double decode_s = 0;   // all steps
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;  // of the whole batch
};

Result<Speed> MeasureSpeed(Executor* executor, const SpeedOptions& options);

}  // namespace cleave

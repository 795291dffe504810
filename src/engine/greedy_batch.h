#pragma once
// Tests only: greedy continuations straight from an executor, without engine or tokenizer.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/executor.h"

namespace cleave {

struct GreedyAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;             // of each token
  std::vector<float> gaps;                 // from the largest logit to the second, at each step
  std::vector<std::vector<float>> logits;  // of each step, when asked for
};

struct GreedyOptions {
  uint32_t steps = 64;
  uint32_t block_tokens = 16;
  bool keep_logits = false;
};

// Prefills each prompt by itself, then decodes all of them together.
Result<std::vector<GreedyAnswer>> GreedyBatch(Executor* executor,
                                              const std::vector<std::vector<int32_t>>& prompts,
                                              const GreedyOptions& options);

// Logits of every position of one prompt, [positions][vocab].
Result<std::vector<std::vector<float>>> PromptLogits(Executor* executor,
                                                     const std::vector<int32_t>& prompt,
                                                     uint32_t block_tokens);

}  // namespace cleave

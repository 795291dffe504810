#pragma once
// What the engine is asked and what it answers. A sequence is one choice of one request: prompt
// ids, output ids so far and a seed are all it needs to be admitted, recomputed after preemption,
// or continued on another replica: the same call for each. Plain values; moved between threads,
// never shared.

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace cleave {

using SequenceId = uint64_t;

// All fields were checked at the door (http); the engine trusts ranges, not sizes of prompts.
struct SamplingParams {
  float temperature = 1.0F;  // 0 = greedy
  float top_p = 1.0F;
  int32_t top_k = 0;  // 0 = off
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> allowed_token_ids;       // empty = all
  std::vector<std::vector<int32_t>> bad_words;  // token sequences that may not be completed
  uint64_t seed = 0;                            // always set: drawn at admission when not given
  uint32_t prompt_index = 0;                    // with seed, choice and position: the random key
  uint32_t choice_index = 0;

  uint32_t max_tokens = 16;  // counts output ids already carried
  uint32_t min_tokens = 0;   // EOS and stop ids are masked before this many
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;  // besides the model's EOS ids

  int32_t logprobs = -1;         // -1 none; k: the chosen token's and the k most likely; V: all
  int32_t prompt_logprobs = -1;  // likewise, for prompt tokens
};

struct SequenceSpec {
  SequenceId id = 0;  // unique in the engine's life; given by the front
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;  // carried over when resuming; empty for a new one
  SamplingParams sampling;
  int32_t priority = 0;    // lower runs first under --scheduling-policy priority
  std::string cache_salt;  // prefix-cache entries are shared only under the same salt
  TimePoint arrival;
  // Which replica must take it, and of it which team (X-data-parallel-rank); -1 = any. With t teams
  // replica r / t, team r mod t.
  int32_t replica = -1;
};

enum class FinishReason { kNone, kStop, kLength, kAbort, kError };

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
  int32_t rank = 0;  // 1 = most likely; vLLM reports it
};

struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // most likely first
};

// What one step did for one sequence.
struct SequenceOutput {
  SequenceId id = 0;
  // New ids, in order (a stop id is included). A step makes one: it needs no memory of its own.
  boost::container::small_vector<int32_t, 4> tokens;
  std::vector<TokenLogprobs> logprobs;  // one per token when asked for
  // All prompt positions but the first, once, with the first output, when asked for.
  std::vector<TokenLogprobs> prompt_logprobs;
  uint32_t cached_tokens = 0;  // prompt tokens taken from the prefix cache
  FinishReason finish = FinishReason::kNone;
  int32_t stop_token_id = -1;  // the stop_token_ids entry that ended it, EOS gives -1
  Status error;                // set with kError
};

}  // namespace cleave

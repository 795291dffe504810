#pragma once
// Whether a sequence ends with the token just sampled, and why. EOS comes before the request's own
// stop ids, both before lengths; before min_tokens only lengths end it. Pure.

#include <cstdint>
#include <span>

#include "engine/request.h"

namespace cleave {

struct StopCheck {
  FinishReason reason = FinishReason::kNone;
  int32_t stop_token_id = -1;  // the entry of stop_token_ids, if that was it
};

// `token` is the last of `output_tokens` output ids and `total_tokens` ids in all.
StopCheck CheckStop(const SamplingParams& params, std::span<const int32_t> eos_token_ids,
                    uint32_t max_model_len, int32_t token, uint32_t output_tokens,
                    uint32_t total_tokens);

}  // namespace cleave

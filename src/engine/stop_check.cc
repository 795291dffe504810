#include "engine/stop_check.h"

#include <algorithm>

namespace cleave {
namespace {

bool Contains(std::span<const int32_t> ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

StopCheck CheckStop(const SamplingParams& params, std::span<const int32_t> eos_token_ids,
                    uint32_t max_model_len, int32_t token, uint32_t output_tokens,
                    uint32_t total_tokens) {
  if (output_tokens >= params.min_tokens) {
    if (!params.ignore_eos && Contains(eos_token_ids, token)) return {FinishReason::kStop, -1};
    if (Contains(params.stop_token_ids, token)) return {FinishReason::kStop, token};
  }
  if (output_tokens >= params.max_tokens || total_tokens >= max_model_len) {
    return {FinishReason::kLength, -1};
  }
  return {};
}

}  // namespace cleave

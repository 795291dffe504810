#pragma once
// The bounds of what a request may ask, for every route, and the facts of the served model the
// checks need. The only place where such a number is written down.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace cleave::openai {

inline constexpr uint32_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonNodes = 4'000'000;  // values of one body
inline constexpr size_t kMaxJsonMembers = 65'536;   // named members of one body
inline constexpr size_t kMaxObjectMembers = 2'048;  // of one object: look-up is linear
inline constexpr size_t kMaxMessages = 4'096;
inline constexpr size_t kMaxTools = 128;
inline constexpr size_t kMaxNameBytes = 128;  // ids, roles, users
inline constexpr size_t kMaxCacheSaltBytes = 1'024;
inline constexpr size_t kMaxChoices = 128;      // n
inline constexpr size_t kMaxPrompts = 1'024;    // of one completion request
inline constexpr size_t kMaxSequences = 1'024;  // n × prompts
inline constexpr size_t kMaxStops = 4;          // vLLM's default for VLLM_MAX_STOP_STRINGS
inline constexpr size_t kMaxStopBytes = 1'024;
inline constexpr size_t kMaxStopTokenIds = 1'024;
inline constexpr size_t kMaxLogitBias = 1'024;
inline constexpr size_t kMaxBadWords = 256;
inline constexpr size_t kMaxBadWordBytes = 1'024;
inline constexpr size_t kMaxTemplateBytes = 256U << 10U;

// Understood, and refused rather than ignored: the answer would not be what was asked for. Of the
// switches only true is.
inline constexpr std::string_view kUnsupportedFields[] = {
    "structured_outputs",    "prompt_embeds",      "suffix",
    "logprob_token_ids",     "guided_json",        "guided_regex",
    "guided_choice",         "guided_grammar",     "repetition_detection",
    "thinking_token_budget", "kv_transfer_params", "ec_transfer_params"};
inline constexpr std::string_view kUnsupportedSwitches[] = {
    "use_beam_search", "watermarking", "return_token_offsets", "return_prompt_text"};

// What requests are checked against; set once a model is there.
struct RequestRules {
  std::vector<std::string> model_names;  // the first is the one answers name by default
  int32_t vocab_size = 0;
  uint32_t max_model_len = 0;
  int32_t max_logprobs = 20;  // -1: the whole vocabulary
  GenerationDefaults defaults;
  bool trust_request_chat_template = false;
  bool priorities = false;  // the engine schedules by priority
  bool force_include_usage = false;
  bool return_tokens_as_token_ids = false;
};

}  // namespace cleave::openai

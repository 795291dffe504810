#pragma once
// Log-probabilities in the shapes OpenAI and vLLM answer with. Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "http/openai/json.h"
#include "model/tokenizer/tokenizer.h"

namespace cleave::openai {

struct TokenNames {
  const Tokenizer* tokenizer = nullptr;
  bool as_ids = false;  // "token_id:123"
};

// A token's text. Bytes that are no whole character read "bytes:\xe2\x96", so that names of
// different tokens differ.
std::string TokenName(int32_t id, const TokenNames& names);

// {"content":[{"token","logprob","bytes","top_logprobs":[…]},…]}
void WriteChatLogprobs(std::span<const TokenLogprobs> logprobs, const TokenNames& names,
                       JsonWriter* json);

// {"text_offset":[…],"token_logprobs":[…],"tokens":[…],"top_logprobs":[…]}. An entry of a prompt's
// first token has no probability: `unknown_first` names it. `offset` counts the characters of the
// choice so far and goes on.
struct CompletionLogprobs {
  std::optional<int32_t> unknown_first;
  std::vector<TokenLogprobs> tokens;
};
void WriteCompletionLogprobs(const CompletionLogprobs& logprobs, const TokenNames& names,
                             size_t* offset, JsonWriter* json);

// [null,{"id":{"logprob","rank","decoded_token"},…},…], or null for none.
void WritePromptLogprobs(const std::vector<TokenLogprobs>& logprobs, const TokenNames& names,
                         JsonWriter* json);

void WriteIds(std::span<const int32_t> ids, JsonWriter* json);

}  // namespace cleave::openai

#pragma once
// Requests as the routes understand them, checked: every value is within its bounds and every id
// within the vocabulary. What only the tokenizer can know (lengths, words to ids) comes in
// prompt.h. Plain values.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "http/openai/error.h"
#include "http/openai/json.h"
#include "http/openai/limits.h"

namespace cleave::openai {

enum class TruncationSide { kLeft, kRight };  // the side that is cut off

// What chat and completions share.
struct Generation {
  std::string model;  // as the answer names it
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;

  uint32_t n = 1;
  SamplingParams sampling;  // of every choice; seed, indices, bad_words and max_tokens come later
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;
  std::string max_tokens_field = "max_tokens";  // the name the client used
  std::vector<std::string> bad_words;

  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special = true;
  bool add_special_tokens = true;
  bool echo = false;
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // "token_id:123" in place of token texts
  int32_t logprobs = -1;       // alternatives shown a token; -1 = no logprobs

  std::optional<int64_t> truncate_prompt_tokens;  // -1: to max_model_len
  TruncationSide truncation_side = TruncationSide::kLeft;

  std::string request_id;  // "" = the server's choice
  int32_t priority = 0;
  std::string cache_salt;
};

struct ChatPrompt {
  // messages, tools, documents and template arguments: what the chat template sees.
  // Shared only because its type is incomplete here.
  std::shared_ptr<const Json> context;
  std::string chat_template;  // of the request; "" = the model's
  bool continue_final_message = false;
  bool add_special_tokens = false;
  std::string final_content;       // of the last message
  std::string role = "assistant";  // of the answer
};

struct ChatRequest {
  Generation generation;
  ChatPrompt prompt;
};

struct TextOrIds {
  std::string text;
  std::vector<int32_t> ids;
  bool is_text = true;
};

struct CompletionRequest {
  Generation generation;
  std::vector<TextOrIds> prompts;  // at least one
};

struct TokenizeRequest {
  std::optional<ChatPrompt> chat;  // else prompt
  std::string prompt;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::vector<int32_t> tokens;
};

Parsed<ChatRequest> ParseChatRequest(const Json& body, const RequestRules& rules);
Parsed<CompletionRequest> ParseCompletionRequest(const Json& body, const RequestRules& rules);
Parsed<TokenizeRequest> ParseTokenizeRequest(const Json& body, const RequestRules& rules);
Parsed<DetokenizeRequest> ParseDetokenizeRequest(const Json& body, const RequestRules& rules);

class Fields;

// The same of a body that `fields` gives access to.
Parsed<ChatRequest> ReadChatRequest(Fields& fields, const RequestRules& rules);
Parsed<CompletionRequest> ReadCompletionRequest(Fields& fields, const RequestRules& rules);
Parsed<TokenizeRequest> ReadTokenizeRequest(Fields& fields, const RequestRules& rules);
Parsed<DetokenizeRequest> ReadDetokenizeRequest(Fields& fields, const RequestRules& rules);

// Parts of the above, by file. Errors stay in `fields`.
void ReadModel(Fields& fields, const RequestRules& rules, std::string* model);
void ReadGeneration(Fields& fields, const RequestRules& rules, Generation* out);
ChatPrompt ReadChatPrompt(Fields& fields, const RequestRules& rules);

}  // namespace cleave::openai

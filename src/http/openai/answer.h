#pragma once
// Answer: a request's answer as JSON, built from what its choices say: one body, or a stream of
// server-sent events. Four kinds, chosen once: chat or completion, whole or streamed.
//
// Events of a stream end with "data: [DONE]", and that is said only after every choice ended
// cleanly. A stream cut short by an error carries the error object instead, and neither a
// finish_reason nor [DONE]: it never looks finished.
//
// Owner: the request. Thread: the server's.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/openai/choice.h"
#include "http/openai/request.h"
#include "model/tokenizer/tokenizer.h"

namespace cleave::openai {

struct PromptFacts {
  std::vector<int32_t> ids;
  std::string text;  // kept for echo only
};

struct AnswerInput {
  std::string id;  // "chatcmpl-…", "cmpl-…"
  int64_t created_s = 0;
  const Tokenizer* tokenizer = nullptr;
  Generation generation;
  std::vector<PromptFacts> prompts;
  bool prompt_tokens_details = false;
  // Chat only.
  std::string role = "assistant";
  std::string echo_text;
};

class Answer {
 public:
  virtual ~Answer() = default;
  // What choice `index` (prompt × n + choice) said. A stream appends its events to `out`.
  // `token_count` is the choice's so far. Never called with Ending::kError.
  virtual void Add(uint32_t index, uint32_t token_count, ChoiceDelta&& delta, std::string* out) = 0;
  // After every choice ended: appends the body, or the last events.
  virtual void Finish(std::string* out) = 0;
};

std::unique_ptr<Answer> MakeChatAnswer(AnswerInput input);
std::unique_ptr<Answer> MakeChatStream(AnswerInput input);
std::unique_ptr<Answer> MakeCompletionAnswer(AnswerInput input);
std::unique_ptr<Answer> MakeCompletionStream(AnswerInput input);

// "data: {…}\n\n" around an error's body.
std::string ErrorEvent(const ApiError& error);

// ---- shared by the four kinds

// Tokens of a request; of one choice's prompt, or of all.
struct Usage {
  size_t prompt_tokens = 0;
  size_t completion_tokens = 0;
  size_t cached_tokens = 0;
};

class UsageCount {
 public:
  explicit UsageCount(const AnswerInput& input);
  void Add(uint32_t index, uint32_t token_count, uint32_t cached_tokens);
  [[nodiscard]] Usage Of(uint32_t index) const;
  [[nodiscard]] Usage All() const;

 private:
  const uint32_t n_;
  std::vector<size_t> prompt_tokens_;      // by prompt
  std::vector<size_t> cached_tokens_;      // by prompt, its first choice's
  std::vector<size_t> completion_tokens_;  // by choice
};

// "usage" of the open object.
void WriteUsage(const Usage& usage, const AnswerInput& input, JsonWriter* json);

// The value of finish_reason: "stop", "length", null.
void WriteFinishReason(Ending ending, JsonWriter* json);
// The value of stop_reason: the stop string or id that ended the choice, else null.
void WriteStopReason(const std::string& stop_string, int32_t stop_token_id, JsonWriter* json);
// "id", "object", "created", "model" of the open object.
void WriteIdentity(const AnswerInput& input, std::string_view object, JsonWriter* json);

}  // namespace cleave::openai

#include "http/openai/answer.h"

#include <algorithm>
#include <numeric>

#include "http/openai/json.h"

namespace cleave::openai {

std::string ErrorEvent(const ApiError& error) { return "data: " + ErrorBody(error) + "\n\n"; }

UsageCount::UsageCount(const AnswerInput& input)
    : n_(input.generation.n),
      cached_tokens_(input.prompts.size()),
      completion_tokens_(input.prompts.size() * input.generation.n) {
  for (const PromptFacts& prompt : input.prompts) prompt_tokens_.push_back(prompt.ids.size());
}

void UsageCount::Add(uint32_t index, uint32_t token_count, uint32_t cached_tokens) {
  completion_tokens_[index] = token_count;
  // Later choices find what the first one left; that is no saving of the client's.
  if (index % n_ != 0) return;
  size_t& cached = cached_tokens_[index / n_];
  cached = std::max<size_t>(cached, cached_tokens);
}

Usage UsageCount::Of(uint32_t index) const {
  return {prompt_tokens_[index / n_], completion_tokens_[index], cached_tokens_[index / n_]};
}

Usage UsageCount::All() const {
  const auto sum = [](const std::vector<size_t>& v) {
    return std::accumulate(v.begin(), v.end(), size_t{0});
  };
  return {sum(prompt_tokens_), sum(completion_tokens_), sum(cached_tokens_)};
}

void WriteUsage(const Usage& usage, const AnswerInput& input, JsonWriter* json) {
  json->Key("usage").BeginObject();
  json->Key("prompt_tokens").Int(static_cast<int64_t>(usage.prompt_tokens));
  json->Key("total_tokens")
      .Int(static_cast<int64_t>(usage.prompt_tokens + usage.completion_tokens));
  json->Key("completion_tokens").Int(static_cast<int64_t>(usage.completion_tokens));
  json->Key("prompt_tokens_details");
  if (input.prompt_tokens_details) {
    json->BeginObject().Key("cached_tokens").Int(static_cast<int64_t>(usage.cached_tokens));
    json->EndObject();
  } else {
    json->Null();
  }
  json->EndObject();
}

void WriteFinishReason(Ending ending, JsonWriter* json) {
  if (ending == Ending::kStop) {
    json->String("stop");
  } else if (ending == Ending::kLength) {
    json->String("length");
  } else {
    json->Null();
  }
}

void WriteStopReason(const std::string& stop_string, int32_t stop_token_id, JsonWriter* json) {
  if (!stop_string.empty()) {
    json->String(stop_string);
  } else if (stop_token_id >= 0) {
    json->Int(stop_token_id);
  } else {
    json->Null();
  }
}

void WriteIdentity(const AnswerInput& input, std::string_view object, JsonWriter* json) {
  json->Key("id").String(input.id);
  json->Key("object").String(object);
  json->Key("created").Int(input.created_s);
  json->Key("model").String(input.generation.model);
}

}  // namespace cleave::openai

// Completions: the whole answer and the stream of chunks.

#include <iterator>
#include <utility>

#include "http/openai/answer.h"
#include "http/openai/json.h"
#include "http/openai/logprobs.h"

namespace cleave::openai {
namespace {

PromptDetails DetailsOf(const AnswerInput& input) {
  return input.prompt_tokens_details ? PromptDetails::kShown : PromptDetails::kHidden;
}

// What has to be known of a choice to write it: its delta, and its prompt where that is shown.
struct Shown {
  uint32_t index = 0;
  ChoiceDelta* delta = nullptr;
  const PromptFacts* echo = nullptr;        // prepended; null = not
  const PromptFacts* prompt_ids = nullptr;  // prompt_token_ids; null = not
  size_t* offset = nullptr;                 // characters of the choice before this
};

void WriteText(const AnswerInput& input, const Shown& shown, JsonWriter* json) {
  const Generation& g = input.generation;
  const std::string& text = shown.delta->text;
  json->Key("text").String(shown.echo != nullptr ? shown.echo->text + text : text);
  json->Key("logprobs");
  if (g.logprobs < 0) {
    json->Null();
    return;
  }
  CompletionLogprobs logprobs;
  if (shown.echo != nullptr) {
    if (!shown.echo->ids.empty()) logprobs.unknown_first = shown.echo->ids.front();
    logprobs.tokens = shown.delta->prompt_logprobs;
  }
  for (const TokenLogprobs& token : shown.delta->logprobs) logprobs.tokens.push_back(token);
  WriteCompletionLogprobs(logprobs, {input.tokenizer, g.tokens_as_ids}, shown.offset, json);
}

void WriteTokenIds(const AnswerInput& input, const Shown& shown, JsonWriter* json) {
  if (!input.generation.return_token_ids) {
    json->Null();
    return;
  }
  std::vector<int32_t> ids;
  if (shown.echo != nullptr) ids = shown.echo->ids;
  ids.insert(ids.end(), shown.delta->tokens.begin(), shown.delta->tokens.end());
  WriteIds(ids, json);
}

void WriteChoice(const AnswerInput& input, const Shown& shown, JsonWriter* json) {
  json->BeginObject().Key("index").Int(shown.index);
  WriteText(input, shown, json);
  json->Key("finish_reason");
  WriteFinishReason(shown.delta->ending, json);
  json->Key("stop_reason");
  WriteStopReason(shown.delta->stop_string, shown.delta->stop_token_id, json);
  json->Key("token_ids");
  WriteTokenIds(input, shown, json);
  json->Key("prompt_logprobs");
  if (input.generation.stream) {
    json->Null();
  } else {
    WritePromptLogprobs(shown.delta->prompt_logprobs, {input.tokenizer, false}, json);
  }
  json->Key("prompt_token_ids");
  if (shown.prompt_ids != nullptr) {
    WriteIds(shown.prompt_ids->ids, json);
  } else {
    json->Null();
  }
  json->EndObject();
}

class CompletionAnswer final : public Answer {
 public:
  explicit CompletionAnswer(AnswerInput input)
      : input_(std::move(input)),
        usage_(input_),
        choices_(input_.prompts.size() * input_.generation.n) {}

  void Add(uint32_t index, uint32_t token_count, ChoiceDelta&& delta,
           std::string* /*out*/) override {
    usage_.Add(index, token_count, delta.cached_tokens);
    ChoiceDelta& choice = choices_[index];
    choice.text += delta.text;
    choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    choice.logprobs.insert(choice.logprobs.end(), std::make_move_iterator(delta.logprobs.begin()),
                           std::make_move_iterator(delta.logprobs.end()));
    if (!delta.prompt_logprobs.empty()) choice.prompt_logprobs = std::move(delta.prompt_logprobs);
    if (delta.ending == Ending::kNone) return;
    choice.ending = delta.ending;
    choice.stop_string = std::move(delta.stop_string);
    choice.stop_token_id = delta.stop_token_id;
  }

  void Finish(std::string* out) override {
    const Generation& g = input_.generation;
    JsonWriter json(out);
    json.BeginObject();
    WriteIdentity(input_, "text_completion", &json);
    json.Key("choices").BeginArray();
    for (uint32_t i = 0; i < choices_.size(); ++i) {
      const uint32_t prompt = i / g.n;
      // A prompt's probabilities come once, with its first choice; all its choices show them.
      if (i % g.n != 0) choices_[i].prompt_logprobs = choices_[i - i % g.n].prompt_logprobs;
      size_t offset = 0;
      WriteChoice(input_,
                  {i, &choices_[i], g.echo ? &input_.prompts[prompt] : nullptr,
                   g.return_token_ids ? &input_.prompts[prompt] : nullptr, &offset},
                  &json);
    }
    json.EndArray().Key("service_tier").Null().Key("system_fingerprint").Null();
    json.Key("usage");
    WriteUsage(usage_.All(), DetailsOf(input_), &json);
    json.Key("kv_transfer_params").Null().EndObject();
  }

 private:
  const AnswerInput input_;
  UsageCount usage_;
  std::vector<ChoiceDelta> choices_;  // everything said so far
};

class CompletionStream final : public Answer {
 public:
  explicit CompletionStream(AnswerInput input)
      : input_(std::move(input)),
        usage_(input_),
        offsets_(input_.prompts.size() * input_.generation.n),
        begun_(offsets_.size()),
        prompt_logprobs_(input_.prompts.size()) {}

  void Add(uint32_t index, uint32_t token_count, ChoiceDelta&& delta, std::string* out) override {
    usage_.Add(index, token_count, delta.cached_tokens);
    const Generation& g = input_.generation;
    const bool first = !begun_[index];
    const bool shows_tokens = !delta.tokens.empty() && (g.logprobs >= 0 || g.return_token_ids);
    const bool shows_prompt = first && (g.echo || g.return_token_ids);
    if (delta.text.empty() && !shows_tokens && !shows_prompt && delta.ending == Ending::kNone) {
      return;
    }
    begun_[index] = true;
    const uint32_t prompt = index / g.n;
    Echo(index, &delta);
    JsonWriter json = Begin(out);
    WriteChoice(input_,
                {index, &delta, first && g.echo ? &input_.prompts[prompt] : nullptr,
                 first && g.return_token_ids ? &input_.prompts[prompt] : nullptr, &offsets_[index]},
                &json);
    json.EndArray();
    if (g.continuous_usage) {
      json.Key("usage");
      WriteUsage(usage_.Of(index), DetailsOf(input_), &json);
    }
    json.EndObject();
    out->append("\n\n");
  }

  void Finish(std::string* out) override {
    if (input_.generation.include_usage) {
      JsonWriter json = Begin(out);
      json.EndArray().Key("usage");
      WriteUsage(usage_.All(), DetailsOf(input_), &json);
      json.EndObject();
      out->append("\n\n");
    }
    out->append("data: [DONE]\n\n");
  }

 private:
  // Probabilities of an echoed prompt come with its first choice, which the engine starts first.
  void Echo(uint32_t index, ChoiceDelta* delta) {
    const Generation& g = input_.generation;
    if (!g.echo || g.logprobs < 0) return;
    std::vector<TokenLogprobs>& kept = prompt_logprobs_[index / g.n];
    if (!delta->prompt_logprobs.empty()) kept = delta->prompt_logprobs;
    if (delta->prompt_logprobs.empty()) delta->prompt_logprobs = kept;
  }

  JsonWriter Begin(std::string* out) const {
    out->append("data: ");
    JsonWriter json(out);
    json.BeginObject();
    WriteIdentity(input_, "text_completion", &json);
    json.Key("choices").BeginArray();
    return json;
  }

  const AnswerInput input_;
  UsageCount usage_;
  std::vector<size_t> offsets_;                              // by choice, characters shown
  std::vector<bool> begun_;                                  // by choice
  std::vector<std::vector<TokenLogprobs>> prompt_logprobs_;  // by prompt
};

}  // namespace

std::unique_ptr<Answer> MakeCompletionAnswer(AnswerInput input) {
  return std::make_unique<CompletionAnswer>(std::move(input));
}

std::unique_ptr<Answer> MakeCompletionStream(AnswerInput input) {
  return std::make_unique<CompletionStream>(std::move(input));
}

}  // namespace cleave::openai

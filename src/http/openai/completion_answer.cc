// Completions: the whole answer and the stream of chunks.

#include <utility>

#include "http/openai/answer_kinds.h"
#include "http/openai/logprobs.h"

namespace cleave::openai {
namespace {

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

void WriteShown(const AnswerInput& input, const Shown& shown, JsonWriter* json) {
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

class CompletionAnswer final : public WholeAnswer {
 public:
  explicit CompletionAnswer(AnswerInput input) : WholeAnswer(std::move(input), "text_completion") {}

 private:
  void WriteChoice(uint32_t index, JsonWriter* json) override {
    const Generation& g = input_.generation;
    ChoiceDelta& choice = choices_[index];
    const PromptFacts& prompt = input_.prompts[index / g.n];
    // A prompt's probabilities come once, with its first choice; all its choices show them.
    if (index % g.n != 0) choice.prompt_logprobs = choices_[index - index % g.n].prompt_logprobs;
    size_t offset = 0;
    WriteShown(input_,
               {index, &choice, g.echo ? &prompt : nullptr, g.return_token_ids ? &prompt : nullptr,
                &offset},
               json);
  }
};

class CompletionStream final : public StreamAnswer {
 public:
  explicit CompletionStream(AnswerInput input)
      : StreamAnswer(std::move(input), "text_completion"),
        offsets_(input_.prompts.size() * input_.generation.n),
        begun_(offsets_.size()),
        prompt_logprobs_(input_.prompts.size()) {}

  void Add(uint32_t index, uint32_t token_count, ChoiceDelta&& delta, std::string* out) override {
    usage_.Add(index, token_count, delta.cached_tokens);
    const Generation& g = input_.generation;
    const bool first = !begun_[index];
    const bool shows_prompt = first && (g.echo || g.return_token_ids);
    if (!shows_prompt && !Shows(delta)) return;
    begun_[index] = true;
    const uint32_t prompt = index / g.n;
    Echo(index, &delta);
    JsonWriter json = Begin(out);
    WriteShown(input_,
               {index, &delta, first && g.echo ? &input_.prompts[prompt] : nullptr,
                first && g.return_token_ids ? &input_.prompts[prompt] : nullptr, &offsets_[index]},
               &json);
    json.EndArray();
    End(usage_.Of(index), &json, out);
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

// Chat completions: the whole answer and the stream of chunks.

#include <utility>

#include "http/openai/answer_kinds.h"
#include "http/openai/logprobs.h"

namespace cleave::openai {
namespace {

void WriteIdsOrNull(const std::vector<int32_t>& ids, const Generation& g, JsonWriter* json) {
  if (g.return_token_ids) {
    WriteIds(ids, json);
  } else {
    json->Null();
  }
}

void WriteLogprobs(const ChoiceDelta& choice, const AnswerInput& input, JsonWriter* json) {
  const Generation& g = input.generation;
  json->Key("logprobs");
  if (g.logprobs >= 0) {
    WriteChatLogprobs(choice.logprobs, {input.tokenizer, g.tokens_as_ids}, json);
  } else {
    json->Null();
  }
}

class ChatAnswer final : public WholeAnswer {
 public:
  explicit ChatAnswer(AnswerInput input) : WholeAnswer(std::move(input), "chat.completion") {}

 private:
  void WriteOwnKeys(JsonWriter* json) const override {
    const Generation& g = input_.generation;
    json->Key("prompt_logprobs");
    WritePromptLogprobs(choices_[0].prompt_logprobs, {input_.tokenizer, g.tokens_as_ids}, json);
    json->Key("prompt_token_ids");
    WriteIdsOrNull(input_.prompts[0].ids, g, json);
  }

  void WriteChoice(uint32_t index, JsonWriter* json) override {
    const Generation& g = input_.generation;
    const ChoiceDelta& choice = choices_[index];
    json->BeginObject().Key("index").Int(index);
    json->Key("message").BeginObject();
    json->Key("role").String(input_.role);
    json->Key("content").String(g.echo ? input_.echo_text + choice.text : choice.text);
    for (const char* absent : {"refusal", "annotations", "audio", "function_call"}) {
      json->Key(absent).Null();
    }
    json->Key("tool_calls").BeginArray().EndArray();
    json->Key("reasoning").Null().EndObject();
    WriteLogprobs(choice, input_, json);
    json->Key("finish_reason");
    WriteFinishReason(choice.ending, json);
    json->Key("stop_reason");
    WriteStopReason(choice.stop_string, choice.stop_token_id, json);
    json->Key("token_ids");
    WriteIdsOrNull(choice.tokens, g, json);
    json->EndObject();
  }
};

class ChatStream final : public StreamAnswer {
 public:
  explicit ChatStream(AnswerInput input)
      : StreamAnswer(std::move(input), "chat.completion.chunk") {}

  void Add(uint32_t index, uint32_t token_count, ChoiceDelta&& delta, std::string* out) override {
    usage_.Add(index, token_count, delta.cached_tokens);
    if (!opened_) Open(out);
    if (!Shows(delta)) return;
    JsonWriter json = Begin(out);
    json.BeginObject().Key("index").Int(index);
    json.Key("delta").BeginObject().Key("content").String(delta.text).EndObject();
    WriteLogprobs(delta, input_, &json);
    json.Key("finish_reason");
    WriteFinishReason(delta.ending, &json);
    if (delta.ending != Ending::kNone) {
      json.Key("stop_reason");
      WriteStopReason(delta.stop_string, delta.stop_token_id, &json);
    }
    if (input_.generation.return_token_ids) {
      json.Key("token_ids");
      WriteIds(delta.tokens, &json);
    }
    json.EndObject().EndArray();
    End(usage_.Of(index), &json, out);
  }

 private:
  // Every choice's role, before any of them says anything; then what is echoed.
  void Open(std::string* out) {
    opened_ = true;
    const Generation& g = input_.generation;
    for (uint32_t i = 0; i < g.n; ++i) {
      JsonWriter json = Begin(out);
      json.BeginObject().Key("index").Int(i);
      json.Key("delta").BeginObject();
      json.Key("role").String(input_.role).Key("content").String("").EndObject();
      json.Key("logprobs").Null().Key("finish_reason").Null().EndObject();
      json.EndArray();
      if (g.return_token_ids && i == 0) {
        json.Key("prompt_token_ids");
        WriteIds(input_.prompts[0].ids, &json);
      }
      Usage usage = usage_.Of(i);
      usage.completion_tokens = 0;
      End(usage, &json, out);
    }
    if (!g.echo || input_.echo_text.empty()) return;
    for (uint32_t i = 0; i < g.n; ++i) {
      JsonWriter json = Begin(out);
      json.BeginObject().Key("index").Int(i);
      json.Key("delta").BeginObject().Key("content").String(input_.echo_text).EndObject();
      json.Key("logprobs").Null().Key("finish_reason").Null().EndObject().EndArray();
      End(usage_.Of(i), &json, out);
    }
  }

  bool opened_ = false;
};

}  // namespace

std::unique_ptr<Answer> MakeChatAnswer(AnswerInput input) {
  return std::make_unique<ChatAnswer>(std::move(input));
}

std::unique_ptr<Answer> MakeChatStream(AnswerInput input) {
  return std::make_unique<ChatStream>(std::move(input));
}

}  // namespace cleave::openai

// Chat completions: the whole answer and the stream of chunks.

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

template <typename T>
void Append(std::vector<T>&& from, std::vector<T>* to) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

class ChatAnswer final : public Answer {
 public:
  explicit ChatAnswer(AnswerInput input)
      : input_(std::move(input)), usage_(input_), choices_(input_.generation.n) {}

  void Add(uint32_t index, uint32_t token_count, ChoiceDelta&& delta,
           std::string* /*out*/) override {
    usage_.Add(index, token_count, delta.cached_tokens);
    ChoiceDelta& choice = choices_[index];
    choice.text += delta.text;
    Append(std::move(delta.tokens), &choice.tokens);
    Append(std::move(delta.logprobs), &choice.logprobs);
    Append(std::move(delta.prompt_logprobs), &choice.prompt_logprobs);
    if (delta.ending == Ending::kNone) return;
    choice.ending = delta.ending;
    choice.stop_string = std::move(delta.stop_string);
    choice.stop_token_id = delta.stop_token_id;
  }

  void Finish(std::string* out) override {
    const Generation& g = input_.generation;
    JsonWriter json(out);
    json.BeginObject();
    WriteIdentity(input_, "chat.completion", &json);
    json.Key("choices").BeginArray();
    for (uint32_t i = 0; i < choices_.size(); ++i) WriteChoice(i, &json);
    json.EndArray();
    json.Key("service_tier").Null().Key("system_fingerprint").Null();
    json.Key("usage");
    WriteUsage(usage_.All(), DetailsOf(input_), &json);
    json.Key("prompt_logprobs");
    WritePromptLogprobs(choices_[0].prompt_logprobs, {input_.tokenizer, g.tokens_as_ids}, &json);
    json.Key("prompt_token_ids");
    if (g.return_token_ids) {
      WriteIds(input_.prompts[0].ids, &json);
    } else {
      json.Null();
    }
    json.Key("kv_transfer_params").Null().EndObject();
  }

 private:
  void WriteChoice(uint32_t index, JsonWriter* json) const {
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
    json->Key("logprobs");
    if (g.logprobs >= 0) {
      WriteChatLogprobs(choice.logprobs, {input_.tokenizer, g.tokens_as_ids}, json);
    } else {
      json->Null();
    }
    json->Key("finish_reason");
    WriteFinishReason(choice.ending, json);
    json->Key("stop_reason");
    WriteStopReason(choice.stop_string, choice.stop_token_id, json);
    json->Key("token_ids");
    if (g.return_token_ids) {
      WriteIds(choice.tokens, json);
    } else {
      json->Null();
    }
    json->EndObject();
  }

  const AnswerInput input_;
  UsageCount usage_;
  std::vector<ChoiceDelta> choices_;  // everything said so far
};

class ChatStream final : public Answer {
 public:
  explicit ChatStream(AnswerInput input) : input_(std::move(input)), usage_(input_) {}

  void Add(uint32_t index, uint32_t token_count, ChoiceDelta&& delta, std::string* out) override {
    usage_.Add(index, token_count, delta.cached_tokens);
    if (!opened_) Open(out);
    const Generation& g = input_.generation;
    const bool shows_tokens = !delta.tokens.empty() && (g.logprobs >= 0 || g.return_token_ids);
    if (delta.text.empty() && !shows_tokens && delta.ending == Ending::kNone) return;
    JsonWriter json = Begin(out);
    json.BeginObject().Key("index").Int(index);
    json.Key("delta").BeginObject().Key("content").String(delta.text).EndObject();
    json.Key("logprobs");
    if (g.logprobs >= 0) {
      WriteChatLogprobs(delta.logprobs, {input_.tokenizer, g.tokens_as_ids}, &json);
    } else {
      json.Null();
    }
    json.Key("finish_reason");
    WriteFinishReason(delta.ending, &json);
    if (delta.ending != Ending::kNone) {
      json.Key("stop_reason");
      WriteStopReason(delta.stop_string, delta.stop_token_id, &json);
    }
    if (g.return_token_ids) {
      json.Key("token_ids");
      WriteIds(delta.tokens, &json);
    }
    json.EndObject();
    End(index, &json, out);
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
  // A chunk up to its open list of choices.
  JsonWriter Begin(std::string* out) const {
    out->append("data: ");
    JsonWriter json(out);
    json.BeginObject();
    WriteIdentity(input_, "chat.completion.chunk", &json);
    json.Key("choices").BeginArray();
    return json;
  }

  void End(uint32_t index, JsonWriter* json, std::string* out) const {
    json->EndArray();
    if (input_.generation.continuous_usage) {
      json->Key("usage");
      WriteUsage(usage_.Of(index), DetailsOf(input_), json);
    }
    json->EndObject();
    out->append("\n\n");
  }

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
      if (g.continuous_usage) {
        json.Key("usage");
        Usage usage = usage_.Of(i);
        usage.completion_tokens = 0;
        WriteUsage(usage, DetailsOf(input_), &json);
      }
      json.EndObject();
      out->append("\n\n");
    }
    if (!g.echo || input_.echo_text.empty()) return;
    for (uint32_t i = 0; i < g.n; ++i) {
      JsonWriter json = Begin(out);
      json.BeginObject().Key("index").Int(i);
      json.Key("delta").BeginObject().Key("content").String(input_.echo_text).EndObject();
      json.Key("logprobs").Null().Key("finish_reason").Null().EndObject();
      End(i, &json, out);
    }
  }

  const AnswerInput input_;
  UsageCount usage_;
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

#include "http/openai/answer_kinds.h"

#include <iterator>
#include <utility>

namespace cleave::openai {
namespace {

template <typename T>
void Append(std::vector<T>&& from, std::vector<T>* to) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// An object up to its open list of choices.
JsonWriter OpenChoices(const AnswerInput& input, std::string_view object, std::string* out) {
  JsonWriter json(out);
  json.BeginObject();
  WriteIdentity(input, object, &json);
  json.Key("choices").BeginArray();
  return json;
}

}  // namespace

WholeAnswer::WholeAnswer(AnswerInput input, std::string_view object)
    : input_(std::move(input)),
      choices_(input_.prompts.size() * input_.generation.n),
      usage_(input_),
      object_(object) {}

void WholeAnswer::Add(uint32_t index, uint32_t token_count, ChoiceDelta&& delta,
                      std::string* /*out*/) {
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

void WholeAnswer::Finish(std::string* out) {
  JsonWriter json = OpenChoices(input_, object_, out);
  for (uint32_t i = 0; i < choices_.size(); ++i) WriteChoice(i, &json);
  json.EndArray().Key("service_tier").Null().Key("system_fingerprint").Null();
  WriteUsage(usage_.All(), input_, &json);
  WriteOwnKeys(&json);
  json.Key("kv_transfer_params").Null().EndObject();
}

StreamAnswer::StreamAnswer(AnswerInput input, std::string_view object)
    : input_(std::move(input)), usage_(input_), object_(object) {}

void StreamAnswer::Finish(std::string* out) {
  if (input_.generation.include_usage) {
    JsonWriter json = Begin(out);
    json.EndArray();
    WriteUsage(usage_.All(), input_, &json);
    json.EndObject();
    out->append("\n\n");
  }
  out->append("data: [DONE]\n\n");
}

bool StreamAnswer::Shows(const ChoiceDelta& delta) const {
  const Generation& g = input_.generation;
  const bool tokens = !delta.tokens.empty() && (g.logprobs >= 0 || g.return_token_ids);
  return !delta.text.empty() || tokens || delta.ending != Ending::kNone;
}

JsonWriter StreamAnswer::Begin(std::string* out) const {
  out->append("data: ");
  return OpenChoices(input_, object_, out);
}

void StreamAnswer::End(const Usage& usage, JsonWriter* json, std::string* out) const {
  if (input_.generation.continuous_usage) WriteUsage(usage, input_, json);
  json->EndObject();
  out->append("\n\n");
}

}  // namespace cleave::openai

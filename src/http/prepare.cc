#include "http/prepare.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "http/openai/json.h"
#include "http/openai/logprobs.h"
#include "http/openai/request.h"

namespace cleave {
namespace {

using openai::ApiError;
using openai::Json;
using openai::JsonWriter;
using openai::Prompt;

Prepared Failed(ApiError error) {
  Prepared out;
  out.error = std::move(error);
  return out;
}

Prepared Done(std::string body) {
  Prepared out;
  out.body = std::move(body);
  return out;
}

// Adds a prompt's sequences; the facts of the answer that depend on it are kept beside.
std::optional<ApiError> AddPrompt(Prompt prompt, const openai::Generation& g,
                                  const ServedText& model, Prepared* out) {
  const size_t before = prompt.ids.size();
  const auto index = static_cast<uint32_t>(out->answer.prompts.size());
  auto sequences = openai::MakeSequences(&prompt, index, g, model.text, model.rules);
  if (!sequences.ok()) return sequences.error();
  openai::PromptFacts facts;
  if (g.echo) {
    const bool whole = prompt.ids.size() == before && !prompt.text.empty();
    facts.text =
        whole ? std::move(prompt.text) : model.text.tokenizer->Decode(prompt.ids, SkipSpecial::kNo);
  }
  facts.ids = std::move(prompt.ids);
  out->answer.prompts.push_back(std::move(facts));
  for (SequenceSpec& spec : sequences.value()) out->sequences.push_back(std::move(spec));
  return std::nullopt;
}

void Describe(const openai::Generation& g, const ServedText& model, Prepared* out) {
  out->answer.id = g.request_id;
  out->answer.tokenizer = model.text.tokenizer;
  out->answer.generation = g;
  out->answer.prompt_tokens_details = model.prompt_tokens_details;
}

Prepared PrepareChat(const Json& body, const ServedText& model) {
  auto request = openai::ParseChatRequest(body, model.rules);
  if (!request.ok()) return Failed(request.error());
  const openai::Generation& g = request.value().generation;
  const openai::ChatPrompt& chat = request.value().prompt;
  auto prompt = openai::ChatToPrompt(chat, model.text, model.rules);
  if (!prompt.ok()) return Failed(prompt.error());
  Prepared out;
  Describe(g, model, &out);
  out.answer.role = chat.role;
  // Echoed when the answer goes on with the last message, which is then of the same role.
  const auto& messages = (*chat.context)["messages"];
  if (g.echo && messages.back()["role"] == chat.role) out.answer.echo_text = chat.final_content;
  if (auto error = AddPrompt(std::move(prompt.value()), g, model, &out)) {
    return Failed(*std::move(error));
  }
  return out;
}

Prepared PrepareCompletion(const Json& body, const ServedText& model) {
  auto request = openai::ParseCompletionRequest(body, model.rules);
  if (!request.ok()) return Failed(request.error());
  const openai::Generation& g = request.value().generation;
  Prepared out;
  Describe(g, model, &out);
  for (const openai::TextOrIds& given : request.value().prompts) {
    auto prompt = openai::TextToPrompt(given, g.add_special_tokens, model.text, model.rules);
    if (!prompt.ok()) return Failed(prompt.error());
    if (auto error = AddPrompt(std::move(prompt.value()), g, model, &out)) {
      return Failed(*std::move(error));
    }
  }
  return out;
}

void WriteRendered(const Prompt& prompt, JsonWriter* json) {
  json->BeginObject().Key("token_ids");
  openai::WriteIds(prompt.ids, json);
  json->Key("prompt").String(prompt.text).EndObject();
}

Prepared RenderChat(const Json& body, const ServedText& model) {
  auto request = openai::ParseChatRequest(body, model.rules);
  if (!request.ok()) return Failed(request.error());
  auto prompt = openai::ChatToPrompt(request.value().prompt, model.text, model.rules);
  if (!prompt.ok()) return Failed(prompt.error());
  auto fits = openai::MakeSequences(&prompt.value(), 0, request.value().generation, model.text,
                                    model.rules);
  if (!fits.ok()) return Failed(fits.error());
  std::string out;
  JsonWriter json(&out);
  WriteRendered(prompt.value(), &json);
  return Done(std::move(out));
}

// One prompt gives one object, several a list of them.
Prepared RenderCompletion(const Json& body, const ServedText& model) {
  auto request = openai::ParseCompletionRequest(body, model.rules);
  if (!request.ok()) return Failed(request.error());
  const openai::Generation& g = request.value().generation;
  const auto& prompts = request.value().prompts;
  std::string out;
  JsonWriter json(&out);
  if (prompts.size() > 1) json.BeginArray();
  for (const openai::TextOrIds& given : prompts) {
    auto prompt = openai::TextToPrompt(given, g.add_special_tokens, model.text, model.rules);
    if (!prompt.ok()) return Failed(prompt.error());
    auto fits = openai::MakeSequences(&prompt.value(), 0, g, model.text, model.rules);
    if (!fits.ok()) return Failed(fits.error());
    if (!given.is_text) {
      prompt.value().text = model.text.tokenizer->Decode(prompt.value().ids, SkipSpecial::kNo);
    }
    WriteRendered(prompt.value(), &json);
  }
  if (prompts.size() > 1) json.EndArray();
  return Done(std::move(out));
}

Prepared Tokenize(const Json& body, const ServedText& model) {
  auto request = openai::ParseTokenizeRequest(body, model.rules);
  if (!request.ok()) return Failed(request.error());
  const openai::TokenizeRequest& r = request.value();
  auto prompt = r.chat ? openai::ChatToPrompt(*r.chat, model.text, model.rules)
                       : openai::TextToPrompt({r.prompt, {}, true}, r.add_special_tokens,
                                              model.text, model.rules);
  if (!prompt.ok()) return Failed(prompt.error());
  const std::vector<int32_t>& ids = prompt.value().ids;
  std::string out;
  JsonWriter json(&out);
  json.BeginObject().Key("count").Int(static_cast<int64_t>(ids.size()));
  json.Key("max_model_len").Int(model.rules.max_model_len);
  json.Key("tokens");
  openai::WriteIds(ids, &json);
  json.Key("token_strs");
  if (r.return_token_strs) {
    json.BeginArray();
    for (const int32_t id : ids) json.String(model.text.tokenizer->TokenText(id));
    json.EndArray();
  } else {
    json.Null();
  }
  json.EndObject();
  return Done(std::move(out));
}

Prepared Detokenize(const Json& body, const ServedText& model) {
  auto request = openai::ParseDetokenizeRequest(body, model.rules);
  if (!request.ok()) return Failed(request.error());
  std::string out;
  JsonWriter json(&out);
  json.BeginObject().Key("prompt");
  json.String(model.text.tokenizer->Decode(request.value().tokens, SkipSpecial::kNo)).EndObject();
  return Done(std::move(out));
}

Prepared PrepareJson(RouteId route, const Json& body, const ServedText& model) {
  switch (route) {
    case RouteId::kChat:
      return PrepareChat(body, model);
    case RouteId::kCompletions:
      return PrepareCompletion(body, model);
    case RouteId::kChatRender:
      return RenderChat(body, model);
    case RouteId::kCompletionsRender:
      return RenderCompletion(body, model);
    case RouteId::kTokenize:
      return Tokenize(body, model);
    case RouteId::kDetokenize:
      return Detokenize(body, model);
    default:
      return Failed(openai::FromHttpStatus(404, "no such route"));
  }
}

}  // namespace

Prepared Prepare(RouteId route, const std::string& body, const ServedText& model) {
  try {
    auto json = openai::ParseJson(body);
    Prepared out = json.ok() ? PrepareJson(route, json.value(), model) : Failed(json.error());
    out.route = route;
    return out;
  } catch (const std::exception&) {
    // Out of memory, or a fault of ours: one request's failure.
    return Failed(openai::FromHttpStatus(500, "internal error while reading the request"));
  }
}

}  // namespace cleave

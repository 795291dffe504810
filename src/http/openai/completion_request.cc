// Completions, tokenize and detokenize: bodies to requests.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "http/openai/fields.h"
#include "http/openai/request.h"

namespace cleave::openai {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kDefaultCompletionTokens = 16;  // OpenAI's

void ReadCompletionLogprobs(Fields& fields, const RequestRules& rules, Generation* out) {
  const Json* value = fields.Get("logprobs");
  if (value == nullptr || *value == false) return;  // some proxies send chat's false here
  const int64_t most = rules.max_logprobs < 0 ? rules.vocab_size : rules.max_logprobs;
  const auto k = fields.Int("logprobs", -1, kInt32Max);
  if (!k) return;
  const int64_t count = *k < 0 ? rules.vocab_size : *k;
  if (count > most) {
    fields.Fail("logprobs", fmt::format("must be at most {} (--max-logprobs), got {}", most, *k));
    return;
  }
  out->logprobs = static_cast<int32_t>(count);
  out->sampling.logprobs = out->logprobs;
  if (out->echo) {
    out->sampling.prompt_logprobs = std::max(out->sampling.prompt_logprobs, out->logprobs);
  }
}

void ReadMaxTokens(Fields& fields, Generation* out) {
  out->max_tokens = fields.Int("max_tokens", 0, kInt32Max);
  if (out->max_tokens && *out->max_tokens == 0 && !out->echo) {
    fields.Fail("max_tokens", "must be at least 1 (0 only with echo), got 0");
  }
  const int64_t min_tokens = out->sampling.min_tokens;
  const int64_t max_tokens = out->max_tokens.value_or(kDefaultCompletionTokens);
  if (min_tokens > max_tokens) {
    fields.Fail("min_tokens",
                fmt::format("must be at most max_tokens ({}), got {}", max_tokens, min_tokens));
  }
}

void ReadPrompts(Fields& fields, const RequestRules& rules, std::vector<TextOrIds>* out) {
  const Json* prompt = fields.Get("prompt");
  if (prompt == nullptr) return fields.Fail("prompt", "is required");
  if (prompt->is_string()) {
    out->push_back({prompt->get<std::string>(), {}, true});
    return;
  }
  if (!prompt->is_array() || prompt->empty()) {
    return fields.Fail("prompt",
                       "must be a string, a list of strings, a list of token ids or a "
                       "list of such lists, and not empty");
  }
  const bool one_list = (*prompt)[0].is_number();
  if (!one_list && prompt->size() > kMaxPrompts) {
    return fields.Fail(
        "prompt", fmt::format("must hold at most {} prompts, got {}", kMaxPrompts, prompt->size()));
  }
  for (size_t i = 0; i < (one_list ? 1 : prompt->size()); ++i) {
    const Json& entry = one_list ? *prompt : (*prompt)[i];
    if (entry.is_string()) {
      out->push_back({entry.get<std::string>(), {}, true});
      continue;
    }
    if (!entry.is_array() || entry.empty()) {
      return fields.Fail("prompt", fmt::format("entry {} must be a string or a list of token ids "
                                               "that is not empty, got {}",
                                               i, Brief(entry)));
    }
    auto ids = ReadIds(entry, one_list ? "prompt" : fmt::format("prompt[{}]", i), rules.vocab_size);
    if (!ids.ok()) {
      ApiError error = ids.error();
      error.param = "prompt";
      return fields.Fail(std::move(error));
    }
    out->push_back({{}, std::move(ids.value()), false});
  }
}

}  // namespace

Parsed<CompletionRequest> ReadCompletionRequest(Fields& fields, const RequestRules& rules) {
  CompletionRequest request;
  Generation& g = request.generation;
  ReadGeneration(fields, rules, &g);
  g.add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  g.echo = fields.Bool("echo").value_or(false);
  ReadCompletionLogprobs(fields, rules, &g);
  ReadMaxTokens(fields, &g);
  if (!g.max_tokens) g.sampling.max_tokens = kDefaultCompletionTokens;
  ReadPrompts(fields, rules, &request.prompts);
  if (request.prompts.size() * g.n > kMaxSequences) {
    fields.Fail("n", fmt::format("times the number of prompts must be at most {}, got {}",
                                 kMaxSequences, request.prompts.size() * g.n));
  }
  if (fields.error()) return *fields.error();
  return request;
}

Parsed<CompletionRequest> ParseCompletionRequest(const Json& body, const RequestRules& rules) {
  Fields fields(body);
  return ReadCompletionRequest(fields, rules);
}

Parsed<TokenizeRequest> ReadTokenizeRequest(Fields& fields, const RequestRules& rules) {
  TokenizeRequest request;
  std::string model;
  ReadModel(fields, rules, &model);
  request.return_token_strs = fields.Bool("return_token_strs").value_or(false);
  if (fields.Get("messages") != nullptr) {
    request.chat = ReadChatPrompt(fields, rules);
  } else if (const auto prompt = fields.String("prompt", std::numeric_limits<size_t>::max())) {
    request.prompt = *prompt;
    request.add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  } else {
    fields.Fail("prompt", "or messages is required");
  }
  if (fields.error()) return *fields.error();
  return request;
}

Parsed<TokenizeRequest> ParseTokenizeRequest(const Json& body, const RequestRules& rules) {
  Fields fields(body);
  return ReadTokenizeRequest(fields, rules);
}

Parsed<DetokenizeRequest> ReadDetokenizeRequest(Fields& fields, const RequestRules& rules) {
  DetokenizeRequest request;
  std::string model;
  ReadModel(fields, rules, &model);
  auto tokens = fields.Ids("tokens", kMaxJsonNodes, rules.vocab_size);
  if (tokens) {
    request.tokens = *std::move(tokens);
  } else {
    fields.Fail("tokens", "is required");
  }
  if (fields.error()) return *fields.error();
  return request;
}

Parsed<DetokenizeRequest> ParseDetokenizeRequest(const Json& body, const RequestRules& rules) {
  Fields fields(body);
  return ReadDetokenizeRequest(fields, rules);
}

}  // namespace cleave::openai

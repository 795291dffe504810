// Chat bodies to requests: messages, tools and what the chat template sees.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "http/openai/fields.h"
#include "http/openai/request.h"

namespace cleave::openai {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

bool IsRole(const std::string& role) {
  const auto fine = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !role.empty() && role.size() <= kMaxNameBytes &&
         std::all_of(role.begin(), role.end(), fine);
}

// The text of one content part, or why there is none.
Parsed<std::string> PartText(const Json& part, const std::string& where) {
  if (part.is_string()) return part.get<std::string>();
  const auto fault = [&](const std::string& what) {
    return BadRequest(fmt::format("{} {}", where, what), "messages");
  };
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
    return fault("must be a string or an object with a type");
  }
  const auto& type = part["type"].get_ref<const std::string&>();
  const bool text = type == "text" || type == "input_text" || type == "output_text";
  if (!text && type != "refusal") {
    return fault(fmt::format("is of type {}, which is not supported: this model takes text only",
                             Brief(part["type"])));
  }
  const auto it = part.find(text ? "text" : "refusal");
  if (it == part.end() || !it->is_string()) return fault("must hold its text as a string");
  return it->get<std::string>();
}

// Content as one string: parts are joined by line breaks, as vLLM does for templates that take
// strings.
Parsed<std::string> FlatContent(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return BadRequest(
        fmt::format("{} must be a string or a list of parts, got {}", where, Brief(content)),
        "messages");
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    auto part = PartText(content[i], fmt::format("{}[{}]", where, i));
    if (!part.ok()) return part.error();
    if (i > 0) text += '\n';
    text += part.value();
  }
  return text;
}

// Templates print a call's arguments as an object; clients send them as its text.
std::optional<ApiError> OpenArguments(Json* message, const std::string& where) {
  const auto calls = message->find("tool_calls");
  if (calls == message->end() || calls->is_null()) return std::nullopt;
  const auto fault = [&](const char* what) {
    return BadRequest(fmt::format("{}.tool_calls {}", where, what), "messages");
  };
  if (!calls->is_array() || calls->size() > kMaxTools) return fault("must be a list of calls");
  for (Json& call : *calls) {
    if (!call.is_object()) return fault("must be a list of objects");
    const auto function = call.find("function");
    if (function == call.end()) continue;
    if (!function->is_object()) return fault("must hold functions that are objects");
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    const auto text = arguments->get<std::string>();
    auto opened = ParseJson(text.empty() ? "{}" : text);
    if (!opened.ok()) return fault("must hold arguments that are the text of a JSON object");
    *arguments = std::move(opened.value());
  }
  return std::nullopt;
}

std::optional<ApiError> NormalizeMessage(Json* message, const std::string& where) {
  const auto fault = [&](const std::string& what) {
    return BadRequest(fmt::format("{}{}", where, what), "messages");
  };
  if (!message->is_object()) return fault(" must be an object, got " + Brief(*message));
  const auto role = message->find("role");
  if (role == message->end() || !role->is_string() ||
      !IsRole(role->get_ref<const std::string&>())) {
    return fault(".role must be system, developer, user, assistant, tool or another plain word");
  }
  const bool assistant = *role == "assistant";
  const auto content = message->find("content");
  if (content == message->end() || content->is_null()) {
    if (!assistant) return fault(".content is required");
    (*message)["content"] = "";
  } else {
    auto text = FlatContent(*content, where + ".content");
    if (!text.ok()) return text.error();
    *content = std::move(text.value());
  }
  // Clients of either spelling; templates read either.
  for (const auto& [from, to] :
       {std::pair("reasoning_content", "reasoning"), {"reasoning", "reasoning_content"}}) {
    if (message->contains(from) && !message->contains(to)) (*message)[to] = Json((*message)[from]);
  }
  return OpenArguments(message, where);
}

Json ReadMessages(Fields& fields) {
  const Json* given = fields.Array("messages", kMaxMessages);
  if (given == nullptr) {
    fields.Fail("messages", "is required");
    return Json::array();
  }
  if (given->empty()) fields.Fail("messages", "must hold at least one message");
  Json messages = *given;
  for (size_t i = 0; i < messages.size() && !fields.error(); ++i) {
    if (auto error = NormalizeMessage(&messages[i], fmt::format("messages[{}]", i))) {
      fields.Fail(*std::move(error));
    }
  }
  return messages;
}

void ReadTools(Fields& fields, Json* context) {
  const Json* tools = fields.Array("tools", kMaxTools);
  const Json* choice = fields.Get("tool_choice");
  if (tools != nullptr) {
    if (tools->empty()) fields.Fail("tools", "must not be empty; leave it out instead");
    for (const Json& tool : *tools) {
      if (tool.is_object() && tool.contains("function") && tool["function"].is_object()) continue;
      fields.Fail("tools", "must hold objects with a function");
    }
    (*context)["tools"] = *tools;
  }
  if (choice == nullptr || *choice == "none") return;
  if (tools == nullptr) {
    fields.Fail("tool_choice", "needs tools");
  } else if (choice->is_object() || *choice == "required") {
    fields.Fail("tool_choice", "other than \"none\" and \"auto\" is not supported yet");
  } else if (*choice != "auto") {
    fields.Fail("tool_choice",
                "must be \"none\", \"auto\", \"required\" or a named tool, got " + Brief(*choice));
  }
}

void ReadTemplateArguments(Fields& fields, Json* context) {
  if (auto effort = fields.String("reasoning_effort", kMaxNameBytes)) {
    (*context)["reasoning_effort"] = *effort;
  }
  const Json* arguments = fields.Object("chat_template_kwargs");
  if (arguments == nullptr) return;
  for (const auto& [name, value] : arguments->items()) {
    const std::string_view taken[] = {"messages",  "tools",    "documents",    "bos_token",
                                      "eos_token", "tokenize", "chat_template"};
    if (std::find(std::begin(taken), std::end(taken), name) != std::end(taken)) {
      fields.Fail("chat_template_kwargs", fmt::format("may not set {}", name));
      return;
    }
    (*context)[name] = value;
  }
}

void ReadChatLogprobs(Fields& fields, const RequestRules& rules, Generation* out) {
  const bool wanted = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Int("top_logprobs", -1, kInt32Max);
  if (!wanted) {
    if (top && *top != 0) fields.Fail("top_logprobs", "needs logprobs to be true");
    return;
  }
  const int64_t most = rules.max_logprobs < 0 ? rules.vocab_size : rules.max_logprobs;
  const int64_t k = top && *top < 0 ? rules.vocab_size : top.value_or(0);
  if (k > most) {
    fields.Fail("top_logprobs",
                fmt::format("must be at most {} (--max-logprobs), got {}", most, top.value_or(0)));
    return;
  }
  out->logprobs = static_cast<int32_t>(k);
  out->sampling.logprobs = out->logprobs;
}

void ReadChatMaxTokens(Fields& fields, Generation* out) {
  const auto old_name = fields.Int("max_tokens", 1, kInt32Max);
  const auto new_name = fields.Int("max_completion_tokens", 1, kInt32Max);
  out->max_tokens = new_name ? new_name : old_name;
  if (new_name) out->max_tokens_field = "max_completion_tokens";
  out->sampling.max_tokens = std::numeric_limits<uint32_t>::max();  // none given: all the room
  if (out->max_tokens && out->sampling.min_tokens > *out->max_tokens) {
    fields.Fail("min_tokens", fmt::format("must be at most {} ({}), got {}", out->max_tokens_field,
                                          *out->max_tokens, out->sampling.min_tokens));
  }
}

}  // namespace

ChatPrompt ReadChatPrompt(Fields& fields, const RequestRules& rules) {
  ChatPrompt prompt;
  auto context = std::make_shared<Json>();
  // Templates find tools and documents defined, as transformers gives them: null for none.
  *context = {{"messages", ReadMessages(fields)}, {"tools", nullptr}, {"documents", nullptr}};
  ReadTools(fields, context.get());
  if (const Json* documents = fields.Array("documents", kMaxMessages)) {
    (*context)["documents"] = *documents;
  }
  ReadTemplateArguments(fields, context.get());

  prompt.continue_final_message = fields.Bool("continue_final_message").value_or(false);
  const auto generation_prompt = fields.Bool("add_generation_prompt");
  if (prompt.continue_final_message && generation_prompt.value_or(false)) {
    fields.Fail("continue_final_message", "and add_generation_prompt can not both be true");
  }
  const bool add_prompt = generation_prompt.value_or(!prompt.continue_final_message);
  (*context)["add_generation_prompt"] = add_prompt;
  prompt.add_special_tokens = fields.Bool("add_special_tokens").value_or(false);
  prompt.chat_template = fields.String("chat_template", kMaxTemplateBytes).value_or("");
  if (!prompt.chat_template.empty() && !rules.trust_request_chat_template) {
    fields.Fail("chat_template",
                "of a request needs a server started with --trust-request-chat-template");
  }
  const Json& messages = (*context)["messages"];
  if (!fields.error()) {
    prompt.final_content = messages.back()["content"].get<std::string>();
    if (!add_prompt) prompt.role = messages.back()["role"].get<std::string>();
  }
  prompt.context = std::move(context);
  return prompt;
}

Parsed<ChatRequest> ReadChatRequest(Fields& fields, const RequestRules& rules) {
  ChatRequest request;
  Generation& g = request.generation;
  ReadGeneration(fields, rules, &g);
  ReadChatLogprobs(fields, rules, &g);
  ReadChatMaxTokens(fields, &g);
  g.echo = fields.Bool("echo").value_or(false);
  (void)fields.Bool("parallel_tool_calls");  // calls are the template's and the client's matter
  request.prompt = ReadChatPrompt(fields, rules);
  if (fields.error()) return *fields.error();
  return request;
}

Parsed<ChatRequest> ParseChatRequest(const Json& body, const RequestRules& rules) {
  Fields fields(body);
  return ReadChatRequest(fields, rules);
}

}  // namespace cleave::openai

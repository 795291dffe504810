#include "http/openapi.h"

#include <fmt/format.h>

#include "http/openai/limits.h"

namespace cleave {
namespace {

// Fields that chat and completions share, inside "properties".
constexpr std::string_view kSharedFields = R"json(
"model":{"type":["string","null"],"maxLength":4096,
  "description":"A served name; left out: the first"},
"stream":{"type":["boolean","null"],"default":false},
"stream_options":{"anyOf":[{"$ref":"#/components/schemas/StreamOptions"},{"type":"null"}]},
"n":{"type":["integer","null"],"minimum":1,"maximum":128,"default":1},
"temperature":{"type":["number","null"],"minimum":0,"maximum":2},
"top_p":{"type":["number","null"],"exclusiveMinimum":0,"maximum":1},
"top_k":{"type":["integer","null"],"minimum":-1,"maximum":2147483647,
  "description":"0 or -1: off"},
"min_p":{"type":["number","null"],"minimum":0,"maximum":1},
"repetition_penalty":{"type":["number","null"],"minimum":0.001,"maximum":1000},
"presence_penalty":{"type":["number","null"],"minimum":-2,"maximum":2},
"frequency_penalty":{"type":["number","null"],"minimum":-2,"maximum":2},
"seed":{"type":["integer","null"],"format":"int64"},
"logit_bias":{"type":["object","null"],"maxProperties":1024,
  "additionalProperties":{"type":"number","minimum":-100,"maximum":100},
  "description":"By token id"},
"allowed_token_ids":{"type":["array","null"],"items":{"type":"integer","minimum":0},"minItems":1},
"bad_words":{"anyOf":[{"type":"string","minLength":1,"maxLength":1024},{"type":"array",
  "maxItems":256,"items":{"type":"string","minLength":1,"maxLength":1024}},{"type":"null"}]},
"stop":{"anyOf":[{"type":"string","minLength":1,"maxLength":1024},{"type":"array","maxItems":4,
  "items":{"type":"string","minLength":1,"maxLength":1024}},{"type":"null"}]},
"stop_token_ids":{"type":["array","null"],"items":{"type":"integer","minimum":0},"maxItems":1024},
"include_stop_str_in_output":{"type":["boolean","null"],"default":false},
"ignore_eos":{"type":["boolean","null"],"default":false},
"min_tokens":{"type":["integer","null"],"minimum":0,"maximum":2147483647,"default":0},
"prompt_logprobs":{"type":["integer","null"],"minimum":-1,
  "description":"At most --max-logprobs; not with stream"},
"skip_special_tokens":{"type":["boolean","null"],"default":true},
"spaces_between_special_tokens":{"type":["boolean","null"],"default":true,
  "description":"Without effect: decoding puts none"},
"stream_interval":{"type":["integer","null"],"minimum":1,"maximum":2147483647,
  "description":"Without effect: every step is streamed"},
"length_penalty":{"type":["number","null"],"minimum":-1000,"maximum":1000,
  "description":"Without effect: of beam search, which is not supported yet"},
"best_of":{"type":["integer","null"],"minimum":1,"maximum":128,"description":"Equal to n"},
"truncate_prompt_tokens":{"type":["integer","null"],"minimum":-1,
  "description":"At most --max-model-len; -1: that"},
"truncation_side":{"enum":["left","right",null]},
"return_token_ids":{"type":["boolean","null"]},
"return_tokens_as_token_ids":{"type":["boolean","null"]},
"echo":{"type":["boolean","null"],"default":false},
"response_format":{"type":["object","null"],"required":["type"],
  "properties":{"type":{"const":"text"}}},
"request_id":{"type":["string","null"],"maxLength":128},
"priority":{"type":["integer","null"],"minimum":-2147483647,"maximum":2147483647,"default":0,
  "description":"Other than 0 needs --scheduling-policy priority"},
"cache_salt":{"type":["string","null"],"minLength":1,"maxLength":1024},
"session_id":{"type":["string","null"],"maxLength":1024},
"user":{"type":["string","null"],"maxLength":1024},
)json";

// Fields of what a chat template sees, inside "properties".
constexpr std::string_view kTemplateFields = R"json(
"messages":{"type":"array","minItems":1,"maxItems":4096,
  "items":{"$ref":"#/components/schemas/Message"}},
"tools":{"type":["array","null"],"minItems":1,"maxItems":128,"items":{"type":"object",
  "required":["function"],"properties":{"type":{"type":"string"},"function":{"type":"object"}}}},
"tool_choice":{"enum":["none","auto",null],"description":"auto needs tools"},
"documents":{"type":["array","null"],"maxItems":4096,"items":{"type":"object"}},
"chat_template":{"type":["string","null"],"maxLength":262144,
  "description":"Needs --trust-request-chat-template"},
"chat_template_kwargs":{"type":["object","null"]},
"reasoning_effort":{"type":["string","null"],"maxLength":128},
"add_generation_prompt":{"type":["boolean","null"],"default":true},
"continue_final_message":{"type":["boolean","null"],"default":false},
"add_special_tokens":{"type":["boolean","null"],"default":false},
)json";

constexpr std::string_view kSchemas = R"json(
"Error":{"type":"object","required":["error"],"properties":{"error":{"type":"object",
  "required":["message","type","param","code"],"properties":{"message":{"type":"string"},
  "type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":"integer"}}}}},
"StreamOptions":{"type":"object","properties":{
  "include_usage":{"type":["boolean","null"],"default":false},
  "continuous_usage_stats":{"type":["boolean","null"],"default":false}}},
"Message":{"type":"object","required":["role"],"properties":{"role":{"type":"string"},
  "content":{"anyOf":[{"type":"string"},{"type":"array","items":{"anyOf":[{"type":"string"},
    {"type":"object","required":["type"],"properties":{"type":{"enum":["text","input_text",
    "output_text","refusal"]},"text":{"type":"string"},"refusal":{"type":"string"}}}]}},
    {"type":"null"}]},
  "name":{"type":"string"},"tool_call_id":{"type":"string"},
  "tool_calls":{"type":["array","null"],"items":{"type":"object"}},
  "reasoning":{"type":["string","null"]}}},
"Usage":{"type":"object","required":["prompt_tokens","total_tokens","completion_tokens"],
  "properties":{"prompt_tokens":{"type":"integer"},"total_tokens":{"type":"integer"},
  "completion_tokens":{"type":"integer"},"prompt_tokens_details":{"anyOf":[{"type":"null"},
  {"type":"object","properties":{"cached_tokens":{"type":"integer"}}}]}}},
"TokenLogprob":{"type":"object","required":["token","logprob","bytes"],"properties":{
  "token":{"type":"string"},"logprob":{"type":"number"},
  "bytes":{"type":"array","items":{"type":"integer","minimum":0,"maximum":255}},
  "top_logprobs":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}}}},
"ChatLogprobs":{"type":"object","properties":{"content":{"type":"array",
  "items":{"$ref":"#/components/schemas/TokenLogprob"}}}},
"ChatAnswer":{"type":"object","required":["id","object","created","model","choices","usage"],
  "properties":{"id":{"type":"string"},"object":{"const":"chat.completion"},
  "created":{"type":"integer"},"model":{"type":"string"},
  "choices":{"type":"array","items":{"type":"object","required":["index","message",
    "finish_reason"],"properties":{"index":{"type":"integer"},
    "message":{"type":"object","properties":{"role":{"type":"string"},
      "content":{"type":["string","null"]},"tool_calls":{"type":"array"}}},
    "logprobs":{"anyOf":[{"$ref":"#/components/schemas/ChatLogprobs"},{"type":"null"}]},
    "finish_reason":{"enum":["stop","length"]},
    "stop_reason":{"type":["string","integer","null"]},
    "token_ids":{"type":["array","null"],"items":{"type":"integer"}}}}},
  "usage":{"$ref":"#/components/schemas/Usage"},
  "prompt_logprobs":{"$ref":"#/components/schemas/PromptLogprobs"},
  "prompt_token_ids":{"type":["array","null"],"items":{"type":"integer"}}}},
"PromptLogprobs":{"type":["array","null"],"items":{"type":["object","null"],
  "additionalProperties":{"type":"object","properties":{"logprob":{"type":"number"},
  "rank":{"type":"integer"},"decoded_token":{"type":"string"}}}}},
"CompletionAnswer":{"type":"object","required":["id","object","created","model","choices",
  "usage"],"properties":{"id":{"type":"string"},"object":{"const":"text_completion"},
  "created":{"type":"integer"},"model":{"type":"string"},
  "choices":{"type":"array","items":{"type":"object","required":["index","text",
    "finish_reason"],"properties":{"index":{"type":"integer"},"text":{"type":"string"},
    "logprobs":{"type":["object","null"],"properties":{
      "text_offset":{"type":"array","items":{"type":"integer"}},
      "token_logprobs":{"type":"array","items":{"type":["number","null"]}},
      "tokens":{"type":"array","items":{"type":"string"}},
      "top_logprobs":{"type":"array","items":{"type":["object","null"]}}}},
    "finish_reason":{"enum":["stop","length"]},
    "stop_reason":{"type":["string","integer","null"]},
    "token_ids":{"type":["array","null"],"items":{"type":"integer"}},
    "prompt_logprobs":{"$ref":"#/components/schemas/PromptLogprobs"},
    "prompt_token_ids":{"type":["array","null"],"items":{"type":"integer"}}}}},
  "usage":{"$ref":"#/components/schemas/Usage"}}},
"Rendered":{"type":"object","required":["token_ids","prompt"],"properties":{
  "token_ids":{"type":"array","items":{"type":"integer"}},"prompt":{"type":"string"}}},
"TokenizeRequest":{"anyOf":[
  {"type":"object","required":["prompt"],"properties":{
    "model":{"type":["string","null"],"maxLength":4096},"prompt":{"type":"string"},
    "add_special_tokens":{"type":["boolean","null"],"default":true},
    "return_token_strs":{"type":["boolean","null"],"default":false}}},
  {"$ref":"#/components/schemas/TokenizeChatRequest"}]},
"TokenizeAnswer":{"type":"object","required":["count","max_model_len","tokens"],"properties":{
  "count":{"type":"integer"},"max_model_len":{"type":"integer"},
  "tokens":{"type":"array","items":{"type":"integer"}},
  "token_strs":{"type":["array","null"],"items":{"type":"string"}}}},
"DetokenizeRequest":{"type":"object","required":["tokens"],"properties":{
  "model":{"type":["string","null"],"maxLength":4096},
  "tokens":{"type":"array","items":{"type":"integer","minimum":0}}}},
"DetokenizeAnswer":{"type":"object","required":["prompt"],"properties":{
  "prompt":{"type":"string"}}},
"ModelCard":{"type":"object","required":["id","object","created","owned_by"],"properties":{
  "id":{"type":"string"},"object":{"const":"model"},"created":{"type":"integer"},
  "owned_by":{"type":"string"},"root":{"type":"string"},"parent":{"type":["string","null"]},
  "max_model_len":{"type":["integer","null"]},"permission":{"type":"array"}}},
"ModelList":{"type":"object","required":["object","data"],"properties":{
  "object":{"const":"list"},
  "data":{"type":"array","items":{"$ref":"#/components/schemas/ModelCard"}}}},
"BillAxes":{"type":"array","items":{"type":"object","required":["axis","ops"],"properties":{
  "axis":{"enum":["pp","tp","ep","cp"]},
  "ops":{"type":"array","items":{"type":"object","required":["op","calls","metered_bytes",
    "predicted_calls","predicted_bytes","transfer_s","wait_s"],"properties":{
    "op":{"enum":["all_reduce","all_gather","reduce_scatter","all_to_all","send"]},
    "calls":{"type":"integer"},"metered_bytes":{"type":"integer"},
    "predicted_calls":{"type":"integer"},"predicted_bytes":{"type":"integer"},
    "transfer_s":{"type":"number"},"wait_s":{"type":"number"}}}}}}},
"Bill":{"type":"object","required":["axes","exact","bubble","per_generated_token","ranks"],
  "properties":{
  "axes":{"$ref":"#/components/schemas/BillAxes"},"exact":{"type":"boolean"},
  "bubble":{"type":"number"},
  "per_generated_token":{"type":"object","required":["generated_tokens","axes"],"properties":{
    "generated_tokens":{"type":"integer"},
    "axes":{"type":"array","items":{"type":"object","required":["axis","ops"],"properties":{
      "axis":{"type":"string"},"ops":{"type":"array","items":{"type":"object","properties":{
        "op":{"type":"string"},"calls":{"type":"number"},"bytes":{"type":"number"},
        "transfer_s":{"type":"number"},"wait_s":{"type":"number"}}}}}}}}},
  "ranks":{"type":"array","items":{"type":"object","properties":{
    "replica":{"type":"integer"},"rank":{"type":"integer"},"pp":{"type":"integer"},
    "team":{"type":"integer"},"tp":{"type":"integer"},"cp":{"type":"integer"},
    "step_s":{"type":"number"},"bubble":{"type":"number"},
    "axes":{"$ref":"#/components/schemas/BillAxes"}}}}}},
"Status":{"type":"object","properties":{"status":{"type":"string"},
  "reason":{"type":"string"}}}
)json";

std::string SharedFields() {
  std::string out(kSharedFields);
  for (const std::string_view name : openai::kUnsupportedFields) {
    out += fmt::format(R"("{}":{{"type":"null","description":"Not supported yet"}},)", name);
  }
  for (const std::string_view name : openai::kUnsupportedSwitches) {
    out += fmt::format(R"("{}":{{"enum":[false,null],"description":"Not supported yet"}},)", name);
  }
  return out;
}

std::string ChatSchema() {
  std::string out = R"("ChatRequest":{"type":"object","required":["messages"],"properties":{)";
  out += SharedFields();
  out += kTemplateFields;
  out += R"json("parallel_tool_calls":{"type":["boolean","null"]},
"logprobs":{"type":["boolean","null"],"default":false},
"top_logprobs":{"type":["integer","null"],"minimum":-1,"description":"At most --max-logprobs"},
"max_tokens":{"type":["integer","null"],"minimum":1,"maximum":2147483647},
"max_completion_tokens":{"type":["integer","null"],"minimum":1,"maximum":2147483647}}},)json";
  return out;
}

std::string TokenizeChatSchema() {
  std::string out =
      R"("TokenizeChatRequest":{"type":"object","required":["messages"],"properties":{)";
  out += kTemplateFields;
  out += R"json("model":{"type":["string","null"],"maxLength":4096},
"return_token_strs":{"type":["boolean","null"],"default":false}}},)json";
  return out;
}

std::string CompletionSchema() {
  std::string out = R"("CompletionRequest":{"type":"object","required":["prompt"],"properties":{)";
  out += SharedFields();
  out += R"json("prompt":{"anyOf":[{"type":"string"},
  {"type":"array","minItems":1,"maxItems":1024,"items":{"type":"string"}},
  {"type":"array","minItems":1,"items":{"type":"integer","minimum":0}},
  {"type":"array","minItems":1,"maxItems":1024,"items":{"type":"array","minItems":1,
    "items":{"type":"integer","minimum":0}}}]},
"add_special_tokens":{"type":["boolean","null"],"default":true},
"logprobs":{"anyOf":[{"type":"integer","minimum":-1},{"enum":[false,null]}],
  "description":"At most --max-logprobs"},
"max_tokens":{"type":["integer","null"],"minimum":0,"maximum":2147483647,"default":16}}},)json";
  return out;
}

std::string JsonContent(std::string_view schema) {
  return fmt::format(R"({{"application/json":{{"schema":{{"$ref":"#/components/schemas/{}"}}}}}})",
                     schema);
}

std::string Errors() {
  std::string out;
  const std::string content = JsonContent("Error");
  for (const std::string_view status : {"400", "401", "404", "413", "500", "503"}) {
    out += fmt::format(R"(,"{}":{{"description":"Error","content":{}}})", status, content);
  }
  return out;
}

std::string Post(std::string_view path, std::string_view request, std::string_view answer,
                 std::string_view more_content) {
  std::string content = JsonContent(answer);
  content.insert(content.size() - 1, more_content);
  return fmt::format(R"("{}":{{"post":{{"requestBody":{{"required":true,"content":{}}},)"
                     R"("responses":{{"200":{{"description":"OK","content":{}}}{}}}}}}},)",
                     path, JsonContent(request), content, Errors());
}

std::string Get(std::string_view path, std::string_view responses) {
  return fmt::format(R"("{}":{{"get":{{"responses":{{{}}}}}}},)", path, responses);
}

std::string Paths() {
  constexpr std::string_view kEvents = R"(,"text/event-stream":{"schema":{"type":"string"}})";
  const std::string list =
      fmt::format(R"("200":{{"description":"OK","content":{}}})", JsonContent("ModelList"));
  const std::string probe = R"("200":{"description":"Yes"},"503":{"description":"No"})";
  const std::string status = fmt::format(
      R"("200":{{"description":"Yes","content":{0}}},"503":{{"description":"No","content":{0}}})",
      JsonContent("Status"));
  const std::string object =
      R"("200":{"description":"OK","content":{"application/json":{"schema":{"type":"object"}}}})";
  std::string out;
  out += Post("/v1/chat/completions", "ChatRequest", "ChatAnswer", kEvents);
  out += Post("/v1/completions", "CompletionRequest", "CompletionAnswer", kEvents);
  out += Post("/v1/chat/completions/render", "ChatRequest", "Rendered", "");
  out += Post("/v1/completions/render", "CompletionRequest", "Rendered", "");
  out += Post("/tokenize", "TokenizeRequest", "TokenizeAnswer", "");
  out += Post("/detokenize", "DetokenizeRequest", "DetokenizeAnswer", "");
  out += Get("/v1/models", list);
  out += fmt::format(
      R"("/v1/models/{{id}}":{{"get":{{"parameters":[{{"name":"id","in":"path","required":true,)"
      R"("schema":{{"type":"string"}}}}],"responses":{{"200":{{"description":"OK",)"
      R"("content":{}}}{}}}}}}},)",
      JsonContent("ModelCard"), Errors());
  out += Get("/health", probe);
  out += Get("/ping", probe);
  out += Get("/ready", status);
  out += Get("/live", status);
  out += Get("/metrics", R"("200":{"description":"OK","content":{"text/plain":{}}})");
  out += Get("/v1/bill",
             fmt::format(R"("200":{{"description":"OK","content":{}}})", JsonContent("Bill")));
  out += Get("/version", object);
  out += Get("/load", object);
  out += Get("/openapi.json", object);
  out.pop_back();  // the last comma
  return out;
}

}  // namespace

std::string OpenApiDocument(std::string_view version) {
  std::string out = fmt::format(R"({{"openapi":"3.1.0","info":{{"title":"Cleave","version":"{}"}},)"
                                R"("security":[{{}},{{"key":[]}}],"paths":{{)",
                                version);
  out += Paths();
  out += R"(},"components":{"securitySchemes":{"key":{"type":"http","scheme":"bearer"}},)";
  out += R"("schemas":{)";
  out += ChatSchema();
  out += CompletionSchema();
  out += TokenizeChatSchema();
  out += kSchemas;
  out += "}}}";
  return out;
}

}  // namespace cleave

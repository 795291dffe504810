#include "http/openai/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cleave::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

RequestRules Rules() {
  RequestRules rules;
  rules.model_names = {"tiny", "alias"};
  rules.vocab_size = 320;
  rules.max_model_len = 256;
  rules.max_logprobs = 5;
  return rules;
}

constexpr const char* kMessages = R"("messages":[{"role":"user","content":"hi"}])";

Parsed<ChatRequest> Chat(const std::string& fields, const RequestRules& rules = Rules()) {
  auto json = ParseJson("{" + fields + "}");
  if (!json.ok()) return json.error();
  return ParseChatRequest(json.value(), rules);
}

Parsed<CompletionRequest> Completion(const std::string& fields) {
  auto json = ParseJson("{" + fields + "}");
  if (!json.ok()) return json.error();
  return ParseCompletionRequest(json.value(), Rules());
}

struct BadCase {
  const char* fields;
  const char* param;
  const char* says;
};

// Chat bodies with one field wrong.
constexpr BadCase kBadChatFields[] = {
    {R"("temperature":-0.1)", "temperature", "must be a number in [0, 2], got -0.1"},
    {R"("temperature":2.01)", "temperature", "must be a number in [0, 2], got 2.01"},
    {R"("temperature":"1")", "temperature", "got \"1\""},
    {R"("temperature":true)", "temperature", "got true"},
    {R"("temperature":1e999)", "temperature", "finite"},
    {R"("temperature":NaN)", "temperature", "finite"},
    {R"("top_p":0)", "top_p", "must be in (0, 1], got 0"},
    {R"("top_p":1.5)", "top_p", "got 1.5"},
    {R"("top_k":-2)", "top_k", "an integer in [-1, 2147483647], got -2"},
    {R"("top_k":1.5)", "top_k", "got 1.5"},
    {R"("top_k":1e30)", "top_k", "got 1e+30"},
    {R"("top_k":18446744073709551615)", "top_k", "got 18446744073709551615"},
    {R"("min_p":-1)", "min_p", "in [0, 1]"},
    {R"("repetition_penalty":0)", "repetition_penalty", "[0.001, 1000]"},
    {R"("presence_penalty":2.1)", "presence_penalty", "[-2, 2]"},
    {R"("frequency_penalty":-2.1)", "frequency_penalty", "[-2, 2]"},
    {R"("seed":1e19)", "seed", "must be an integer"},
    {R"("n":0)", "n", "in [1, 128], got 0"},
    {R"("n":1000000000)", "n", "in [1, 128]"},
    {R"("n":2,"temperature":0)", "n", "must be 1 when temperature is 0 (greedy), got 2"},
    {R"("max_tokens":0)", "max_tokens", "in [1, 2147483647], got 0"},
    {R"("max_completion_tokens":-1)", "max_completion_tokens", "got -1"},
    {R"("max_tokens":5,"min_tokens":6)", "min_tokens", "at most max_tokens (5), got 6"},
    {R"("min_tokens":-1)", "min_tokens", "got -1"},
    {R"("stop":"")", "stop", "1 to 1024 bytes, got \"\""},
    {R"("stop":["a","b","c","d","e"])", "stop", "at most 4 strings, got 5"},
    {R"("stop":["a",1])", "stop", "got 1"},
    {R"("stop":{"a":1})", "stop", "a string or a list of strings, got an object"},
    {R"("stop_token_ids":[320])", "stop_token_ids",
     "stop_token_ids[0] must be a token id in "
     "[0, 320), got 320"},
    {R"("stop_token_ids":[1,-1])", "stop_token_ids", "stop_token_ids[1]"},
    {R"("stop_token_ids":5)", "stop_token_ids", "must be a list, got 5"},
    {R"("allowed_token_ids":[])", "allowed_token_ids", "at least one id"},
    {R"("allowed_token_ids":[1e3])", "allowed_token_ids", "got 1000.0"},
    {R"("bad_words":[""])", "bad_words", "1 to 1024 bytes"},
    {R"("logit_bias":{"320":1})", "logit_bias", "in [0, 320), got \"320\""},
    {R"("logit_bias":{"-1":1})", "logit_bias", "got \"-1\""},
    {R"("logit_bias":{"1x":1})", "logit_bias", "got \"1x\""},
    {R"("logit_bias":{"":1})", "logit_bias", "got \"\""},
    {R"("logit_bias":{"1":101})", "logit_bias", "numbers in [-100, 100], got 101"},
    {R"("logit_bias":{"1":"2"})", "logit_bias", "got \"2\""},
    {R"("logit_bias":[1])", "logit_bias", "must be an object, got a list of 1"},
    {R"("stream":"yes")", "stream", "true or false, got \"yes\""},
    {R"("stream_options":{"include_usage":true})", "stream_options", "when stream is true"},
    {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage",
     "true or false"},
    {R"("stream":true,"stream_options":7)", "stream_options", "must be an object"},
    {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "when stream is true"},
    {R"("prompt_logprobs":6)", "prompt_logprobs", "at most 5 (--max-logprobs), got 6"},
    {R"("prompt_logprobs":-1)", "prompt_logprobs", "at most 5 (--max-logprobs), got -1"},
    {R"("prompt_logprobs":-2)", "prompt_logprobs", "got -2"},
    {R"("top_logprobs":1)", "top_logprobs", "needs logprobs to be true"},
    {R"("logprobs":true,"top_logprobs":6)", "top_logprobs", "at most 5"},
    {R"("logprobs":1)", "logprobs", "true or false, got 1"},
    {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens", "-1 or at least 1"},
    {R"("truncate_prompt_tokens":257)", "truncate_prompt_tokens", "in [-1, 256]"},
    {R"("truncation_side":"top")", "truncation_side", "\"left\" or \"right\""},
    {R"("priority":1)", "priority", "--scheduling-policy priority"},
    {R"("cache_salt":"")", "cache_salt", "must not be empty"},
    {R"("request_id":"a b")", "request_id", "printable ASCII"},
    {R"("user":7)", "user", "must be a string"},
    {R"("use_beam_search":true)", "use_beam_search", "not supported yet"},
    {R"("best_of":2)", "best_of", "other than n is not supported, got 2"},
    {R"("structured_outputs":{"json":{}})", "structured_outputs", "not supported yet"},
    {R"("response_format":{"type":"json_object"})", "response_format",
     "of type \"json_object\" is not supported yet"},
    {R"("response_format":{"type":"json_schema"})", "response_format", "not supported yet"},
    {R"("response_format":{"type":5})", "response_format.type", "must be a string"},
    {R"("response_format":"text")", "response_format", "must be an object"},
    {R"("logprob_token_ids":[1])", "logprob_token_ids", "not supported yet"},
    {R"("tools":[])", "tools", "must not be empty"},
    {R"("tools":[1])", "tools", "objects with a function"},
    {R"("tool_choice":"auto")", "tool_choice", "needs tools"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required")",
     "tool_choice", "not supported yet"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"f"})",
     "tool_choice", "not supported yet"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"any")", "tool_choice",
     "must be"},
    {R"("chat_template":"x")", "chat_template", "--trust-request-chat-template"},
    {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs", "may not set messages"},
    {R"("chat_template_kwargs":5)", "chat_template_kwargs", "must be an object"},
    {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message",
     "can not both be true"},
    {R"("documents":{})", "documents", "must be a list"},
};

TEST(ChatRequestTest, RefusesEachFieldByName) {
  for (const BadCase& c : kBadChatFields) {
    auto request = Chat(std::string(kMessages) + "," + c.fields);
    ASSERT_FALSE(request.ok()) << c.fields;
    EXPECT_EQ(request.error().status, 400) << c.fields;
    EXPECT_EQ(request.error().param, c.param) << c.fields;
    EXPECT_THAT(request.error().message, HasSubstr(c.says)) << c.fields;
  }
}

TEST(ChatRequestTest, RefusesMessagesThatAreNone) {
  const BadCase cases[] = {
      {R"("model":"tiny")", "messages", "is required"},
      {R"("messages":[])", "messages", "at least one message"},
      {R"("messages":"hi")", "messages", "must be a list"},
      {R"("messages":[5])", "messages", "messages[0] must be an object, got 5"},
      {R"("messages":[{"content":"x"}])", "messages", "messages[0].role"},
      {R"("messages":[{"role":"a b","content":"x"}])", "messages", "messages[0].role"},
      {R"("messages":[{"role":"","content":"x"}])", "messages", "messages[0].role"},
      {R"("messages":[{"role":"user"}])", "messages", "messages[0].content is required"},
      {R"("messages":[{"role":"user","content":null}])", "messages", "content is required"},
      {R"("messages":[{"role":"user","content":5}])", "messages", "a string or a list of parts"},
      {R"("messages":[{"role":"user","content":[5]}])", "messages", "content[0] must be a string"},
      {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}])",
       "messages", "content[0] is of type \"image_url\", which is not supported"},
      {R"("messages":[{"role":"user","content":[{"type":"text"}]}])", "messages",
       "must hold its text"},
      {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]}])",
       "messages", "arguments that are the text of a JSON object"},
      {R"("messages":[{"role":"assistant","tool_calls":7}])", "messages", "a list of calls"},
  };
  for (const BadCase& c : cases) {
    auto request = Chat(c.fields);
    ASSERT_FALSE(request.ok()) << c.fields;
    EXPECT_EQ(request.error().param, c.param) << c.fields;
    EXPECT_THAT(request.error().message, HasSubstr(c.says)) << c.fields;
  }
}

TEST(ChatRequestTest, AnUnknownModelIsNotFound) {
  auto request = Chat(std::string(kMessages) + R"(,"model":"gpt\n4")");
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().status, 404);
  EXPECT_EQ(request.error().param, "model");
  EXPECT_EQ(request.error().message, "The model `gpt\n4` does not exist.");
  EXPECT_EQ(Chat(std::string(kMessages) + R"(,"model":"alias")").value().generation.model, "alias");
  EXPECT_EQ(Chat(kMessages).value().generation.model, "tiny");
}

TEST(ChatRequestTest, TakesEverythingTogether) {
  auto parsed = Chat(std::string(kMessages) + R"(,
      "temperature":0.005,"top_p":0.5,"top_k":7,"min_p":0.1,"repetition_penalty":1.5,
      "presence_penalty":-1,"frequency_penalty":2,"seed":-3,"n":2,"max_tokens":9,
      "max_completion_tokens":8.0,"min_tokens":3,"stop":["x","y"],"stop_token_ids":[1,2],
      "include_stop_str_in_output":true,"ignore_eos":true,"bad_words":["no"],
      "allowed_token_ids":[5,6],"logit_bias":{"3":-1.5,"4":100},"logprobs":true,"top_logprobs":2,
      "prompt_logprobs":1,"skip_special_tokens":false,"return_token_ids":true,
      "return_tokens_as_token_ids":true,"request_id":"r-1","cache_salt":"s","user":"u",
      "truncate_prompt_tokens":10,"truncation_side":"right","priority":0,"best_of":2,
      "tool_choice":"none","response_format":{"type":"text"},"no_stop_trim":true,"unknown":{})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const Generation& g = parsed.value().generation;
  const SamplingParams& s = g.sampling;
  EXPECT_EQ(s.temperature, 0.01F);  // raised
  EXPECT_EQ(s.top_p, 0.5F);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.min_p, 0.1F);
  EXPECT_EQ(s.repetition_penalty, 1.5F);
  EXPECT_EQ(s.presence_penalty, -1.0F);
  EXPECT_EQ(s.frequency_penalty, 2.0F);
  EXPECT_EQ(g.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(g.n, 2U);
  EXPECT_EQ(g.max_tokens, 8);
  EXPECT_EQ(g.max_tokens_field, "max_completion_tokens");
  EXPECT_EQ(s.min_tokens, 3U);
  EXPECT_THAT(g.stop, ElementsAre("x", "y"));
  EXPECT_THAT(s.stop_token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(g.include_stop);
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_THAT(g.bad_words, ElementsAre("no"));
  EXPECT_THAT(s.allowed_token_ids, ElementsAre(5, 6));
  EXPECT_THAT(s.logit_bias, ElementsAre(Pair(3, -1.5F), Pair(4, 100.0F)));
  EXPECT_EQ(g.logprobs, 2);
  EXPECT_EQ(s.logprobs, 2);
  EXPECT_EQ(s.prompt_logprobs, 1);
  EXPECT_FALSE(g.skip_special);
  EXPECT_TRUE(g.return_token_ids);
  EXPECT_TRUE(g.tokens_as_ids);
  EXPECT_EQ(g.request_id, "r-1");
  EXPECT_EQ(g.cache_salt, "s");
  EXPECT_EQ(g.truncation_side, TruncationSide::kRight);
}

TEST(ChatRequestTest, NullsCountAsAbsent) {
  auto parsed = Chat(std::string(kMessages) + R"(,"temperature":null,"stop":null,"n":null,
      "stream_options":null,"tools":null,"tool_choice":null,"logit_bias":null,"max_tokens":null,
      "response_format":null,"structured_outputs":null,"logprobs":null,"top_logprobs":0)");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed.value().generation.sampling.temperature, 1.0F);
  EXPECT_EQ(parsed.value().generation.logprobs, -1);
}

TEST(ChatRequestTest, DefaultsComeFromTheModel) {
  RequestRules rules = Rules();
  rules.defaults.temperature = 0.6;
  rules.defaults.top_p = 0.95;
  rules.defaults.top_k = 20;
  rules.defaults.repetition_penalty = 1.1;
  auto parsed = Chat(kMessages, rules);
  EXPECT_EQ(parsed.value().generation.sampling.temperature, 0.6F);
  EXPECT_EQ(parsed.value().generation.sampling.top_p, 0.95F);
  EXPECT_EQ(parsed.value().generation.sampling.top_k, 20);
  EXPECT_EQ(parsed.value().generation.sampling.repetition_penalty, 1.1F);
  parsed = Chat(std::string(kMessages) + R"(,"temperature":0,"top_k":0)", rules);
  EXPECT_EQ(parsed.value().generation.sampling.temperature, 0.0F);
  EXPECT_EQ(parsed.value().generation.sampling.top_k, 0);
}

TEST(ChatRequestTest, MessagesReachTheTemplateAsGiven) {
  auto parsed = Chat(R"("messages":[
      {"role":"user","content":[{"type":"text","text":"a"},"b"],"name":"N"},
      {"role":"assistant","content":null,"reasoning_content":"R",
       "tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},
      {"role":"tool","tool_call_id":"1","content":"7"}],
      "tools":[{"type":"function","function":{"name":"f"}}],"documents":[{"t":"d"}],
      "chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low")");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed.value().prompt.context->dump(),
            R"({"messages":[{"role":"user","content":"a\nb","name":"N"},)"
            R"({"role":"assistant","content":"","reasoning_content":"R",)"
            R"("tool_calls":[{"id":"1","function":{"name":"f","arguments":{"z":1,"a":2}}}],)"
            R"("reasoning":"R"},{"role":"tool","tool_call_id":"1","content":"7"}],)"
            R"("tools":[{"type":"function","function":{"name":"f"}}],"documents":[{"t":"d"}],)"
            R"("reasoning_effort":"low","enable_thinking":false,"add_generation_prompt":true})");
  EXPECT_EQ(parsed.value().prompt.final_content, "7");
  EXPECT_EQ(parsed.value().prompt.role, "assistant");
}

TEST(CompletionRequestTest, RefusesEachFieldByName) {
  const BadCase cases[] = {
      {R"("model":"tiny")", "prompt", "is required"},
      {R"("prompt":[])", "prompt", "not empty"},
      {R"("prompt":5)", "prompt", "must be a string"},
      {R"("prompt":[[]])", "prompt", "entry 0"},
      {R"("prompt":["a",5])", "prompt", "entry 1"},
      {R"("prompt":[1,"a"])", "prompt", "prompt[1] must be a token id in [0, 320), got \"a\""},
      {R"("prompt":[320])", "prompt", "got 320"},
      {R"("prompt":[[1],[2,-1]])", "prompt", "prompt[1][1] must be a token id"},
      {R"("prompt":[1.5])", "prompt", "got 1.5"},
      {R"("prompt":[1e300])", "prompt", "prompt[0]"},
      {R"("prompt":"a","max_tokens":0)", "max_tokens", "0 only with echo"},
      {R"("prompt":"a","min_tokens":17)", "min_tokens", "at most max_tokens (16), got 17"},
      {R"("prompt":"a","logprobs":6)", "logprobs", "at most 5 (--max-logprobs), got 6"},
      {R"("prompt":"a","logprobs":true)", "logprobs", "must be an integer"},
      {R"("prompt":"a","suffix":"b")", "suffix", "not supported yet"},
      {R"("prompt":"a","prompt_embeds":"b")", "prompt_embeds", "not supported yet"},
      {R"("prompt":"a","echo":"yes")", "echo", "true or false"},
  };
  for (const BadCase& c : cases) {
    auto request = Completion(c.fields);
    ASSERT_FALSE(request.ok()) << c.fields;
    EXPECT_EQ(request.error().param, c.param) << c.fields;
    EXPECT_THAT(request.error().message, HasSubstr(c.says)) << c.fields;
  }
  std::string many = R"("n":128,"prompt":["a")";
  for (int i = 0; i < 8; ++i) many += ",\"a\"";
  EXPECT_THAT(Completion(many + "]").error().message, HasSubstr("at most 1024, got 1152"));
  many = R"("prompt":["a")";
  for (int i = 0; i < 1024; ++i) many += ",\"a\"";
  EXPECT_THAT(Completion(many + "]").error().message, HasSubstr("at most 1024 prompts, got 1025"));
}

TEST(CompletionRequestTest, TakesPromptsOfAllKinds) {
  auto one = Completion(R"("prompt":"a")");
  EXPECT_EQ(one.value().prompts.size(), 1U);
  EXPECT_TRUE(one.value().generation.add_special_tokens);
  auto texts = Completion(R"("prompt":["a","b"])");
  EXPECT_EQ(texts.value().prompts[1].text, "b");
  auto ids = Completion(R"("prompt":[1,2.0])");
  ASSERT_EQ(ids.value().prompts.size(), 1U);
  EXPECT_THAT(ids.value().prompts[0].ids, ElementsAre(1, 2));
  auto lists = Completion(R"("prompt":[[1],[2,3]])");
  EXPECT_THAT(lists.value().prompts[1].ids, ElementsAre(2, 3));
  auto echo = Completion(R"("prompt":"a","echo":true,"max_tokens":0,"logprobs":2)");
  EXPECT_EQ(echo.value().generation.sampling.prompt_logprobs, 2);
  EXPECT_EQ(Completion(R"("prompt":"a","logprobs":false)").value().generation.logprobs, -1);
}

TEST(TokenRequestTest, TokenizeAndDetokenizeAreChecked) {
  const auto tokenize = [](const std::string& body) {
    auto json = ParseJson(body);
    return ParseTokenizeRequest(json.value(), Rules());
  };
  EXPECT_THAT(tokenize("{}").error().message, HasSubstr("or messages is required"));
  EXPECT_EQ(tokenize(R"({"prompt":5})").error().param, "prompt");
  EXPECT_FALSE(tokenize(R"({"prompt":"x"})").value().chat);
  EXPECT_TRUE(tokenize(R"({"messages":[{"role":"user","content":"x"}]})").value().chat);
  EXPECT_EQ(tokenize(R"({"prompt":"x","model":"y"})").error().status, 404);
  const auto detokenize = [](const std::string& body) {
    auto json = ParseJson(body);
    return ParseDetokenizeRequest(json.value(), Rules());
  };
  EXPECT_EQ(detokenize("{}").error().param, "tokens");
  EXPECT_THAT(detokenize(R"({"tokens":[1,320]})").error().message, HasSubstr("tokens[1]"));
  EXPECT_THAT(detokenize(R"({"tokens":[]})").value().tokens, ElementsAre());
}

}  // namespace
}  // namespace cleave::openai

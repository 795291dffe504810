#include "http/openai/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "http/openai/logprobs.h"
#include "http/testing/fake_text.h"

namespace cleave::openai {
namespace {

using testing::FakeTokenizer;
using ::testing::HasSubstr;
using ::testing::Not;

TokenLogprobs Logprob(int32_t id, float logprob, std::vector<TokenLogprob> top = {}) {
  return {{id, logprob, 1}, std::move(top)};
}

class AnswerTest : public ::testing::Test {
 protected:
  AnswerTest() {
    input_.id = "x-1";
    input_.created_s = 100;
    input_.tokenizer = &tokenizer_;
    input_.generation.model = "tiny";
    input_.prompts = {{{1, 2, 3}, "abc"}};
  }

  static ChoiceDelta Delta(const std::string& text, std::vector<int32_t> tokens,
                           Ending ending = Ending::kNone) {
    ChoiceDelta delta;
    delta.text = text;
    delta.tokens = std::move(tokens);
    delta.ending = ending;
    return delta;
  }

  // The events of a stream, without "data: " and empty lines.
  static std::vector<std::string> Events(const std::string& text) {
    std::vector<std::string> out;
    for (size_t at = 0; at < text.size();) {
      EXPECT_EQ(text.substr(at, 6), "data: ");
      const size_t end = text.find("\n\n", at);
      if (end == std::string::npos) break;
      out.push_back(text.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return out;
  }

  FakeTokenizer tokenizer_;
  AnswerInput input_;
  std::string out_;
};

TEST_F(AnswerTest, ChatHasOpenAisShape) {
  auto answer = MakeChatAnswer(std::move(input_));
  answer->Add(0, 1, Delta("hel\"lo", {256}), &out_);
  answer->Add(0, 2, Delta("!", {'!'}, Ending::kLength), &out_);
  answer->Finish(&out_);
  EXPECT_EQ(
      out_,
      R"({"id":"x-1","object":"chat.completion","created":100,"model":"tiny","choices":[{)"
      R"("index":0,"message":{"role":"assistant","content":"hel\"lo!","refusal":null,)"
      R"("annotations":null,)"
      R"("audio":null,"function_call":null,"tool_calls":[],"reasoning":null},"logprobs":null,)"
      R"("finish_reason":"length","stop_reason":null,"token_ids":null}],"service_tier":null,)"
      R"("system_fingerprint":null,"usage":{"prompt_tokens":3,"total_tokens":5,)"
      R"("completion_tokens":2,"prompt_tokens_details":null},"prompt_logprobs":null,)"
      R"("prompt_token_ids":null,"kv_transfer_params":null})");
}

TEST_F(AnswerTest, ChatShowsWhatWasAskedFor) {
  input_.generation.logprobs = 1;
  input_.generation.return_token_ids = true;
  input_.prompt_tokens_details = true;
  auto answer = MakeChatAnswer(std::move(input_));
  ChoiceDelta delta = Delta("", {261}, Ending::kStop);
  delta.logprobs = {Logprob(261, -0.5F, {{256, -0.25F, 1}})};
  delta.prompt_logprobs = {Logprob(2, -1.5F), Logprob(3, -2, {{2, -0.5F, 1}, {3, -2, 4}})};
  delta.cached_tokens = 2;
  delta.stop_string = "END";
  answer->Add(0, 1, std::move(delta), &out_);
  answer->Finish(&out_);
  const Json json = Json::parse(out_);
  EXPECT_EQ(
      json["choices"][0]["logprobs"].dump(),
      R"({"content":[{"token":"bytes:\\xf0\\x9f","logprob":-0.5,"bytes":[240,159],)"
      R"("top_logprobs":[{"token":"hello","logprob":-0.25,"bytes":[104,101,108,108,111]}]}]})");
  EXPECT_EQ(json["choices"][0]["stop_reason"], "END");
  EXPECT_EQ(json["choices"][0]["token_ids"].dump(), "[261]");
  EXPECT_EQ(json["prompt_token_ids"].dump(), "[1,2,3]");
  EXPECT_EQ(json["usage"]["prompt_tokens_details"].dump(), R"({"cached_tokens":2})");
  EXPECT_EQ(json["prompt_logprobs"].dump(),
            R"([null,{"2":{"logprob":-1.5,"rank":1,"decoded_token":"\u0002"}},)"
            R"({"3":{"logprob":-2.0,"rank":1,"decoded_token":"\u0003"},)"
            R"("2":{"logprob":-0.5,"rank":1,"decoded_token":"\u0002"}}])");
}

TEST_F(AnswerTest, ChatStreamsRoleDeltasEndAndDone) {
  input_.generation.stream = true;
  auto answer = MakeChatStream(std::move(input_));
  answer->Add(0, 1, Delta("hel", {1}), &out_);
  answer->Add(0, 2, Delta("", {2}), &out_);  // held back: nothing to say
  answer->Add(0, 3, Delta("lo", {3}, Ending::kStop), &out_);
  answer->Finish(&out_);
  const std::string head =
      R"({"id":"x-1","object":"chat.completion.chunk","created":100,"model":"tiny","choices":[)"
      R"({"index":0,"delta":)";
  EXPECT_THAT(
      Events(out_),
      ::testing::ElementsAre(
          head + R"({"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})",
          head + R"({"content":"hel"},"logprobs":null,"finish_reason":null}]})",
          head + R"({"content":"lo"},"logprobs":null,"finish_reason":"stop","stop_reason":null}]})",
          "[DONE]"));
}

TEST_F(AnswerTest, UsageInStreamsFollowsTheOptions) {
  for (const bool include : {false, true}) {
    for (const bool continuous : {false, true}) {
      for (const bool chat : {false, true}) {
        AnswerInput input = input_;
        input.generation.include_usage = include;
        input.generation.continuous_usage = include && continuous;
        input.generation.stream = true;
        std::string out;
        auto answer = chat ? MakeChatStream(input) : MakeCompletionStream(input);
        answer->Add(0, 1, Delta("a", {1}), &out);
        answer->Add(0, 2, Delta("b", {2}, Ending::kLength), &out);
        answer->Finish(&out);
        std::vector<std::string> events = Events(out);
        ASSERT_EQ(events.back(), "[DONE]");
        events.pop_back();
        if (include) {
          const Json last = Json::parse(events.back());
          events.pop_back();
          EXPECT_TRUE(last["choices"].empty());
          EXPECT_EQ(last["usage"]["completion_tokens"], 2);
          EXPECT_EQ(last["usage"]["total_tokens"], 5);
        }
        for (const std::string& event : events) {
          EXPECT_EQ(Json::parse(event).contains("usage"), include && continuous) << event;
        }
        if (include && continuous) {
          const Json first = Json::parse(events[chat ? 1 : 0]);
          EXPECT_EQ(first["usage"]["completion_tokens"], 1);
          EXPECT_EQ(first["usage"]["prompt_tokens"], 3);
        }
      }
    }
  }
}

TEST_F(AnswerTest, ChatStreamsOfManyChoicesAndEcho) {
  input_.generation.n = 2;
  input_.generation.echo = true;
  input_.generation.return_token_ids = true;
  input_.echo_text = "so far";
  auto answer = MakeChatStream(std::move(input_));
  answer->Add(1, 1, Delta("b", {2}), &out_);
  const auto events = Events(out_);
  ASSERT_EQ(events.size(), 5U);
  EXPECT_THAT(events[0], HasSubstr(R"("prompt_token_ids":[1,2,3])"));
  EXPECT_THAT(events[1], HasSubstr(R"("index":1,"delta":{"role":"assistant")"));
  EXPECT_THAT(events[1], Not(HasSubstr("prompt_token_ids")));
  EXPECT_THAT(events[3], HasSubstr(R"("index":1,"delta":{"content":"so far"})"));
  EXPECT_THAT(events[4], HasSubstr(R"("token_ids":[2])"));
}

TEST_F(AnswerTest, CompletionHasOpenAisShape) {
  input_.generation.n = 2;
  input_.prompts.push_back({{7}, "z"});
  auto answer = MakeCompletionAnswer(std::move(input_));
  for (uint32_t i = 0; i < 4; ++i) {
    answer->Add(i, 1, Delta("t" + std::to_string(i), {static_cast<int32_t>(i)}, Ending::kStop),
                &out_);
  }
  answer->Finish(&out_);
  const Json json = Json::parse(out_);
  EXPECT_EQ(json["object"], "text_completion");
  ASSERT_EQ(json["choices"].size(), 4U);
  EXPECT_EQ(json["choices"][2].dump(),
            R"({"index":2,"text":"t2","logprobs":null,"finish_reason":"stop","stop_reason":null,)"
            R"("token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null})");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(json["usage"]["completion_tokens"], 4);
}

TEST_F(AnswerTest, CompletionLogprobsWithEchoStartWithoutProbability) {
  input_.generation.echo = true;
  input_.generation.logprobs = 1;
  input_.generation.return_token_ids = true;
  input_.prompts = {{{263, 256}, "\xE2\x82\xAChello"}};
  ChoiceDelta delta = Delta("ab", {259}, Ending::kLength);
  delta.logprobs = {Logprob(259, -1, {{259, -1, 1}})};
  delta.prompt_logprobs = {Logprob(256, -2, {{257, -0.5F, 1}})};
  const char* logprobs = R"({"text_offset":[0,1,6],"token_logprobs":[null,-2.0,-1.0],)"
                         "\"tokens\":[\"\xE2\x82\xAC\",\"hello\",\"ab\"],"
                         R"("top_logprobs":[null,{" world":-0.5,"hello":-2.0},{"ab":-1.0}]})";
  auto answer = MakeCompletionAnswer(input_);
  answer->Add(0, 1, ChoiceDelta(delta), &out_);
  answer->Finish(&out_);
  const Json json = Json::parse(out_);
  EXPECT_EQ(json["choices"][0]["text"], "\xE2\x82\xAChelloab");
  EXPECT_EQ(json["choices"][0]["logprobs"].dump(), logprobs);
  EXPECT_EQ(json["choices"][0]["token_ids"].dump(), "[263,256,259]");

  input_.generation.stream = true;
  std::string stream;
  auto streamed = MakeCompletionStream(input_);
  streamed->Add(0, 1, std::move(delta), &stream);
  const Json chunk = Json::parse(Events(stream)[0]);
  EXPECT_EQ(chunk["choices"][0]["logprobs"].dump(), logprobs);
  EXPECT_EQ(chunk["choices"][0]["text"], "\xE2\x82\xAChelloab");
}

TEST_F(AnswerTest, CompletionStreamsCountOffsetsOn) {
  input_.generation.stream = true;
  input_.generation.logprobs = 0;
  auto answer = MakeCompletionStream(std::move(input_));
  ChoiceDelta a = Delta("hello", {256});
  a.logprobs = {Logprob(256, -1)};
  answer->Add(0, 1, std::move(a), &out_);
  ChoiceDelta b = Delta("ab", {259}, Ending::kStop);
  b.logprobs = {Logprob(259, -1)};
  b.stop_token_id = 5;
  answer->Add(0, 2, std::move(b), &out_);
  answer->Finish(&out_);
  const auto events = Events(out_);
  EXPECT_EQ(Json::parse(events[1])["choices"][0]["logprobs"].dump(),
            R"({"text_offset":[5],"token_logprobs":[-1.0],"tokens":["ab"],)"
            R"("top_logprobs":[{"ab":-1.0}]})");
  EXPECT_EQ(Json::parse(events[1])["choices"][0]["stop_reason"], 5);
  EXPECT_EQ(events[2], "[DONE]");
}

TEST_F(AnswerTest, NamesOfTokens) {
  const TokenNames names{&tokenizer_, false};
  EXPECT_EQ(TokenName(256, names), "hello");
  EXPECT_EQ(TokenName(0xE2, names), "bytes:\\xe2");
  EXPECT_NE(TokenName(0xE3, names), TokenName(0xE2, names));
  EXPECT_EQ(TokenName(testing::kEnd, names), "<|im_end|>");
  EXPECT_EQ(TokenName(256, {&tokenizer_, true}), "token_id:256");
}

TEST(ErrorTest, HasOpenAisShape) {
  EXPECT_EQ(ErrorBody(BadRequest("no \"x\"", "x")),
            R"({"error":{"message":"no \"x\"","type":"BadRequestError","param":"x","code":400}})");
  EXPECT_EQ(ErrorEvent(FromStatus(Internal("broken"))),
            "data: {\"error\":{\"message\":\"broken\",\"type\":\"InternalServerError\","
            "\"param\":null,\"code\":500}}\n\n");
  EXPECT_EQ(FromStatus(ResourceExhausted("full")).status, 503);
  EXPECT_EQ(FromStatus(Unavailable("later")).retry_after_s, 1);
  EXPECT_EQ(FromStatus(Unsupported("x")).type, "NotImplementedError");
  EXPECT_EQ(FromStatus(NotFound("x")).status, 404);
  EXPECT_EQ(FromHttpStatus(401, "x").type, "AuthenticationError");
}

}  // namespace
}  // namespace cleave::openai

// Bodies and bytes nobody meant: the API answers each with something that is no 5xx, and lives.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "http/api_test_fixture.h"
#include "http/prepare.h"

namespace cleave::testing {
namespace {

constexpr const char* kSeeds[] = {
    (R"({"messages":[{"role":"user","content":"hello world"},{"role":"assistant","content":null,)"
     R"("tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]}],"temperature":0.7,)"
     R"("stop":["a","b"],"logit_bias":{"5":-1.5},"n":2,"seed":1,"stream":true,"stream_options":)"
     R"({"include_usage":true},"tools":[{"type":"function","function":{"name":"f"}}],"top_k":5})"),
    (R"({"prompt":["a",[1,2,3]],"max_tokens":5,"echo":true,"logprobs":2,"bad_words":["x"],)"
     R"("allowed_token_ids":[1,2],"truncate_prompt_tokens":3,"min_tokens":1})"),
    R"({"tokens":[1,2,300],"model":"tiny","prompt":"x","messages":[{"role":"a","content":"b"}]})",
};

constexpr const char* kPieces[] = {
    "null",
    "true",
    "-1",
    "1e400",
    "NaN",
    "\"\"",
    "[]",
    "{}",
    "18446744073709551616",
    "\"\\u0000\"",
    "0.5",
    "[[]]",
    "\xFF",
    "\"\\ud83d\"",
    ",",
    ":",
    "}",
    "]",
    "\"stop\":",
    "2147483648",
    "-9223372036854775809",
    "{\"type\":\"text\",\"text\":\"x\"}",
};

std::string Mutate(std::string body, RngStream* rng) {
  for (size_t edits = 1 + rng->Below(6); edits > 0; --edits) {
    const size_t at = rng->Below(body.size() + 1);
    switch (rng->Below(5)) {
      case 0:
        if (at < body.size()) body[at] = static_cast<char>(rng->Below(256));
        break;
      case 1:
        body.insert(at, kPieces[rng->Below(std::size(kPieces))]);
        break;
      case 2:
        body.erase(at, 1 + rng->Below(8));
        break;
      case 3: {  // another value in place of one that follows a colon
        const size_t colon = body.find(':', at);
        if (colon == std::string::npos) break;
        const size_t end = body.find_first_of(",}]", colon);
        body.replace(colon + 1, std::min(end, body.size()) - colon - 1,
                     kPieces[rng->Below(std::size(kPieces))]);
        break;
      }
      default:
        body.insert(at, body.substr(rng->Below(body.size() + 1), rng->Below(30)));
    }
    if (body.empty()) body = "{";
  }
  return body;
}

TEST(PrepareFuzzTest, EveryBodyIsARequestOrTheClientsFault) {
  const FakeTokenizer tokenizer;
  const auto chat_template = MakeFakeTemplate();
  ServedText model;
  model.text = {&tokenizer, chat_template.get()};
  model.rules.model_names = {"tiny"};
  model.rules.vocab_size = kVocabSize;
  model.rules.max_model_len = 128;
  constexpr RouteId kRoutes[] = {RouteId::kChat,       RouteId::kCompletions,
                                 RouteId::kTokenize,   RouteId::kDetokenize,
                                 RouteId::kChatRender, RouteId::kCompletionsRender};
  RngStream rng(11);
  size_t fine = 0;
  for (int round = 0; round < 30'000; ++round) {
    const std::string body = Mutate(kSeeds[rng.Below(std::size(kSeeds))], &rng);
    const Prepared out = Prepare(kRoutes[rng.Below(std::size(kRoutes))], body, model);
    if (!out.error) {
      ++fine;
      for (const SequenceSpec& spec : out.sequences) {
        ASSERT_GE(spec.sampling.max_tokens, 1U) << body;
        ASSERT_LE(spec.prompt.size() + spec.sampling.max_tokens, 128U) << body;
        for (const int32_t id : spec.prompt) ASSERT_LT(id, kVocabSize);
        ASSERT_GE(spec.sampling.temperature, 0) << body;
      }
      continue;
    }
    ASSERT_GE(out.error->status, 400) << body;
    ASSERT_LT(out.error->status, 500) << body << " " << out.error->message;
    ASSERT_FALSE(out.error->message.empty()) << body;
    ASSERT_TRUE(Json::accept(openai::ErrorBody(*out.error))) << body;
  }
  EXPECT_GT(fine, 300U);
}

TEST_F(ApiTest, LivesThroughRandomBytes) {
  // A length beyond what is sent ends by its deadline.
  options_.limits.header_timeout = options_.limits.body_timeout = http::Milliseconds(100);
  Script({256});
  Serve();
  RngStream rng(13);
  int answered = 0;
  for (int round = 0; round < 150; ++round) {
    std::string bytes = PostText(kChat, Mutate(kSeeds[0], &rng));
    if (round % 2 == 0) bytes = Mutate(bytes, &rng);
    RawClient client(api_->port());
    client.Send(bytes);
    const RawResponse r = client.Read();
    EXPECT_TRUE(r.status / 100 != 5 || r.status == 501) << bytes << r.body;
    if (r.status != 0) ++answered;
  }
  EXPECT_GT(answered, 140);
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_TRUE(api_->WaitIdle(SteadyClock::now() + std::chrono::seconds(10)));
}

}  // namespace
}  // namespace cleave::testing

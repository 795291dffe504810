// Generation through the API: answers, streams, ends, drain.

#include "http/api.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "http/api_test_fixture.h"

namespace cleave::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ApiTest, AnswersChat) {
  Script({256, 257, kEos}, FinishReason::kStop);
  Serve();
  const RawResponse r = Post(kChat, std::string("{") + kHi + "}", "X-Request-Id: abc.1\r\n");
  ASSERT_EQ(r.status, 200) << r.body;
  const Json json = Json::parse(r.body);
  EXPECT_EQ(json["id"], "chatcmpl-abc.1");
  EXPECT_EQ(r.headers.at("x-request-id"), "abc.1");
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "hello world");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["completion_tokens"], 3);
  const SequenceSpec spec = engine_.submitted()[0];
  EXPECT_EQ(json["usage"]["prompt_tokens"], spec.prompt.size());
  EXPECT_EQ(tokenizer_.Decode(spec.prompt, SkipSpecial::kNo),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(spec.sampling.max_tokens, 256 - spec.prompt.size());
}

TEST_F(ApiTest, StreamsChat) {
  Script({256, 257, '!'});
  Serve();
  const RawResponse r = Post(kChat, std::string("{") + kHi + R"(,"stream":true})");
  EXPECT_EQ(r.status, 200);
  EXPECT_THAT(r.headers.at("content-type"), StartsWith("text/event-stream"));
  EXPECT_TRUE(r.complete);
  const auto events = Events(r.body);
  ASSERT_EQ(events.size(), 5U) << r.body;
  EXPECT_THAT(events[0], HasSubstr(R"("role":"assistant")"));
  EXPECT_THAT(events[3], HasSubstr(R"("finish_reason":"length")"));
  EXPECT_EQ(events[4], "[DONE]");
  EXPECT_EQ(JoinedText(events), "hello world!");
}

TEST_F(ApiTest, CompletionsOfManyPromptsAndChoicesAreIndexed) {
  engine_.set_script([](const SequenceSpec& spec) {
    const auto digit = static_cast<int32_t>('0' + spec.sampling.choice_index);
    return Steps(spec.id, {spec.prompt.back(), digit}, FinishReason::kLength);
  });
  Serve();
  const std::string fields = R"("prompt":["a","b"],"n":2,"max_tokens":2,"seed":5)";
  const Json json = PostJson(kCompletions, fields);
  ASSERT_EQ(json["choices"].size(), 4U) << json.dump();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(json["choices"][i]["index"], i);
  EXPECT_EQ(json["choices"][0]["text"], "a0");
  EXPECT_EQ(json["choices"][1]["text"], "a1");
  EXPECT_EQ(json["choices"][3]["text"], "b1");
  const auto specs = engine_.submitted();
  EXPECT_EQ(specs[3].sampling.prompt_index, 1U);
  EXPECT_EQ(specs[3].sampling.choice_index, 1U);
  EXPECT_EQ(specs[0].sampling.seed, 5U);
  EXPECT_THAT(specs[0].prompt, ElementsAre(kBos, 'a'));

  const auto events = Events(Post(kCompletions, "{" + fields + R"(,"stream":true})").body);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(JoinedText(events, 2), "b0");
}

TEST_F(ApiTest, ASeedIsDrawnOnceARequest) {
  Script({'a'});
  Serve();
  PostJson(kCompletions, R"("prompt":"a","n":2)");
  PostJson(kCompletions, R"("prompt":"a","n":2)");
  const auto specs = engine_.submitted();
  EXPECT_EQ(specs[0].sampling.seed, specs[1].sampling.seed);
  EXPECT_NE(specs[0].sampling.seed, specs[2].sampling.seed);
}

TEST_F(ApiTest, AStopStringEndsAndAbortsTheSequence) {
  Serve();
  RawClient client(api_->port());
  client.Send(PostText(kChat, std::string("{") + kHi + R"(,"stream":true,"stop":["lo wor"]})"));
  ASSERT_TRUE(engine_.WaitSubmitted(1));
  const SequenceId id = engine_.submitted()[0].id;
  engine_.Emit({Step(id, {256})});
  engine_.Emit({Step(id, {257})});
  EXPECT_TRUE(engine_.WaitAborted(id));
  engine_.Emit({Step(id, {'x'})});  // it was already under way
  engine_.Emit({Step(id, {}, FinishReason::kAbort)});
  const auto events = Events(client.Read().body);
  EXPECT_EQ(JoinedText(events), "hel");
  EXPECT_THAT(events[events.size() - 2], HasSubstr(R"("stop_reason":"lo wor")"));
  EXPECT_EQ(events.back(), "[DONE]");
  // And the connection serves on.
  client.Send(GetText("/version"));
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(ApiTest, EventsOfAStepLeaveInOneWrite) {
  Serve();
  RawClient client(api_->port());
  client.Send(PostText(kCompletions, R"({"prompt":"a","n":8,"stream":true})"));
  ASSERT_TRUE(engine_.WaitSubmitted(8));
  std::vector<SequenceOutput> step;
  for (const SequenceSpec& spec : engine_.submitted()) step.push_back(Step(spec.id, {256}));
  engine_.Emit(std::move(step));
  const std::string text = client.ReadUntil("\"index\":7");
  const std::string body = text.substr(text.find("\r\n\r\n") + 4);
  // One chunk: its size stands once, before the first event.
  EXPECT_EQ(body.find("data: "), body.find("\r\n") + 2);
  EXPECT_THAT(body.substr(body.find("\r\n") + 2), Not(HasSubstr("\r\ndata:")));
}

TEST_F(ApiTest, AClientThatLeavesFreesItsSequences) {
  Serve();
  for (const char* stream : {"false", "true"}) {
    const size_t before = engine_.submitted().size();
    RawClient client(api_->port());
    client.Send(
        PostText(kCompletions, std::string(R"({"prompt":["a","b"],"stream":)") + stream + "}"));
    ASSERT_TRUE(engine_.WaitSubmitted(before + 2));
    const SequenceId first = engine_.submitted()[before].id;
    const SequenceId second = engine_.submitted()[before + 1].id;
    engine_.Emit({Step(first, {256})});
    EXPECT_EQ(api_->ActiveRequests(), 1U);
    client.Close();
    EXPECT_TRUE(engine_.WaitAborted(first));
    EXPECT_TRUE(engine_.WaitAborted(second));
    EXPECT_TRUE(api_->WaitIdle(SteadyClock::now() + std::chrono::seconds(10)));
    engine_.Emit({Step(first, {256}), Step(second, {}, FinishReason::kAbort)});
  }
}

TEST_F(ApiTest, AnErrorBeforeTheFirstTokenIsAStatus) {
  engine_.set_script([](const SequenceSpec& spec) {
    SequenceOutput output = Step(spec.id, {}, FinishReason::kError);
    output.error = DeadlineExceeded("rank 0 did not finish attention");
    return std::vector<SequenceOutput>{output};
  });
  Serve();
  for (const char* stream : {"false", "true"}) {
    const RawResponse r =
        Post(kCompletions, std::string(R"({"prompt":"a","stream":)") + stream + "}");
    EXPECT_EQ(r.status, 500);
    EXPECT_EQ(Json::parse(r.body)["error"]["message"], "rank 0 did not finish attention");
  }
}

TEST_F(ApiTest, AStreamCutShortNeverLooksFinished) {
  engine_.set_script([](const SequenceSpec& spec) {
    SequenceOutput output = Step(spec.id, {}, FinishReason::kError);
    output.error = Internal("lost");
    return std::vector<SequenceOutput>{Step(spec.id, {256}), output};
  });
  Serve();
  for (const char* path : {kChat, kCompletions}) {
    const RawResponse r =
        Post(path, std::string("{") + kHi + R"(,"prompt":"a","stream":true,"n":2})");
    EXPECT_EQ(r.status, 200);
    const auto events = Events(r.body);
    EXPECT_THAT(events.back(), HasSubstr(R"("message":"lost")"));
    EXPECT_THAT(r.body, Not(HasSubstr("[DONE]")));
    EXPECT_THAT(r.body, Not(HasSubstr(R"("finish_reason":"stop")")));
    EXPECT_THAT(r.body, Not(HasSubstr(R"("finish_reason":"length")")));
  }
}

// Its sequence is aborted at once; what it may still read ends with the reason.
TEST_F(ApiTest, AStreamWhoseReaderIsTooSlowEndsWithAnError) {
  options_.limits.stream_buffer_bytes = 64 << 10;
  Serve();
  RawClient client(api_->port());
  client.ShrinkReceiveBuffer();
  client.Send(PostText(kCompletions, R"({"prompt":"a","stream":true})"));
  EmitUntilAborted();
  EXPECT_TRUE(api_->WaitIdle(SteadyClock::now() + std::chrono::seconds(10)));
  const RawResponse r = client.Read();
  ASSERT_TRUE(r.complete);
  auto events = Events(r.body);
  EXPECT_THAT(events.back(), HasSubstr("its reader fell more than 65536 bytes behind"));
  EXPECT_THAT(events.back(), HasSubstr(R"("code":503)"));
  events.pop_back();
  EXPECT_EQ(JoinedText(events).size(), events.size() * 5000);  // none is missing before it
  EXPECT_THAT(r.body, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(r.body, Not(HasSubstr(R"("finish_reason":")")));
  EXPECT_THAT(Get("/metrics").body, HasSubstr("cleave_http_slow_readers_total 1\n"));
}

// What only waits for the server's own thread is no fault of the reader: the socket has room.
TEST_F(ApiTest, AStreamOfASlowServerIsNotCut) {
  constexpr size_t kSteps = 30;  // of 5000 bytes: far less than a socket holds
  options_.limits.stream_buffer_bytes = 4096;
  Serve();
  for (size_t round = 0; round < 20; ++round) {
    RawClient client(api_->port());
    client.Send(PostText(kCompletions, R"({"prompt":"a","stream":true,"max_tokens":100})"));
    ASSERT_TRUE(engine_.WaitSubmitted(round + 1));
    const SequenceId id = engine_.submitted()[round].id;
    for (size_t i = 1; i <= kSteps; ++i) {
      engine_.Emit({Step(id, std::vector<int32_t>(1000, 256),
                         i < kSteps ? FinishReason::kNone : FinishReason::kLength)});
    }
    const RawResponse r = client.Read();
    ASSERT_TRUE(r.complete);
    EXPECT_THAT(r.body, HasSubstr("[DONE]"));
    auto events = Events(r.body);
    events.pop_back();
    EXPECT_EQ(JoinedText(events).size(), kSteps * 5000);
  }
  EXPECT_THAT(Get("/metrics").body, HasSubstr("cleave_http_slow_readers_total 0\n"));
}

TEST_F(ApiTest, AStreamThatNobodyReadsIsReset) {
  options_.limits.stream_buffer_bytes = 64 << 10;
  options_.limits.write_timeout = std::chrono::milliseconds(150);
  Serve();
  RawClient client(api_->port());
  client.ShrinkReceiveBuffer();
  client.Send(PostText(kCompletions, R"({"prompt":"a","stream":true})"));
  EmitUntilAborted();
  EXPECT_TRUE(api_->WaitIdle(SteadyClock::now() + std::chrono::seconds(10)));
  const TimePoint deadline = SteadyClock::now() + std::chrono::seconds(10);
  std::string metrics;  // of the one connection that asks for them
  do {
    metrics = Get("/metrics").body;
  } while (metrics.find("cleave_http_connections 1\n") == std::string::npos &&
           SteadyClock::now() < deadline);
  EXPECT_THAT(metrics, HasSubstr("cleave_http_connections 1\n"));
  const RawResponse r = client.Read();
  EXPECT_EQ(r.status, 200);
  EXPECT_FALSE(r.complete);
  EXPECT_TRUE(client.reset());
  for (const char* end : {"[DONE]", R"("finish_reason":")", "error"}) {
    EXPECT_THAT(r.body, Not(HasSubstr(end)));
  }
}

TEST_F(ApiTest, RefusalsOfTheEngineBecomeAnswers) {
  Serve();
  engine_.Refuse(ResourceExhausted("the queue is full; see --max-num-queued-tokens"));
  RawResponse r = Post(kChat, std::string("{") + kHi + "}");
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.headers.at("retry-after"), "1");
  engine_.Refuse(InvalidArgument("the prompt needs 9 blocks, the pool has 8"));
  r = Post(kChat, std::string("{") + kHi + R"(,"stream":true})");
  EXPECT_EQ(r.status, 400);
  EXPECT_THAT(r.body, HasSubstr("9 blocks"));
  EXPECT_THAT(Get("/metrics").body, HasSubstr("vllm:admission_rejections_total{model_name=\"tiny\","
                                              "reason=\"queued_tokens\"} 1\n"));
  EXPECT_EQ(api_->ActiveRequests(), 0U);
}

TEST_F(ApiTest, EchoAloneGeneratesNothingVisible) {
  engine_.set_script([](const SequenceSpec& spec) {
    SequenceOutput output = Step(spec.id, {256}, FinishReason::kLength);
    output.prompt_logprobs = {{{'b', -1.5F, 2}, {}}};
    return std::vector<SequenceOutput>{output};
  });
  Serve();
  const Json json = PostJson(kCompletions, R"("prompt":[97,98],"echo":true,"max_tokens":0,)"
                                           R"("logprobs":0)");
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], "ab") << json.dump();
  EXPECT_EQ(choice["logprobs"]["tokens"].dump(), R"(["a","b"])");
  EXPECT_EQ(choice["logprobs"]["token_logprobs"].dump(), "[null,-1.5]");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
  EXPECT_EQ(engine_.submitted()[0].sampling.max_tokens, 1U);
}

TEST_F(ApiTest, ConcatenatedStreamEqualsTheWholeAnswer) {
  const std::vector<int32_t> tokens = {261, 262, 0xE2, 0x82, 0xAC, 261, 'S', 'T', 'O', 256, 0xC3};
  Script(tokens);
  Serve();
  const std::string fields = R"("prompt":"a","stop":"STOP","max_tokens":20)";
  const Json whole = PostJson(kCompletions, fields);
  const auto events = Events(Post(kCompletions, "{" + fields + R"(,"stream":true})").body);
  EXPECT_EQ(JoinedText(events), whole["choices"][0]["text"]);
  EXPECT_EQ(whole["choices"][0]["text"],
            "\xF0\x9F\x98\x80\xE2\x82\xAC\xEF\xBF\xBD\xEF\xBF\xBDSTOhello");
}

// However an answer ends in the middle of a character, the character is left out of both kinds.
TEST_F(ApiTest, AnAnswerCutInsideACharacterEndsBeforeIt) {
  engine_.set_script([](const SequenceSpec& spec) {
    if (spec.sampling.max_tokens == 3) {
      return Steps(spec.id, {256, 0xE2, 0x82}, FinishReason::kLength);
    }
    return Steps(spec.id, {256, 0xE2, 0x82, kEos}, FinishReason::kStop);
  });
  Serve();
  for (const int max_tokens : {3, 9}) {
    for (const std::string path : {kChat, kCompletions}) {
      const std::string fields =
          std::string(kHi) + R"(,"prompt":"a","max_tokens":)" + std::to_string(max_tokens);
      const Json whole = PostJson(path, fields);
      const Json& choice = whole["choices"][0];
      EXPECT_EQ(path == kChat ? choice["message"]["content"] : choice["text"], "hello");
      EXPECT_EQ(choice["finish_reason"], max_tokens == 3 ? "length" : "stop");
      EXPECT_EQ(whole["usage"]["completion_tokens"], max_tokens == 3 ? 3 : 4);
      const auto events = Events(Post(path, "{" + fields + R"(,"stream":true})").body);
      EXPECT_EQ(JoinedText(events), "hello");
      EXPECT_EQ(events.back(), "[DONE]");
    }
  }
}

TEST_F(ApiTest, DrainLetsRunningStreamsFinish) {
  Serve();
  RawClient client(api_->port());
  client.Send(PostText(kCompletions, R"({"prompt":"a","stream":true})"));
  ASSERT_TRUE(engine_.WaitSubmitted(1));
  const SequenceId id = engine_.submitted()[0].id;
  engine_.Emit({Step(id, {256})});
  client.ReadUntil("hello");
  api_->StartDrain();
  api_->StartDrain();
  EXPECT_EQ(Get("/ready").status, 503);
  EXPECT_THAT(Get("/ready").body, HasSubstr("draining"));
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/live").status, 200);
  const RawResponse refused = Post(kChat, std::string("{") + kHi + "}");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_FALSE(api_->WaitIdle(SteadyClock::now() + std::chrono::milliseconds(1)));
  EXPECT_TRUE(engine_.draining());
  engine_.Emit({Step(id, {257}, FinishReason::kLength)});
  EXPECT_TRUE(api_->WaitIdle(SteadyClock::now() + std::chrono::seconds(10)));
  api_->Stop();
  const RawResponse r = client.Read();
  EXPECT_TRUE(r.complete);
  EXPECT_EQ(Events(r.body).back(), "[DONE]");
  EXPECT_EQ(JoinedText(Events(r.body)), "hello world");
}

TEST_F(ApiTest, WhatCanNotFinishGetsAnExplicitError) {
  Serve();
  RawClient streamed(api_->port());
  RawClient whole(api_->port());
  streamed.Send(PostText(kCompletions, R"({"prompt":"a","stream":true})"));
  ASSERT_TRUE(engine_.WaitSubmitted(1));
  whole.Send(PostText(kCompletions, R"({"prompt":"b"})"));
  ASSERT_TRUE(engine_.WaitSubmitted(2));
  engine_.Emit({Step(engine_.submitted()[0].id, {256})});
  streamed.ReadUntil("hello");
  api_->StartDrain();
  api_->FailAll(Unavailable("the server is shutting down"));
  EXPECT_TRUE(api_->WaitIdle(SteadyClock::now() + std::chrono::seconds(10)));
  api_->Stop();
  const RawResponse w = whole.Read();
  EXPECT_EQ(w.status, 503);
  EXPECT_THAT(w.body, HasSubstr("shutting down"));
  const RawResponse s = streamed.Read();
  EXPECT_TRUE(s.complete);
  EXPECT_THAT(Events(s.body).back(), HasSubstr("shutting down"));
  EXPECT_THAT(s.body, Not(HasSubstr("[DONE]")));
  EXPECT_EQ(engine_.aborted().size(), 2U);
}

TEST_F(ApiTest, StopCutsWhatIsLeftAndAbortsIt) {
  Serve();
  RawClient client(api_->port());
  client.Send(PostText(kCompletions, R"({"prompt":"a","stream":true})"));
  ASSERT_TRUE(engine_.WaitSubmitted(1));
  api_->Stop();
  EXPECT_EQ(client.Read().status, 0);
  EXPECT_EQ(engine_.aborted().size(), 1U);
  engine_.Emit({Step(engine_.submitted()[0].id, {256})});
}

TEST_F(ApiTest, ManyClientsComeAndGo) {
  Script({256, 257, '!'});
  Serve();
  std::vector<std::thread> threads;
  threads.reserve(8);
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const bool stream = (t + i) % 2 == 0;
        const std::string body =
            std::string("{") + kHi + R"(,"n":2,"stream":)" + (stream ? "true}" : "false}");
        RawClient client(api_->port());
        client.Send(PostText(kChat, body));
        if (i % 5 == 4) continue;  // leaves at once
        const RawResponse r = client.Read();
        const std::string text =
            stream ? JoinedText(Events(r.body), 1)
                   : Json::parse(r.body)["choices"][1]["message"]["content"].get<std::string>();
        if (text != "hello world!") ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(api_->WaitIdle(SteadyClock::now() + std::chrono::seconds(10)));
}

}  // namespace
}  // namespace cleave::testing

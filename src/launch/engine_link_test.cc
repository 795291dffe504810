#include "launch/engine_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <memory>

#include "engine/fake_executor.h"
#include "launch/engine_link_server.h"
#include "launch/frames.h"
#include "launch/testing/collector.h"

namespace cleave {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using testing::Collector;
using testing::Eventually;
using testing::TestDeadline;

EngineConfig Config() {
  EngineConfig config;
  config.max_model_len = 4000;
  config.max_num_seqs = 16;
  config.max_num_queued_reqs = 20;
  config.block_size = 4;
  config.num_blocks = 1000;
  config.eos_token_ids = {0};
  return config;
}

class CountingObserver final : public EngineObserver {
 public:
  void OnStep(uint32_t) override { ++steps; }
  void OnFirstToken(double) override { ++first; }
  void OnNextToken(double) override { ++next; }
  void OnPreempted(SequenceId, uint32_t) override {}
  void OnFinished(const Finished& f) override { output_tokens += f.output_tokens; }
  std::atomic<int> steps{0}, first{0}, next{0};
  std::atomic<uint32_t> output_tokens{0};
};

struct Sockets {
  Sockets() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    front.Reset(fds[0]);
    rank.Reset(fds[1]);
  }
  UniqueFd front, rank;
};

// A front and a rank 0 that are threads of this process.
class Linked {
 public:
  explicit Linked(std::function<Status()> before_forward = nullptr, LinkOptions options = {})
      : server_(std::make_unique<EngineLinkServer>(std::move(sockets_.rank), LinkServerOptions())) {
    FakeExecutorOptions executor;
    executor.num_blocks = Config().num_blocks;
    executor.block_size = Config().block_size;
    executor.before_forward = std::move(before_forward);
    engine_ = std::make_unique<Engine>(Config(), std::make_unique<FakeExecutor>(executor),
                                       server_->sink(), server_->observer());
    serving_ = std::async(std::launch::async, [this] { return server_->Serve(engine_.get()); });
    link.emplace(std::move(sockets_.front), Config(),
                 LinkEvents{.sink = seen.sink(),
                            .observer = &observer,
                            .on_trouble =
                                [this](LinkEvents::Trouble trouble, const Status& why) {
                                  std::lock_guard<std::mutex> lock(mu_);
                                  troubles_.emplace_back(trouble, why);
                                }},
                 options);
  }
  ~Linked() {
    link.reset();
    (void)StopRank();
  }
  // As a process that ends: first its engine.
  Status StopRank() {
    if (!server_) return OkStatus();
    server_->StopServing();
    Status status = serving_.get();
    engine_.reset();
    server_.reset();
    return status;
  }
  // What Serve said, once the link is gone.
  Status Served() {
    Status status = serving_.get();
    engine_.reset();
    server_.reset();
    return status;
  }
  size_t troubles() {
    std::lock_guard<std::mutex> lock(mu_);
    return troubles_.size();
  }
  std::pair<LinkEvents::Trouble, Status> trouble(size_t i) {
    std::lock_guard<std::mutex> lock(mu_);
    return troubles_[i];
  }

 private:
  Sockets sockets_;
  std::unique_ptr<EngineLinkServer> server_;
  std::unique_ptr<Engine> engine_;
  std::future<Status> serving_;
  std::mutex mu_;
  std::vector<std::pair<LinkEvents::Trouble, Status>> troubles_;

 public:
  Collector seen;
  CountingObserver observer;
  std::optional<EngineLink> link;
};

TEST(EngineLink, AnswersAsTheEngineItselfDoes) {
  Collector local;
  FakeExecutorOptions executor;
  executor.num_blocks = Config().num_blocks;
  executor.block_size = Config().block_size;
  Engine engine(Config(), std::make_unique<FakeExecutor>(executor), local.sink(), nullptr);
  Linked linked;
  for (SequenceId id = 1; id <= 8; ++id) {
    ASSERT_TRUE(engine.Submit({FakeSequence(id, 10 * id, 20)}).ok());
    ASSERT_TRUE(linked.link->Submit({FakeSequence(id, 10 * id, 20)}).ok());
  }
  for (SequenceId id = 1; id <= 8; ++id) {
    const Collector::One here = local.End(id);
    const Collector::One there = linked.seen.End(id);
    EXPECT_EQ(there.finish, FinishReason::kLength);
    EXPECT_EQ(there.tokens, here.tokens);
  }
  EXPECT_EQ(linked.observer.first, 8);
  EXPECT_EQ(linked.observer.next, 8 * 19);
  EXPECT_EQ(linked.observer.output_tokens, 8U * 20U);
  EXPECT_GT(linked.observer.steps, 19);
  EXPECT_TRUE(Eventually([&] { return linked.link->stats().generation_tokens == 160; }));
  EXPECT_EQ(linked.link->open_tokens(), 0U);
  EXPECT_TRUE(linked.link->health().ok());
}

TEST(EngineLink, RefusalsArriveAsTheyWereSaid) {
  Linked linked;
  const Status never = linked.link->Submit({FakeSequence(1, 5000, 10)});
  EXPECT_EQ(never.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(linked.link->open_tokens(), 0U);
  std::vector<SequenceSpec> many;
  for (SequenceId id = 100; id < 130; ++id) many.push_back(FakeSequence(id, 1, 3000));
  ASSERT_TRUE(linked.link->Submit(many).ok());  // 16 run, the others wait
  for (SequenceSpec& spec : many) spec.id += 100;
  EXPECT_THAT(linked.link->Submit(many).ToString(),
              HasSubstr("resource_exhausted: the waiting queue is full"));
  linked.link->FailAll(Unavailable("enough"));
  for (SequenceId id = 100; id < 130; ++id) EXPECT_EQ(linked.seen.End(id).ends, 1);
  ASSERT_TRUE(linked.link->Submit({FakeSequence(3, 10, 3000)}).ok());
  EXPECT_THAT(linked.link->Submit({FakeSequence(3, 10, 3000)}).message(),
              HasSubstr("sequence 3 is with the engine already"));
  linked.link->StartDrain();
  EXPECT_TRUE(Eventually([&] {
    return linked.link->Submit({FakeSequence(99, 1, 1)}).code() == StatusCode::kUnavailable;
  }));
  linked.link->Abort(3);
  EXPECT_EQ(linked.seen.End(3).finish, FinishReason::kAbort);
}

TEST(EngineLink, FailAllEndsWhatRunsAndTheEngineGoesOn) {
  Linked linked;
  ASSERT_TRUE(linked.link->Submit({FakeSequence(1, 10, 3000), FakeSequence(2, 10, 3000)}).ok());
  linked.link->FailAll(Unavailable("enough"));
  EXPECT_EQ(linked.seen.End(1).error.message(), "enough");
  EXPECT_EQ(linked.seen.End(2).error.message(), "enough");
  ASSERT_TRUE(linked.link->Submit({FakeSequence(3, 10, 5)}).ok());
  EXPECT_EQ(linked.seen.End(3).finish, FinishReason::kLength);
}

TEST(EngineLink, DieEndsEverySequenceOnceAndIgnoresWhatFollows) {
  for (int round = 0; round < 20; ++round) {
    Linked linked;
    for (SequenceId id = 1; id <= 8; ++id) {
      ASSERT_TRUE(linked.link->Submit({FakeSequence(id, 10, 3000)}).ok());
    }
    linked.seen.WaitForTokens(1, 1 + static_cast<size_t>(round));
    linked.link->Die(DeadlineExceeded("rank 1 was stopped"));
    linked.link->Die(Internal("later"));
    for (SequenceId id = 1; id <= 8; ++id) {
      const Collector::One end = linked.seen.End(id);
      EXPECT_EQ(end.finish, FinishReason::kError);
      EXPECT_EQ(end.error.ToString(), "deadline_exceeded: rank 1 was stopped");
    }
    EXPECT_EQ(linked.link->health().message(), "rank 1 was stopped");
    EXPECT_EQ(linked.link->stats().running, 0U);
    EXPECT_EQ(linked.link->Submit({FakeSequence(50, 1, 1)}).code(), StatusCode::kUnavailable);
    EXPECT_FALSE(linked.Served().ok());
    EXPECT_EQ(linked.seen.after_end(), 0);
    EXPECT_EQ(linked.troubles(), 0U);
    linked.link.reset();
    EXPECT_EQ(linked.seen.Now(50).ends, 0);
  }
}

TEST(EngineLink, ABreakIsToldAndWaitsForTheReason) {
  Linked linked(nullptr, {.reason_grace = 20000ms});
  ASSERT_TRUE(linked.link->Submit({FakeSequence(1, 10, 3000)}).ok());
  // Its engine's destructor aborts what runs; here that is no end of its own.
  EXPECT_TRUE(linked.StopRank().ok());
  ASSERT_TRUE(Eventually([&] { return linked.troubles() == 1; }));
  EXPECT_EQ(linked.trouble(0).first, LinkEvents::Trouble::kLinkBroke);
  EXPECT_THAT(linked.trouble(0).second.message(), HasSubstr("the link to rank 0 broke"));
  std::future<Status> late = std::async(
      std::launch::async, [&] { return linked.link->Submit({FakeSequence(2, 10, 3000)}); });
  linked.link->Die(Unavailable("rank 0 was killed"));
  EXPECT_THAT(late.get().message(), HasSubstr("rank 0 was killed"));
  EXPECT_EQ(linked.seen.Now(2).ends, 0);  // never accepted
  EXPECT_EQ(linked.seen.End(1).error.message(), "rank 0 was killed");
  EXPECT_EQ(linked.seen.after_end(), 0);
}

TEST(EngineLink, ABreakWithoutAReasonEndsWithItsOwn) {
  Sockets sockets;
  Collector seen;
  EngineLink link(std::move(sockets.front), Config(), {.sink = seen.sink()},
                  {.reason_grace = 10ms});
  std::future<Status> submit =
      std::async(std::launch::async, [&] { return link.Submit({FakeSequence(1, 10, 3000)}); });
  FrameReader reader(sockets.rank.get());
  const auto frame = reader.Read(TestDeadline());
  ASSERT_TRUE(frame.ok());
  const auto message = DecodeSubmit(frame->payload);
  ASSERT_TRUE(message.ok());
  ASSERT_TRUE(SendFrame(sockets.rank.get(), FrameType::kReply, TestDeadline(), [&](ByteWriter* w) {
                Encode(w, ReplyMessage{message->number, {}, {}});
              }).ok());
  EXPECT_TRUE(submit.get().ok());
  sockets.rank.Reset();
  EXPECT_THAT(seen.End(1).error.ToString(), HasSubstr("unavailable: the link to rank 0 broke"));
}

TEST(EngineLink, ASilentRankIsNotWaitedForBeyondTheDeadline) {
  Sockets sockets;
  Collector seen;
  EngineLink link(std::move(sockets.front), Config(), {.sink = seen.sink()},
                  {.submit_deadline = 30ms});
  EXPECT_EQ(link.Submit({FakeSequence(1, 10, 5)}).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(link.open_tokens(), 0U);
  FrameReader reader(sockets.rank.get());
  ASSERT_EQ(reader.Read(TestDeadline())->type, FrameType::kSubmit);
  const auto abort = reader.Read(TestDeadline());  // should it still have been accepted
  ASSERT_EQ(abort->type, FrameType::kAbort);
  EXPECT_EQ(DecodeIds(abort->payload).value(), std::vector<SequenceId>{1});
}

TEST(EngineLink, OutputsBeforeTheReplyProveAcceptance) {
  Sockets sockets;
  Collector seen;
  EngineLink link(std::move(sockets.front), Config(), {.sink = seen.sink()}, {});
  std::future<Status> submit = std::async(std::launch::async, [&] {
    return link.Submit({FakeSequence(1, 10, 9), FakeSequence(2, 10, 9)});
  });
  FrameReader reader(sockets.rank.get());
  ASSERT_TRUE(reader.Read(TestDeadline()).ok());
  SequenceOutput output;
  output.id = 1;
  output.tokens = {5};
  ASSERT_TRUE(SendFrame(sockets.rank.get(), FrameType::kStep, TestDeadline(), [&](ByteWriter* w) {
                Encode(w, OkStatus(), EngineStats(), {}, {&output, 1});
              }).ok());
  ASSERT_TRUE(seen.WaitForTokens(1, 1));
  link.Die(Unavailable("rank 0 was killed"));
  EXPECT_TRUE(submit.get().ok());
  EXPECT_EQ(seen.End(1).error.message(), "rank 0 was killed");
  EXPECT_EQ(seen.End(2).error.message(), "rank 0 was killed");
}

TEST(EngineLink, AnEnginesDeathIsToldAfterItsStreamsHaveTheirErrors) {
  std::atomic<bool> break_now{false};
  Linked linked([&] { return break_now ? DataLoss("rank 2 disagrees") : OkStatus(); });
  ASSERT_TRUE(linked.link->Submit({FakeSequence(1, 10, 3000)}).ok());
  linked.seen.WaitForTokens(1, 3);
  break_now = true;
  EXPECT_EQ(linked.seen.End(1).error.message(), "rank 2 disagrees");
  ASSERT_TRUE(Eventually([&] { return linked.troubles() == 1; }));
  EXPECT_EQ(linked.trouble(0).first, LinkEvents::Trouble::kEngineDied);
  EXPECT_EQ(linked.link->health().message(), "rank 2 disagrees");
}

TEST(EngineLink, WhatIsTooLargeToCarryEndsAlone) {
  Sockets sockets;
  EngineLinkServer server(std::move(sockets.rank), {});
  std::vector<SequenceOutput> outputs(3);
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i].id = i + 1;
  outputs[1].prompt_logprobs.resize(1);
  outputs[1].prompt_logprobs[0].top.resize(kMaxFrameBytes / sizeof(TokenLogprob) + 1);
  server.sink()(std::move(outputs));
  FrameReader reader(sockets.front.get());
  std::vector<SequenceId> seen;
  while (seen.size() < 3) {
    const auto frame = reader.Read(TestDeadline());
    ASSERT_TRUE(frame.ok());
    const auto step = DecodeStep(frame->payload);
    ASSERT_TRUE(step.ok());
    for (const SequenceOutput& output : step->outputs) {
      seen.push_back(output.id);
      EXPECT_EQ(output.finish == FinishReason::kError, output.id == 2);
      if (output.id == 2) {
        EXPECT_THAT(output.error.message(), HasSubstr("fewer log-probabilities"));
      }
    }
  }
  EXPECT_THAT(seen, ::testing::ElementsAre(1, 2, 3));
}

TEST(EngineLink, DamagedFramesBreakTheLink) {
  Sockets sockets;
  Collector seen;
  std::promise<Status> trouble;
  EngineLink link(
      std::move(sockets.front), Config(),
      {.sink = seen.sink(),
       .observer = nullptr,
       .on_trouble = [&](LinkEvents::Trouble, const Status& why) { trouble.set_value(why); }},
      {.reason_grace = 10ms});
  ASSERT_TRUE(SendFrame(sockets.rank.get(), FrameType::kStep, TestDeadline(), [](ByteWriter* w) {
                w->Put(uint64_t{0x0909090909090909});
              }).ok());
  EXPECT_EQ(trouble.get_future().get().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(Eventually([&] { return link.health().code() == StatusCode::kDataLoss; }));
}

TEST(FrameSender, APeerThatReadsNothingIsGivenUp) {
  Sockets sockets;
  FrameSender sender(sockets.front.get(), {.max_buffered_bytes = 1 << 20, .deadline = 100ms});
  const std::vector<int32_t> much(1 << 16);
  Status status;
  const auto fill = [&](ByteWriter* w) { w->Put(much); };
  for (int i = 0; i < 100 && status.ok(); ++i) status = sender.Push(FrameType::kStep, fill);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_TRUE(Eventually([&] { return !sender.Flush(SteadyClock::now()); }));
}

TEST(FrameSender, ASlowReaderGetsAllInOrder) {
  Sockets sockets;
  FrameSender sender(sockets.front.get(), {.max_buffered_bytes = 1 << 20, .deadline = 20000ms});
  std::thread pusher([&] {
    for (uint32_t i = 0; i < 3000; ++i) {
      const Status pushed = sender.Push(
          FrameType::kStep, [i](ByteWriter* w) { w->Put(std::vector<uint32_t>(1 + i % 2000, i)); });
      EXPECT_TRUE(pushed.ok()) << pushed.ToString();
    }
  });
  FrameReader reader(sockets.rank.get());
  for (uint32_t i = 0; i < 3000; ++i) {
    const auto frame = reader.Read(TestDeadline());
    ASSERT_TRUE(frame.ok());
    ByteReader values(frame->payload);
    ASSERT_EQ(values.GetArray<uint32_t>(), std::vector<uint32_t>(1 + i % 2000, i));
  }
  pusher.join();
}

}  // namespace
}  // namespace cleave

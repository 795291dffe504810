#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "engine/fake_executor.h"

namespace cleave {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;
constexpr auto kDeadline = 60s;

// Collects what the sink delivers; every wait has a deadline.
class Collector {
 public:
  void Take(std::vector<SequenceOutput>&& outputs) {
    std::lock_guard<std::mutex> lock(mu_);
    for (const SequenceOutput& o : outputs) {
      One& one = all_[o.id];
      if (one.last.finish != FinishReason::kNone) ++after_end_;
      one.tokens += o.tokens.size();
      one.last = o;
      if (o.finish != FinishReason::kNone) ++ended_;
    }
    changed_.notify_all();
  }
  // The end of sequence `id`.
  SequenceOutput End(SequenceId id) {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait_for(lock, kDeadline, [&] { return all_[id].last.finish != FinishReason::kNone; });
    return all_[id].last;
  }
  bool WaitForTokens(SequenceId id, size_t tokens) {
    std::unique_lock<std::mutex> lock(mu_);
    return changed_.wait_for(lock, kDeadline, [&] { return all_[id].tokens >= tokens; });
  }
  bool WaitForEnds(size_t ends) {
    std::unique_lock<std::mutex> lock(mu_);
    return changed_.wait_for(lock, kDeadline, [&] { return ended_ >= ends; });
  }
  std::map<FinishReason, size_t> Reasons() {
    std::lock_guard<std::mutex> lock(mu_);
    std::map<FinishReason, size_t> reasons;
    for (const auto& [id, one] : all_) ++reasons[one.last.finish];
    return reasons;
  }
  size_t ended() {
    std::lock_guard<std::mutex> lock(mu_);
    return ended_;
  }
  size_t after_end() {
    std::lock_guard<std::mutex> lock(mu_);
    return after_end_;
  }

 private:
  struct One {
    size_t tokens = 0;
    SequenceOutput last;
  };
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<SequenceId, One> all_;
  size_t ended_ = 0;
  size_t after_end_ = 0;
};

// Holds the engine before a forward pass until opened.
class Gate {
 public:
  Status Pass() {
    std::unique_lock<std::mutex> lock(mu_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait_for(lock, kDeadline, [this] { return open_; });
    return OkStatus();
  }
  void WaitForArrival() {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait_for(lock, kDeadline, [this] { return arrived_ > 0; });
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mu_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  int arrived_ = 0;
  bool open_ = false;
};

EngineConfig Config() {
  EngineConfig config;
  config.max_model_len = 4000;
  config.max_num_seqs = 16;
  config.block_size = 4;
  config.num_blocks = 1000;
  config.eos_token_ids = {0};
  return config;
}

std::unique_ptr<Engine> MakeEngine(const EngineConfig& config, Collector* collector,
                                   std::function<Status()> before_forward = nullptr,
                                   EngineObserver* observer = nullptr) {
  FakeExecutorOptions options;
  options.num_blocks = config.num_blocks;
  options.teams = config.teams;
  options.kv_partitions = config.kv_partitions;
  options.block_size = config.block_size;
  options.before_forward = std::move(before_forward);
  return std::make_unique<Engine>(
      config, std::make_unique<FakeExecutor>(options),
      [collector](std::vector<SequenceOutput>&& outputs) { collector->Take(std::move(outputs)); },
      observer);
}

bool WaitUntil(const std::function<bool()>& condition) {
  const TimePoint deadline = SteadyClock::now() + kDeadline;
  while (!condition()) {
    if (SteadyClock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(Engine, RunsARequestToItsEnd) {
  Collector c;
  const auto engine = MakeEngine(Config(), &c);
  ASSERT_TRUE(engine->Submit({FakeSequence(1, 10, 7), FakeSequence(2, 3, 9)}).ok());
  EXPECT_EQ(c.End(1).finish, FinishReason::kLength);
  EXPECT_EQ(c.End(2).finish, FinishReason::kLength);
  EXPECT_TRUE(WaitUntil([&] { return engine->Idle(); }));
  const EngineStats s = engine->stats();
  EXPECT_EQ(s.running + s.waiting + s.used_blocks, 0U);
  EXPECT_EQ(s.generation_tokens, 16U);
  EXPECT_EQ(s.prompt_tokens, 13U);
  EXPECT_EQ(s.num_blocks, 1000U);
  EXPECT_GE(s.steps, 9U);
  EXPECT_TRUE(engine->health().ok());
}

TEST(Engine, WhatNeverFitsIsRefusedAtOnceAllOrNothing) {
  Collector c;
  EngineConfig config = Config();
  config.num_blocks = 20;
  const auto engine = MakeEngine(config, &c);
  const Status status = engine->Submit({FakeSequence(1, 4, 4), FakeSequence(2, 70, 12)});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("need 21 KV blocks of 4 tokens, the pool has 20"));
  EXPECT_TRUE(engine->Idle());
  ASSERT_TRUE(engine->Submit({FakeSequence(3, 70, 11)}).ok());
  EXPECT_EQ(c.End(3).finish, FinishReason::kLength);
  EXPECT_EQ(c.ended(), 1U);
}

TEST(Engine, AbortEndsWithinAStepAndFreesBlocks) {
  Collector c;
  const auto engine = MakeEngine(Config(), &c);
  ASSERT_TRUE(engine->Submit({FakeSequence(1, 10, 3000)}).ok());
  ASSERT_TRUE(c.WaitForTokens(1, 3));
  engine->Abort(1);
  EXPECT_EQ(c.End(1).finish, FinishReason::kAbort);
  EXPECT_TRUE(WaitUntil([&] { return engine->Idle(); }));
  EXPECT_EQ(engine->stats().used_blocks, 0U);
  engine->Abort(1);
  engine->Abort(77);
  ASSERT_TRUE(engine->Submit({FakeSequence(2, 10, 3)}).ok());
  EXPECT_EQ(c.End(2).finish, FinishReason::kLength);
}

TEST(Engine, TheQueueIsBounded) {
  Collector c;
  Gate gate;
  EngineConfig config = Config();
  config.max_num_seqs = 1;
  config.max_num_queued_reqs = 3;
  config.max_num_queued_tokens = 100;
  const auto engine = MakeEngine(config, &c, [&] { return gate.Pass(); });
  ASSERT_TRUE(engine->Submit({FakeSequence(1, 10, 5)}).ok());
  gate.WaitForArrival();
  // The first runs now, but the levels are those of the last step: it may still count.
  ASSERT_TRUE(engine->Submit({FakeSequence(2, 60, 5)}).ok());
  const Status tokens = engine->Submit({FakeSequence(3, 60, 5)});
  EXPECT_EQ(tokens.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(tokens.message(), HasSubstr("--max-num-queued-tokens"));
  const Status reqs =
      engine->Submit({FakeSequence(4, 1, 5), FakeSequence(5, 1, 5), FakeSequence(6, 1, 5)});
  EXPECT_EQ(reqs.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(reqs.message(), HasSubstr("--max-num-queued-reqs"));
  EXPECT_GE(engine->stats().waiting, 1U);
  EXPECT_GE(engine->stats().waiting_tokens, 60U);
  gate.Open();
  EXPECT_TRUE(c.WaitForEnds(2));
  EXPECT_TRUE(WaitUntil([&] { return engine->Idle(); }));
  ASSERT_TRUE(engine->Submit({FakeSequence(7, 2000, 1)}).ok())
      << "an empty queue takes any request";
  EXPECT_EQ(c.End(7).finish, FinishReason::kLength);
  EXPECT_TRUE(WaitUntil([&] { return engine->Idle(); }));
  ASSERT_TRUE(engine
                  ->Submit({FakeSequence(8, 1, 1), FakeSequence(9, 1, 1), FakeSequence(10, 1, 1),
                            FakeSequence(11, 1, 1)})
                  .ok());
  EXPECT_TRUE(c.WaitForEnds(7));
}

TEST(Engine, DrainRefusesNewWorkAndFinishesTheOld) {
  Collector c;
  Gate gate;
  const auto engine = MakeEngine(Config(), &c, [&] { return gate.Pass(); });
  ASSERT_TRUE(engine->Submit({FakeSequence(1, 10, 50)}).ok());
  engine->StartDrain();
  engine->StartDrain();
  const Status status = engine->Submit({FakeSequence(2, 1, 1)});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("draining"));
  EXPECT_FALSE(engine->Idle());
  gate.Open();
  EXPECT_EQ(c.End(1).finish, FinishReason::kLength);
  EXPECT_TRUE(WaitUntil([&] { return engine->Idle(); }));
}

TEST(Engine, FailAllEndsWhatWasThereAndNothingLater) {
  Collector c;
  Gate gate;
  const auto engine = MakeEngine(Config(), &c, [&] { return gate.Pass(); });
  ASSERT_TRUE(engine->Submit({FakeSequence(1, 10, 3000)}).ok());
  gate.WaitForArrival();
  ASSERT_TRUE(engine->Submit({FakeSequence(2, 10, 3000)}).ok());
  engine->FailAll(Unavailable("shutdown took longer than 30 s"));
  ASSERT_TRUE(engine->Submit({FakeSequence(3, 10, 5)}).ok());
  gate.Open();
  for (const SequenceId id : {1, 2}) {
    const SequenceOutput end = c.End(id);
    EXPECT_EQ(end.finish, FinishReason::kError);
    EXPECT_EQ(end.error.message(), "shutdown took longer than 30 s");
  }
  EXPECT_EQ(c.End(3).finish, FinishReason::kLength);
  EXPECT_TRUE(engine->health().ok());
}

TEST(Engine, ALostExecutorEndsEverythingAndIsSaid) {
  Collector c;
  std::atomic<int> steps{0};
  const auto engine = MakeEngine(Config(), &c, [&] {
    return ++steps > 5 ? DeadlineExceeded("rank 1 did not answer on axis tp") : OkStatus();
  });
  ASSERT_TRUE(engine->Submit({FakeSequence(1, 10, 3000), FakeSequence(2, 10, 3000)}).ok());
  for (const SequenceId id : {1, 2}) {
    const SequenceOutput end = c.End(id);
    EXPECT_EQ(end.finish, FinishReason::kError);
    EXPECT_EQ(end.error.code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(engine->health().code(), StatusCode::kDeadlineExceeded);
  const Status status = engine->Submit({FakeSequence(3, 1, 1)});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 did not answer"));
  EXPECT_TRUE(WaitUntil([&] { return engine->Idle(); }));
  EXPECT_EQ(engine->stats().used_blocks, 0U);
}

TEST(Engine, DestructionEndsEverySequence) {
  Collector c;
  auto engine = MakeEngine(Config(), &c);
  for (SequenceId id = 1; id <= 40; ++id)
    ASSERT_TRUE(engine->Submit({FakeSequence(id, 10, 3000)}).ok());
  engine.reset();
  EXPECT_EQ(c.ended(), 40U);
  EXPECT_EQ(c.Reasons()[FinishReason::kAbort], 40U);
}

TEST(Engine, AnIdleEngineBurnsNoProcessor) {
  Collector c;
  const auto engine = MakeEngine(Config(), &c);
  ASSERT_TRUE(engine->Submit({FakeSequence(1, 10, 3)}).ok());
  c.End(1);
  ASSERT_TRUE(WaitUntil([&] { return engine->Idle(); }));
  const std::clock_t before = std::clock();
  std::mutex mu;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock(mu);
  never.wait_for(lock, 200ms, [] { return false; });
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 20);
}

class Counts final : public EngineObserver {
 public:
  void OnStep(uint32_t batch_tokens) override { tokens += batch_tokens; }
  void OnFirstToken(double s) override { first += s >= 0 ? 1 : 1000; }
  void OnNextToken(double s) override { next += s >= 0 ? 1 : 1000; }
  void OnPreempted(SequenceId, uint32_t) override { ++preempted; }
  void OnFinished(const Finished& f) override {
    ++finished;
    output_tokens += f.output_tokens;
    if (f.queue_s < 0 || f.prefill_s < 0 || f.decode_s < 0) ++negative;
    if (f.e2e_s < f.decode_s + f.prefill_s) ++negative;
  }
  std::atomic<uint64_t> tokens{0}, first{0}, next{0}, preempted{0}, finished{0}, output_tokens{0},
      negative{0};
};

TEST(Engine, AThousandRequestsFromManyThreadsEachEndOnce) {
  Collector c;
  Counts counts;
  EngineConfig config = Config();
  config.num_blocks = 60;
  config.max_num_batched_tokens = 64;
  config.max_num_queued_reqs = 2000;
  const auto engine = MakeEngine(config, &c, nullptr, &counts);
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kEach = 250;
  std::vector<std::thread> clients;
  for (uint64_t t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      RngStream random(t);
      for (uint64_t i = 0; i < kEach; ++i) {
        const SequenceId id = t * kEach + i + 1;
        SequenceSpec spec =
            FakeSequence(id, 1 + random.Below(80), static_cast<uint32_t>(1 + random.Below(60)));
        if (random.Below(5) == 0) spec.sampling.prompt_logprobs = 2;
        ASSERT_TRUE(engine->Submit({std::move(spec)}).ok());
        if (random.Below(3) == 0) engine->Abort(1 + random.Below(id));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(c.WaitForEnds(kThreads * kEach));
  EXPECT_TRUE(WaitUntil([&] { return engine->Idle(); }));
  EXPECT_EQ(c.ended(), kThreads * kEach);
  EXPECT_EQ(c.after_end(), 0U);
  const auto reasons = c.Reasons();
  EXPECT_EQ(reasons.count(FinishReason::kError), 0U);
  EXPECT_GT(reasons.at(FinishReason::kLength), 500U);
  const EngineStats s = engine->stats();
  EXPECT_EQ(s.running + s.waiting + s.used_blocks, 0U);
  EXPECT_EQ(s.waiting_tokens, 0U);
  EXPECT_TRUE(engine->health().ok()) << engine->health().ToString();
  EXPECT_EQ(counts.finished, kThreads * kEach);
  EXPECT_EQ(counts.first + counts.next, s.generation_tokens);
  EXPECT_EQ(counts.output_tokens, s.generation_tokens);
  EXPECT_EQ(counts.preempted, s.preemptions);
  EXPECT_EQ(counts.negative, 0U);
}

// vLLM's head-of-line blocking: one request that needs most of the pool, many small ones.
TEST(Engine, AHeavyRequestNeitherBlocksSmallOnesNorStarves) {
  Collector c;
  EngineConfig config = Config();
  config.num_blocks = 100;
  const auto engine = MakeEngine(config, &c);
  ASSERT_TRUE(engine->Submit({FakeSequence(1, 100, 250)}).ok());
  ASSERT_TRUE(c.WaitForTokens(1, 1));
  ASSERT_TRUE(engine->Submit({FakeSequence(2, 360, 8)}).ok());  // 90 of 100 blocks
  for (SequenceId id = 3; id <= 102; ++id)
    ASSERT_TRUE(engine->Submit({FakeSequence(id, 6, 4)}).ok());
  EXPECT_TRUE(c.WaitForEnds(102));
  EXPECT_EQ(c.Reasons()[FinishReason::kLength], 102U);
}

}  // namespace
}  // namespace cleave

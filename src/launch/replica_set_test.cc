#include "launch/replica_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "launch/testing/collector.h"
#include "launch/testing/fake_orders.h"

namespace cleave {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using testing::Collector;
using testing::Eventually;
using testing::FakeOptions;
using testing::FakeOrders;
using testing::TestDeadline;

class Serving {
 public:
  Serving(const std::string& words, uint32_t dp, uint32_t ranks = 1)
      : set(Orders(words, dp, ranks), FakeOptions(CLEAVE_LAUNCH_WORKER), seen.sink(), {}) {}
  static std::vector<std::vector<WorkerSpec>> Orders(const std::string& words, uint32_t dp,
                                                     uint32_t ranks) {
    std::vector<std::vector<WorkerSpec>> orders;
    for (uint32_t i = 0; i < dp; ++i) orders.push_back(FakeOrders(words, ranks, i));
    return orders;
  }
  void Start() {
    const Status ready = set.Start(nullptr, TestDeadline());
    ASSERT_TRUE(ready.ok()) << ready.ToString();
  }
  Status SubmitTo(int32_t replica, SequenceId id, uint32_t max_tokens = 3900) {
    SequenceSpec spec = FakeSequence(id, 10, max_tokens);
    spec.replica = replica;
    return set.Submit({spec});
  }
  Collector seen;
  ReplicaSet set;
};

TEST(ReplicaSet, SpreadsStreamsAndKeepsThemApart) {
  Serving s("step-ms=1", 2);
  s.Start();
  for (SequenceId id = 1; id <= 16; ++id) {
    ASSERT_TRUE(s.set.Submit({FakeSequence(id, 20, 300)}).ok());
  }
  EXPECT_GT(s.set.replica(0).link()->open_tokens(), 0U);
  EXPECT_GT(s.set.replica(1).link()->open_tokens(), 0U);
  for (SequenceId id = 1; id <= 16; ++id) {
    EXPECT_EQ(s.seen.End(id).finish, FinishReason::kLength);
    EXPECT_EQ(s.seen.End(id).tokens.size(), 300U);
  }
  EXPECT_TRUE(Eventually([&] { return s.set.stats().generation_tokens == 16U * 300U; }));
  EXPECT_EQ(s.set.stats().num_blocks, 2000U);
  EXPECT_GT(s.set.replica(0).stats().generation_tokens, 1500U);
  EXPECT_GT(s.set.replica(1).stats().generation_tokens, 1500U);
  // The same request on the other replica: the same answer.
  for (int32_t replica = 0; replica < 2; ++replica) {
    SequenceSpec spec = FakeSequence(1, 20, 300);
    spec.id = 100 + static_cast<SequenceId>(replica);
    spec.replica = replica;
    ASSERT_TRUE(s.set.Submit({spec}).ok());
    EXPECT_EQ(s.seen.End(spec.id).tokens, s.seen.End(1).tokens);
  }
}

TEST(ReplicaSet, APinIsKeptOrRefused) {
  Serving s("", 2);
  s.Start();
  for (SequenceId id = 1; id <= 5; ++id) ASSERT_TRUE(s.SubmitTo(1, id, 10).ok());
  for (SequenceId id = 1; id <= 5; ++id) EXPECT_EQ(s.seen.End(id).finish, FinishReason::kLength);
  EXPECT_TRUE(Eventually([&] { return s.set.replica(1).stats().generation_tokens == 50; }));
  EXPECT_EQ(s.set.replica(0).stats().generation_tokens, 0U);
  EXPECT_EQ(s.SubmitTo(2, 9).ToString(),
            "invalid_argument: data-parallel rank 2: there are 2, counted from 0");
}

TEST(ReplicaSet, ADeathIsItsOwnStreamsOnlyAndItComesBack) {
  Serving s("step-ms=1", 2, 2);
  s.Start();
  for (SequenceId id = 1; id <= 4; ++id) ASSERT_TRUE(s.SubmitTo(0, id).ok());
  for (SequenceId id = 11; id <= 14; ++id) ASSERT_TRUE(s.SubmitTo(1, id).ok());
  for (SequenceId id = 1; id <= 4; ++id) ASSERT_TRUE(s.seen.WaitForTokens(id, 2));
  const uint64_t before = s.set.stats().steps;
  ::kill(s.set.replica(0).pids()[1], SIGKILL);
  for (SequenceId id = 1; id <= 4; ++id) {
    EXPECT_EQ(s.seen.End(id).finish, FinishReason::kError);
    EXPECT_THAT(s.seen.End(id).error.message(), HasSubstr("rank 1"));
  }
  EXPECT_TRUE(s.set.health().ok());
  // Meanwhile the other takes what comes, and goes on with what it had.
  for (SequenceId id = 21; id <= 24; ++id) {
    ASSERT_TRUE(s.set.Submit({FakeSequence(id, 10, 20)}).ok());
    EXPECT_EQ(s.seen.End(id).finish, FinishReason::kLength);
  }
  const size_t tokens = s.seen.Now(11).tokens.size();
  EXPECT_TRUE(s.seen.WaitForTokens(11, tokens + 10));
  // It comes back with an empty cache and serves.
  ASSERT_TRUE(Eventually([&] { return s.set.replica(0).link() != nullptr; }));
  EXPECT_EQ(s.set.replica(0).epoch(), 2U);
  ASSERT_TRUE(s.SubmitTo(0, 31, 10).ok());
  EXPECT_EQ(s.seen.End(31).finish, FinishReason::kLength);
  EXPECT_GE(s.set.stats().steps, before);
  for (SequenceId id = 11; id <= 14; ++id) s.set.Abort(id);
  for (SequenceId id = 11; id <= 14; ++id) EXPECT_EQ(s.seen.End(id).finish, FinishReason::kAbort);
  EXPECT_EQ(s.seen.after_end(), 0);
}

TEST(ReplicaSet, TheBillOfADeadReplicaStandsAndRestartsAddUp) {
  Serving s("step-ms=1", 2, 2);
  s.Start();
  ASSERT_TRUE(s.SubmitTo(0, 1).ok());
  ASSERT_TRUE(s.SubmitTo(1, 2, 5).ok());
  ASSERT_TRUE(s.seen.WaitForTokens(1, 20));
  EXPECT_EQ(s.seen.End(2).finish, FinishReason::kLength);
  const auto steps_of = [](const Bill& bill, size_t index) {
    EXPECT_TRUE(bill.ranks[index].exact());
    return bill.ranks[index].of(Axis::kTp, CommOp::kAllGather).calls;
  };
  const Bill before = s.set.bill();
  ASSERT_EQ(before.ranks.size(), 4U);
  EXPECT_GE(steps_of(before, 0), 19U);
  EXPECT_GE(steps_of(before, 1), 18U) << "the bill of a step is written after it";
  EXPECT_GE(steps_of(before, 2), 4U);

  ::kill(s.set.replica(0).pids()[1], SIGKILL);
  EXPECT_EQ(s.seen.End(1).finish, FinishReason::kError);
  const Bill dead = s.set.bill();
  for (const size_t i : {0U, 1U}) EXPECT_GE(steps_of(dead, i), steps_of(before, i));
  ASSERT_TRUE(Eventually([&] { return s.set.replica(0).link() != nullptr; }));
  ASSERT_TRUE(s.SubmitTo(0, 3, 30).ok());
  EXPECT_EQ(s.seen.End(3).finish, FinishReason::kLength);
  s.set.Stop();
  const Bill after = s.set.bill();
  for (const size_t i : {0U, 1U}) EXPECT_GE(steps_of(after, i), steps_of(dead, i) + 29U);
  EXPECT_EQ(s.set.bill().Total(), after.Total()) << "the dead are counted once";
}

TEST(ReplicaSet, AloneItsDeathIsTheServers) {
  Serving s("step-ms=1", 1, 2);
  s.Start();
  ASSERT_TRUE(s.set.Submit({FakeSequence(1, 10, 3000)}).ok());
  ASSERT_TRUE(s.seen.WaitForTokens(1, 2));
  ::kill(s.set.replica(0).pids()[0], SIGKILL);
  EXPECT_EQ(s.seen.End(1).finish, FinishReason::kError);
  EXPECT_TRUE(Eventually([&] { return !s.set.health().ok(); }));
  EXPECT_THAT(s.set.health().message(), HasSubstr("replica 0 died"));
  EXPECT_THAT(s.set.death().message(), HasSubstr("replica 0 died"));
  EXPECT_EQ(s.set.Submit({FakeSequence(2, 10, 30)}).code(), StatusCode::kUnavailable);
}

TEST(ReplicaSet, AllDeadTheyComeBack) {
  Serving s("step-ms=1", 2);
  s.Start();
  for (const size_t i : {0U, 1U}) ::kill(s.set.replica(i).pids()[0], SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !s.set.health().ok(); }));
  EXPECT_TRUE(s.set.death().ok());
  EXPECT_TRUE(Eventually([&] { return s.set.replica(0).link() && s.set.replica(1).link(); }));
  ASSERT_TRUE(s.SubmitTo(1, 1, 10).ok());
  EXPECT_EQ(s.seen.End(1).finish, FinishReason::kLength);
}

TEST(ReplicaSet, DrainsAndFailsAll) {
  Serving s("step-ms=1", 2);
  s.Start();
  for (SequenceId id = 1; id <= 4; ++id)
    ASSERT_TRUE(s.set.Submit({FakeSequence(id, 10, 3000)}).ok());
  s.set.StartDrain();
  EXPECT_EQ(s.set.Submit({FakeSequence(9, 10, 3000)}).code(), StatusCode::kUnavailable);
  s.set.FailAll(Unavailable("shutting down"));
  for (SequenceId id = 1; id <= 4; ++id) {
    EXPECT_EQ(s.seen.End(id).error.message(), "shutting down");
  }
  s.set.Stop();
}

TEST(ReplicaSet, AFailedStartSaysWhy) {
  Serving s("load-ms=50 fail-load=1", 2, 2);
  double last = 0;
  const Status status = s.set.Start([&](double share) { last = share; }, TestDeadline());
  EXPECT_THAT(status.ToString(), HasSubstr("rank 1: its weights are nowhere"));
  EXPECT_GT(last, 0);
}

TEST(ReplicaSet, AFullReplicaPassesARequestOn) {
  auto orders = Serving::Orders("step-ms=20", 2, 1);
  for (auto& ranks : orders) ranks[0].engine.max_num_queued_reqs = 4;
  Collector seen;
  ReplicaSet set(std::move(orders), FakeOptions(CLEAVE_LAUNCH_WORKER), seen.sink(), {});
  ASSERT_TRUE(set.Start(nullptr, TestDeadline()).ok());
  // Replica 1 has the larger load in tokens, replica 0 no room for four more sequences.
  SequenceSpec large = FakeSequence(1, 3000, 900);
  large.replica = 1;
  ASSERT_TRUE(set.Submit({large}).ok());
  ASSERT_TRUE(seen.WaitForTokens(1, 1));
  const auto four = [](SequenceId first) {
    std::vector<SequenceSpec> specs;
    for (SequenceId i = 0; i < 4; ++i) specs.push_back(FakeSequence(first + i, 1, 3000));
    return specs;
  };
  for (SequenceId first = 100; first < 116; first += 4) {
    ASSERT_TRUE(set.Submit(four(first)).ok());
    ASSERT_TRUE(seen.WaitForTokens(first + 3, 1));  // it runs: 16 may
  }
  ASSERT_TRUE(set.Submit(four(200)).ok());  // these wait
  ASSERT_TRUE(set.Submit(four(300)).ok());
  EXPECT_TRUE(seen.WaitForTokens(300, 1));
  std::vector<SequenceSpec> pinned = four(400);
  for (SequenceSpec& spec : pinned) spec.replica = 0;
  EXPECT_EQ(set.Submit(pinned).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cleave

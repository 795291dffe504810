// What members see when one of them does not do its part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "comm/comm_test_support.h"
#include "comm/faulty_group.h"
#include "comm/loopback_group.h"

namespace cleave {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr uint32_t kDeadlineMs = 150;
constexpr uint64_t kMs = 1'000'000;

// One small collective.
Status Meet(Group* group) {
  const std::vector<uint64_t> sizes(group->size(), 4);
  const std::array<std::byte, 4> mine{};
  Bytes out(4 * size_t{group->size()});
  return group->AllGather(mine, sizes, out.data());
}

void UntilEnded(const World& world) {
  while (!world.ended()) std::this_thread::yield();
}

uint32_t Count(const std::vector<Status>& statuses, StatusCode code) {
  return static_cast<uint32_t>(std::count_if(statuses.begin(), statuses.end(),
                                             [&](const Status& s) { return s.code() == code; }));
}

WorldOptions Impatient(uint32_t tp) {
  WorldOptions options = TpWorld(tp);
  options.deadline_ms = kDeadlineMs;
  return options;
}

TEST(Deadline, NamesTheRankThatIsSilent) {
  const std::vector<Status> statuses = RunWorld(Impatient(3), [](World* world) -> Status {
    Group* group = world->group(Axis::kTp);
    RETURN_IF_ERROR(Meet(group));
    if (world->rank() == 2) {
      UntilEnded(*world);  // computes without a beat
      return OkStatus();
    }
    Status status = Meet(group);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("tp all_gather, call 1: "), HasSubstr("no sign of life for 0."),
                      HasSubstr("rank 2 (pp 0, tp 2, cp 0) computes")));
    // For good.
    EXPECT_EQ(Meet(group).message(), status.message());
    EXPECT_FALSE(group->Send(2, {}).ok());
    return status;
  });
  EXPECT_GE(Count(statuses, StatusCode::kDeadlineExceeded), 1U);
  EXPECT_TRUE(statuses[2].ok());
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_FALSE(statuses[1].ok());
}

TEST(Deadline, OneThatBeatsIsOnlySlow) {
  const std::vector<Status> statuses = RunWorld(Impatient(3), [](World* world) -> Status {
    const uint64_t start = SteadyNanos();
    while (world->rank() == 2 && SteadyNanos() - start < 4 * kDeadlineMs * kMs) {
      world->Beat();
      std::this_thread::yield();
    }
    return Meet(world->group(Axis::kTp));
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(Deadline, AnIdlePeerHadThePlanToo) {
  const std::vector<Status> statuses = RunWorld(Impatient(2), [](World* world) -> Status {
    if (world->rank() == 0) return Meet(world->group(Axis::kTp));
    world->Enter(RankPhase::kIdle);
    UntilEnded(*world);
    return OkStatus();
  });
  EXPECT_EQ(statuses[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(statuses[0].message(), HasSubstr("rank 1 (pp 0, tp 1, cp 0) is idle"));
}

// Rank 3 waits for 2 over tp, 2 waits for 0 over pp.
WorldOptions TwoByTwo() {
  WorldOptions options = Impatient(2);
  options.split.pp = 2;
  return options;
}
Status RunChain(World* world, const std::function<void(World*)>& rank0) {
  std::array<std::byte, 8> bytes{};
  if (world->rank() == 0) {
    rank0(world);
    return world->group(Axis::kPp)->Send(1, bytes);
  }
  if (world->rank() == 1) return OkStatus();
  if (world->rank() == 2) RETURN_IF_ERROR(world->group(Axis::kPp)->Receive(0, bytes));
  return Meet(world->group(Axis::kTp));
}

TEST(Deadline, AChainIsChargedToItsEnd) {
  const std::vector<Status> statuses = RunWorld(
      TwoByTwo(), [](World* world) { return RunChain(world, [](World* w) { UntilEnded(*w); }); });
  for (const uint32_t rank : {2U, 3U}) {
    EXPECT_FALSE(statuses[rank].ok());
    EXPECT_THAT(statuses[rank].message(), HasSubstr("rank 0 (pp 0, tp 0, cp 0) computes"));
  }
  EXPECT_EQ(statuses[0].code(), StatusCode::kUnavailable);
}

TEST(Deadline, AChainWhoseEndBeatsIsOnlySlow) {
  const std::vector<Status> statuses = RunWorld(TwoByTwo(), [](World* world) {
    return RunChain(world, [](World* w) {
      const uint64_t start = SteadyNanos();
      while (SteadyNanos() - start < 4 * kDeadlineMs * kMs) {
        w->Beat();
        std::this_thread::yield();
      }
    });
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(Deadline, ASenderWithoutRoomWaitsNoLonger) {
  WorldOptions options = Impatient(2);
  options.channel_bytes = 4096;
  const std::vector<Status> statuses = RunWorld(options, [](World* world) -> Status {
    if (world->rank() == 0) return world->group(Axis::kTp)->Send(1, Bytes(100'000));
    UntilEnded(*world);
    return OkStatus();
  });
  EXPECT_EQ(statuses[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(statuses[0].message(), HasSubstr("tp send, call 0: "));
}

TEST(End, WakesEverybodyAtOnce) {
  WorldOptions options = TpWorld(4);
  const std::vector<Status> statuses = RunWorld(options, [](World* world) -> Status {
    if (world->rank() == 3) {
      // Until the others sleep: End has to wake them.
      const auto sleeps = [&](uint32_t r) { return world->waited_for_ns(r) > 0; };
      const uint64_t start = SteadyNanos();
      while (!sleeps(0) && SteadyNanos() - start < 50 * kMs) world->Beat();
      world->End("the operator said so");
      return OkStatus();
    }
    Status first = Meet(world->group(Axis::kTp));
    EXPECT_EQ(first.message(), "tp all_gather, call 0: the replica ended: the operator said so");
    // Another operation and another group fail too.
    EXPECT_FALSE(world->group(Axis::kTp)->Send(3, {}).ok());
    return first;
  });
  EXPECT_EQ(Count(statuses, StatusCode::kUnavailable), 3U);
}

TEST(End, OneWhoLeavesIsMissedAtOnce) {
  const uint64_t start = SteadyNanos();
  const std::vector<Status> statuses = RunWorld(TpWorld(3), [](World* world) -> Status {
    RETURN_IF_ERROR(Meet(world->group(Axis::kTp)));
    return world->rank() == 1 ? OkStatus() : Meet(world->group(Axis::kTp));
  });
  EXPECT_EQ(Count(statuses, StatusCode::kUnavailable), 2U);
  EXPECT_THAT(statuses[0].message(), HasSubstr("left early: rank 1"));
  EXPECT_LT(SteadyNanos() - start, 30'000 * kMs);
}

// A rank that was stopped through all of it finds the door closed.
TEST(End, ALateMemberChangesNothing) {
  WorldOptions options = Impatient(2);
  const std::vector<Status> statuses = RunWorld(options, [](World* world) -> Status {
    if (world->rank() == 1) UntilEnded(*world);
    return Meet(world->group(Axis::kTp));
  });
  EXPECT_EQ(statuses[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(statuses[1].code(), StatusCode::kUnavailable);
}

// Members that disagree: at least one says how, nobody takes damaged data.
void ExpectDisagreement(const std::function<Status(Group*)>& call) {
  const std::vector<Status> statuses =
      RunWorld(TpWorld(2), [&](World* world) { return call(world->group(Axis::kTp)); });
  EXPECT_FALSE(statuses[0].ok() && statuses[1].ok());
  EXPECT_GE(Count(statuses, StatusCode::kDataLoss), 1U)
      << statuses[0].ToString() << " / " << statuses[1].ToString();
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kDataLoss ||
                status.code() == StatusCode::kUnavailable)
        << status.ToString();
  }
}

Status Reduce(Group* group, uint32_t rows, uint32_t columns) {
  const TestRows mine = MakeRows(rows, columns, 0, 1, group->rank());
  std::vector<float> out(size_t{rows} * columns);
  return group->AllReduce(mine.View(), out.data(), columns);
}

TEST(Disagreement, IsFoundInEveryOperation) {
  ExpectDisagreement([](Group* g) { return Reduce(g, 4, g->rank() == 0 ? 8 : 16); });
  ExpectDisagreement([](Group* g) { return Reduce(g, g->rank() == 0 ? 200 : 201, 300); });
  ExpectDisagreement([](Group* g) { return g->rank() == 0 ? Meet(g) : Reduce(g, 1, 1); });
  ExpectDisagreement([](Group* g) {
    const std::vector<uint64_t> sizes = {4, g->rank() == 0 ? 4U : 5U};
    Bytes out(16);
    return g->AllGather(Bytes(sizes[g->rank()]), sizes, out.data());
  });
  ExpectDisagreement([](Group* g) {
    const std::vector<uint64_t> sizes = {8, 8};
    const std::vector<uint64_t> other = {8, 9};
    Bytes send(16);
    Bytes receive(32);
    return g->AllToAll(send.data(), sizes, receive.data(), g->rank() == 0 ? other : sizes);
  });
  ExpectDisagreement([](Group* g) {
    Bytes bytes(g->rank() == 0 ? 64 : 65);
    return g->rank() == 0 ? g->Send(1, bytes) : g->Receive(0, bytes);
  });
}

TEST(Disagreement, SaysWhoIsWhere) {
  const std::vector<Status> statuses = RunWorld(TpWorld(2), [](World* world) {
    return Reduce(world->group(Axis::kTp), 1, world->rank() == 0 ? 16 : 32);
  });
  for (const Status& status : statuses) {
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("tp all_reduce, call 0"), HasSubstr("members disagree"),
                      HasSubstr("of shape 100000010"), HasSubstr("of shape 100000020")));
  }
}

TEST(FaultyGroup, DelaysChangeNothingButTime) {
  const std::vector<ScriptStep> script = MakeScript(3, 40, 20'000, 17);
  const std::vector<Bytes> expected = ExpectedOf(3, script);
  const std::vector<Status> statuses = RunWorld(TpWorld(3), [&](World* world) -> Status {
    // Longer than a waiting rank spins and yields: the others sleep and are woken.
    FaultyGroup group(
        world->group(Axis::kTp),
        {.seed = world->rank() + 1U, .delay_percent = 40, .longest_delay_us = 3000}, [] {},
        [] { return false; });
    ASSIGN_OR_RETURN(const Bytes arrived, RunScript(&group, script));
    EXPECT_TRUE(arrived == expected[world->rank()]);
    EXPECT_EQ(MeteredOf(group.stats()),
              BillOf(script, 3, world->rank(), WorldOptions().one_shot_max_bytes));
    return OkStatus();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(FaultyGroup, OneThatNeverAnswersIsNamed) {
  for (const bool dies : {false, true}) {
    const std::vector<Status> statuses = RunWorld(Impatient(3), [&](World* world) -> Status {
      const bool bad = world->rank() == 1;
      const uint64_t at = bad ? 5 : FaultPlan::kNever;
      FaultyGroup group(
          world->group(Axis::kTp),
          {.drop_at = dies ? FaultPlan::kNever : at, .kill_at = dies ? at : FaultPlan::kNever},
          [&] { UntilEnded(*world); }, [&] { return world->ended(); });
      for (uint32_t call = 0; call < 5; ++call) RETURN_IF_ERROR(Meet(&group));
      Status status = Meet(&group);
      EXPECT_FALSE(status.ok());
      if (!bad) {
        EXPECT_THAT(status.message(), AllOf(HasSubstr("call 5"), HasSubstr("rank 1 (pp 0")));
      }
      return status;
    });
    EXPECT_EQ(Count(statuses, StatusCode::kOk), 0U);
  }
}

TEST(LoopbackGroup, FailsTheSameWays) {
  LoopbackHub hub({.size = 2, .deadline_ms = 50});
  const std::unique_ptr<Group> alone = hub.Member(0);
  EXPECT_EQ(Meet(alone.get()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Meet(alone.get()).code(), StatusCode::kUnavailable);
  LoopbackHub other({.size = 2});
  other.End("by hand");
  EXPECT_EQ(Meet(other.Member(1).get()).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cleave

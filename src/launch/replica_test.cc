#include "launch/replica.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "engine/fake_executor.h"
#include "launch/process.h"
#include "launch/testing/collector.h"
#include "launch/testing/fake_orders.h"

namespace cleave {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using testing::Collector;
using testing::Eventually;
using testing::FakeOptions;
using testing::FakeOrders;
using testing::TestDeadline;

constexpr uint32_t kRanks = 3;

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

// As /proc tells it: R, S, D, T, Z …; X when there is no such process.
char StateOf(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string stat = text.str();
  const size_t at = stat.rfind(')');
  return at == std::string::npos || at + 2 >= stat.size() ? 'X' : stat[at + 2];
}

// A zombie is gone too: in a container nobody may reap an orphan.
bool IsGone(int pid) { return StateOf(pid) == 'Z' || StateOf(pid) == 'X'; }

bool AllGone(const std::vector<int>& pids) { return std::ranges::all_of(pids, IsGone); }

class Running {
 public:
  explicit Running(const std::string& words,
                   ReplicaOptions options = FakeOptions(CLEAVE_LAUNCH_WORKER),
                   uint32_t ranks = kRanks)
      : replica(FakeOrders(words, ranks), std::move(options), {.sink = seen.sink()}) {
    replica.Start();
  }
  void Serve() {
    const Status ready = replica.WaitReady(TestDeadline());
    ASSERT_TRUE(ready.ok()) << ready.ToString();
    pids = replica.pids();
  }
  // Streams that run when it returns.
  void Stream(SequenceId first, SequenceId last) {
    const auto link = replica.link();
    for (SequenceId id = first; id <= last; ++id) {
      ASSERT_TRUE(link->Submit({FakeSequence(id, 10, 3900)}).ok());
    }
    for (SequenceId id = first; id <= last; ++id) ASSERT_TRUE(seen.WaitForTokens(id, 3));
  }
  Collector seen;
  Replica replica;
  std::vector<int> pids;
};

TEST(Replica, ServesAsAnEngineOfThisProcessDoes) {
  const size_t before = OpenDescriptors();
  {
    Collector local;
    FakeExecutorOptions executor;
    executor.num_blocks = 1000;
    Engine engine(FakeOrders("", 1)[0].engine, std::make_unique<FakeExecutor>(executor),
                  local.sink(), nullptr);
    Running r("");
    r.Serve();
    EXPECT_EQ(r.pids.size(), kRanks);
    for (SequenceId id = 1; id <= 4; ++id) {
      ASSERT_TRUE(engine.Submit({FakeSequence(id, 7 * id, 15)}).ok());
      ASSERT_TRUE(r.replica.link()->Submit({FakeSequence(id, 7 * id, 15)}).ok());
    }
    for (SequenceId id = 1; id <= 4; ++id) EXPECT_EQ(r.seen.End(id).tokens, local.End(id).tokens);
    EXPECT_TRUE(r.replica.health().ok());
    const TimePoint start = SteadyClock::now();
    r.replica.Stop();
    EXPECT_LT(SecondsBetween(start, SteadyClock::now()), 2.0);
    EXPECT_TRUE(AllGone(r.pids));
    EXPECT_EQ(r.seen.after_end(), 0);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Replica, AskedToEndWhatStillRunsEndsToo) {
  Running r("step-ms=1");
  r.Serve();
  r.Stream(1, 4);
  r.replica.Stop();
  for (SequenceId id = 1; id <= 4; ++id) {
    EXPECT_EQ(r.seen.Now(id).ends, 1);
    EXPECT_EQ(r.seen.Now(id).error.ToString(), "unavailable: the server has shut down");
  }
  EXPECT_TRUE(AllGone(r.pids));
}

TEST(Replica, AKillOfAnyRankEndsAllStreamsAndAllRanks) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    Running r("step-ms=1");
    r.Serve();
    r.Stream(1, 8);
    const TimePoint start = SteadyClock::now();
    ::kill(r.pids[rank], SIGKILL);
    for (SequenceId id = 1; id <= 8; ++id) {
      const Collector::One end = r.seen.End(id);
      EXPECT_EQ(end.finish, FinishReason::kError);
      EXPECT_EQ(end.ends, 1);
      // Another rank may have met the loss first, in its collective.
      EXPECT_THAT(end.error.message(), HasSubstr("rank " + std::to_string(rank)));
      EXPECT_LT(SecondsBetween(start, end.ended), 2.0);
    }
    EXPECT_TRUE(Eventually([&] { return AllGone(r.pids); }, 2000ms));
    EXPECT_TRUE(Eventually([&] { return !r.replica.health().ok(); }));
    EXPECT_THAT(r.replica.health().message(), HasSubstr("replica 0 died"));
    EXPECT_EQ(r.replica.link(), nullptr);
    EXPECT_EQ(r.seen.after_end(), 0);
  }
}

TEST(Replica, AStopOfAnyRankIsNamedWithWhatItMissed) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    Running r("step-ms=1");
    r.Serve();
    r.Stream(1, 4);
    const TimePoint start = SteadyClock::now();
    ::kill(r.pids[rank], SIGSTOP);
    for (SequenceId id = 1; id <= 4; ++id) {
      const Collector::One end = r.seen.End(id);
      EXPECT_EQ(end.finish, FinishReason::kError);
      EXPECT_THAT(end.error.message(),
                  HasSubstr("its rank " + std::to_string(rank) + " was stopped and did not go on"));
      if (rank != 0) {
        EXPECT_THAT(end.error.message(), HasSubstr("waits in tp all_gather, call"));
      }
      EXPECT_LT(SecondsBetween(start, end.ended), 5.0);
    }
    EXPECT_TRUE(Eventually([&] { return AllGone(r.pids); }, 2000ms));
  }
}

TEST(Replica, AShortStopIsForgiven) {
  Running r("step-ms=1");
  r.Serve();
  r.Stream(1, 1);
  ::kill(r.pids[1], SIGSTOP);
  EXPECT_TRUE(Eventually([&] { return StateOf(r.pids[1]) == 'T'; }));
  // Not well, but not dead.
  EXPECT_TRUE(Eventually([&] { return !r.replica.health().ok(); }));
  EXPECT_THAT(r.replica.health().message(), HasSubstr("its rank 1 is stopped"));
  EXPECT_TRUE(r.replica.death().ok());
  ::kill(r.pids[1], SIGCONT);
  const size_t tokens = r.seen.Now(1).tokens.size();
  EXPECT_TRUE(r.seen.WaitForTokens(1, tokens + 5));
  EXPECT_TRUE(Eventually([&] { return r.replica.health().ok(); }));
}

TEST(Replica, ASpinningRankIsFoundOut) {
  for (const uint32_t comm_deadline_ms : {300U, 60000U}) {  // by its peers, by the supervisor
    ReplicaOptions options = FakeOptions(CLEAVE_LAUNCH_WORKER);
    options.world.deadline_ms = comm_deadline_ms;
    options.watch.hang_deadline = 500ms;
    Running r("hang-step=1,5", options);
    r.Serve();
    ASSERT_TRUE(r.replica.link()->Submit({FakeSequence(1, 10, 3000)}).ok());
    const Collector::One end = r.seen.End(1);
    EXPECT_EQ(end.finish, FinishReason::kError);
    EXPECT_THAT(end.error.message(), HasSubstr("rank 1"));
    EXPECT_THAT(end.error.message(), HasSubstr("tp all_gather"));
    EXPECT_TRUE(Eventually([&] { return AllGone(r.pids); }, 2000ms));
  }
}

TEST(Replica, ALongStepThatBeatsIsNoHang) {
  ReplicaOptions options = FakeOptions(CLEAVE_LAUNCH_WORKER);
  options.world.deadline_ms = 300;
  options.watch.hang_deadline = 300ms;
  Running r("step-ms=700", options);
  r.Serve();
  ASSERT_TRUE(r.replica.link()->Submit({FakeSequence(1, 10, 2)}).ok());
  EXPECT_EQ(r.seen.End(1).finish, FinishReason::kLength);
}

TEST(Replica, AnErrorOfARankIsTheStreamsError) {
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Running r("break-step=" + std::to_string(rank) + ",6");
    r.Serve();
    ASSERT_TRUE(r.replica.link()->Submit({FakeSequence(1, 10, 3000)}).ok());
    EXPECT_EQ(r.seen.End(1).finish, FinishReason::kError);
    EXPECT_TRUE(Eventually([&] { return AllGone(r.pids); }, 2000ms));
    EXPECT_TRUE(Eventually([&] { return !r.replica.health().ok(); }));
  }
}

TEST(Replica, TellsHowFarASlowStartIs) {
  Running r("load-ms=600");
  EXPECT_FALSE(r.replica.WaitReady(SteadyClock::now()).ok());
  EXPECT_TRUE(r.replica.loading());
  EXPECT_TRUE(
      Eventually([&] { return r.replica.loaded_share() > 0.1 && r.replica.loaded_share() < 1; }));
  r.Serve();
  EXPECT_EQ(r.replica.loaded_share(), 1.0);
}

TEST(Replica, SaysWhyItCouldNotStart) {
  {
    Running r("fail-load=1");
    EXPECT_EQ(r.replica.WaitReady(TestDeadline()).ToString(),
              "not_found: replica 0 died: rank 1: its weights are nowhere");
  }
  {
    ReplicaOptions options = FakeOptions(CLEAVE_LAUNCH_WORKER);
    options.watch.start_deadline = 300ms;
    Running r("stuck-load=2", options);
    EXPECT_THAT(r.replica.WaitReady(TestDeadline()).message(),
                HasSubstr("its rank 2 did not get ready: no progress for 0.3 s"));
  }
  {
    Running r("", FakeOptions("/bin/false"));
    EXPECT_THAT(r.replica.WaitReady(TestDeadline()).message(), HasSubstr("ended with exit code 1"));
  }
  {
    Running r("", FakeOptions("/no/such/worker"));
    EXPECT_THAT(r.replica.WaitReady(TestDeadline()).message(),
                HasSubstr("/no/such/worker: No such"));
  }
}

TEST(Replica, StopsWhileItLoads) {
  Running r("stuck-load=1");
  ASSERT_TRUE(Eventually([&] { return r.replica.pids().size() == kRanks; }));
  const std::vector<int> pids = r.replica.pids();
  r.replica.Stop();
  EXPECT_TRUE(AllGone(pids));
}

TEST(Replica, TwentyRestartsLeaveNothingBehind) {
  ReplicaOptions options = FakeOptions(CLEAVE_LAUNCH_WORKER);
  options.watch.on_death = WatchOptions::OnDeath::kRestart;
  options.watch.backoff_most = 20ms;
  Running r("", options, 2);
  r.Serve();
  const size_t before = OpenDescriptors();
  SequenceId id = 1;
  for (uint64_t epoch = 1; epoch <= 20; ++epoch) {
    ASSERT_EQ(r.replica.epoch(), epoch);
    r.Stream(id, id);
    ::kill(r.replica.pids()[epoch % 2], SIGKILL);
    EXPECT_EQ(r.seen.End(id++).finish, FinishReason::kError);
    ASSERT_TRUE(Eventually([&] { return r.replica.epoch() == epoch + 1; }));
    r.Serve();
  }
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() == before; })) << OpenDescriptors();
  // Totals go on over all starts.
  EXPECT_GE(r.replica.stats().generation_tokens, 20U * 3U);
  EXPECT_EQ(r.replica.stats().num_blocks, 1000U);
}

// Dead and started again between two looks, as on a machine that stands still in between.
TEST(Replica, ARestThatIsOverAtOnceLeavesNothingBehind) {
  ReplicaOptions options = FakeOptions(CLEAVE_LAUNCH_WORKER);
  options.watch.on_death = WatchOptions::OnDeath::kRestart;
  options.watch.backoff_first = options.watch.backoff_most = 0ms;
  Running r("", options, 2);
  r.Serve();
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    ::kill(r.replica.pids()[1], SIGKILL);
    ASSERT_TRUE(Eventually([&] { return r.replica.epoch() == epoch + 1; }));
    r.Serve();
    EXPECT_EQ(r.replica.pids().size(), 2U);
  }
}

TEST(Replica, ADeadFrontLeavesNoOrphan) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const UniqueFd ours(fds[0]);
  UniqueFd theirs(fds[1]);
  auto front = ChildProcess::Spawn({.executable = CLEAVE_LAUNCH_WORKER,
                                    .arguments = {"launch_worker", "front", "step-ms=1"},
                                    .fds = {{.from = theirs.get(), .at = 7}}});
  ASSERT_TRUE(front.ok()) << front.status().ToString();
  theirs.Reset();
  std::string text;
  char buffer[256];
  while (text.find('\n') == std::string::npos) {
    const ssize_t got = ::read(ours.get(), buffer, sizeof(buffer));
    ASSERT_GT(got, 0);
    text.append(buffer, static_cast<size_t>(got));
  }
  std::istringstream words(text);
  std::vector<int> pids(2);
  std::string ready;
  words >> pids[0] >> pids[1] >> ready;
  ASSERT_EQ(ready, "ready") << text;
  EXPECT_FALSE(IsGone(pids[0]));
  ::kill(front->pid(), SIGKILL);  // it alone, not its group
  EXPECT_TRUE(Eventually([&] { return AllGone(pids); }, 2000ms));
}

}  // namespace
}  // namespace cleave

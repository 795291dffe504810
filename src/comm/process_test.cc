// Groups between processes. ThreadSanitizer cannot see across them, nor does it follow a fork.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "comm/comm_test_support.h"
#include "comm/faulty_group.h"

namespace cleave {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

#if defined(__SANITIZE_THREAD__)
constexpr bool kCanFork = false;
#else
constexpr bool kCanFork = true;
#endif

constexpr uint64_t kSecond = 1'000'000'000;

// One process a rank, joined through the descriptor it inherits; killed if still there at the end.
class Processes : public testing::Test {
 protected:
  void SetUp() override {
    if (!kCanFork) GTEST_SKIP() << "no processes under ThreadSanitizer";
  }
  ~Processes() override {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  void Start(const WorldOptions& options, const std::function<int(World*)>& fn) {
    Result<SharedMemory> memory = World::Allocate(options, SharedMemoryKind::kProcesses);
    ASSERT_TRUE(memory.ok()) << memory.status().ToString();
    memory_.emplace(std::move(*memory));
    Result<WorldBoard> board = WorldBoard::Open(*memory_, options.epoch);
    ASSERT_TRUE(board.ok());
    board_.emplace(std::move(*board));
    for (uint32_t rank = 0; rank < options.split.ranks_per_replica(); ++rank) {
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) _exit(RunChild(rank, options.epoch, fn));
      pids_.push_back(pid);
    }
  }

  int RunChild(uint32_t rank, uint64_t epoch, const std::function<int(World*)>& fn) {
    const Result<SharedMemory> memory = SharedMemory::Attach(memory_->fd());
    if (!memory.ok()) return 101;
    Result<World> world = World::Join(*memory, rank, epoch);
    if (!world.ok()) return 102;
    world->Enter(RankPhase::kComputing);
    return fn(&*world);
  }

  // The child's exit code, or minus the signal that ended it.
  int ExitOf(uint32_t rank) {
    int status = 0;
    waitpid(pids_[rank], &status, 0);
    pids_[rank] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::optional<SharedMemory> memory_;
  std::optional<WorldBoard> board_;
  std::vector<pid_t> pids_;
};

Status Meet(Group* group) {
  const std::vector<uint64_t> sizes(group->size(), 4);
  const std::array<std::byte, 4> mine{};
  Bytes out(4 * size_t{group->size()});
  return group->AllGather(mine, sizes, out.data());
}

// Meets until it fails; the exit code is the status's.
int MeetForEver(World* world) {
  while (true) {
    const Status status = Meet(world->group(Axis::kTp));
    if (!status.ok()) return static_cast<int>(status.code());
  }
}

constexpr int kCodeUnavailable = static_cast<int>(StatusCode::kUnavailable);
constexpr int kCodeDeadline = static_cast<int>(StatusCode::kDeadlineExceeded);

TEST_F(Processes, EqualLoopback) {
  for (const uint32_t size : {1U, 2U, 3U, 5U, 9U}) {
    WorldOptions options = TpWorld(size);
    options.one_shot_max_bytes = 3000;
    const std::vector<ScriptStep> script = MakeScript(size, 50, 60'000, 100 + size);
    const std::vector<Bytes> expected = ExpectedOf(size, script);
    Start(options, [&](World* world) {
      Group* group = world->group(Axis::kTp);
      const Result<Bytes> arrived = RunScript(group, script);
      if (!arrived.ok()) return 1;
      if (*arrived != expected[world->rank()]) return 2;
      return MeteredOf(group->stats()) == BillOf(script, size, world->rank(), 3000) ? 0 : 3;
    });
    for (uint32_t rank = 0; rank < size; ++rank) EXPECT_EQ(ExitOf(rank), 0) << rank;
    pids_.clear();
  }
}

TEST_F(Processes, AKilledOneIsMissedLongBeforeTheDeadline) {
  Start(TpWorld(3), [](World* world) {
    FaultyGroup group(
        world->group(Axis::kTp), {.kill_at = world->rank() == 1 ? 20 : FaultPlan::kNever},
        [] { raise(SIGKILL); }, [] { return false; });
    while (true) {
      const Status status = Meet(&group);
      if (!status.ok()) return static_cast<int>(status.code());
    }
  });
  const uint64_t start = SteadyNanos();
  EXPECT_EQ(ExitOf(0), kCodeUnavailable);
  EXPECT_EQ(ExitOf(2), kCodeUnavailable);
  EXPECT_LT(SteadyNanos() - start, 20 * kSecond);  // the deadline is 60 s
  EXPECT_EQ(ExitOf(1), -SIGKILL);
  EXPECT_THAT(board_->reason(), HasSubstr("its process died: rank 1 (pp 0, tp 1, cp 0)"));
  EXPECT_THAT(board_->reason(), HasSubstr("call 20"));
}

TEST_F(Processes, AStoppedOneIsNamedAndChangesNothingWhenItWakes) {
  WorldOptions options = TpWorld(3);
  options.deadline_ms = 200;
  Start(options, MeetForEver);
  while (board_->lines()[2].beat.load() < 10) sched_yield();
  kill(pids_[2], SIGSTOP);
  const int first = ExitOf(0);
  const int second = ExitOf(1);
  EXPECT_TRUE(first == kCodeDeadline || second == kCodeDeadline) << first << " " << second;
  EXPECT_TRUE(first == kCodeDeadline || first == kCodeUnavailable);
  EXPECT_TRUE(second == kCodeDeadline || second == kCodeUnavailable);
  EXPECT_THAT(board_->reason(), HasSubstr("rank 2 (pp 0, tp 2, cp 0)"));
  EXPECT_THAT(board_->reason(), HasSubstr("tp all_gather, call "));
  const std::string reason = board_->reason();
  kill(pids_[2], SIGCONT);
  EXPECT_EQ(ExitOf(2), kCodeUnavailable);
  EXPECT_EQ(board_->reason(), reason);
}

TEST_F(Processes, TheSupervisorEndsThem) {
  Start(TpWorld(3), [](World* world) {
    // Rank 0 computes for ever, beating; the others sleep in a wait for it.
    while (world->rank() == 0 && !world->ended()) world->Beat();
    return MeetForEver(world);
  });
  const auto waits = [&](uint32_t rank) {
    return board_->lines()[rank].phase.load() == static_cast<uint32_t>(RankPhase::kWaiting);
  };
  const auto beats = [&](uint32_t rank) { return board_->lines()[rank].beat.load(); };
  while (beats(0) == 0 || !waits(1) || !waits(2)) sched_yield();
  EXPECT_THAT(board_->Describe(1), HasSubstr("waits in tp all_gather, call 0, for rank 0"));
  board_->End("rank 0 of the front went away");
  for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ExitOf(rank), kCodeUnavailable);
}

TEST_F(Processes, AnotherEpochStaysOut) {
  WorldOptions options = TpWorld(2);
  options.epoch = 4;
  Result<SharedMemory> memory = World::Allocate(options, SharedMemoryKind::kProcesses);
  ASSERT_TRUE(memory.ok());
  memory_.emplace(std::move(*memory));
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) _exit(RunChild(0, 3, [](World*) { return 0; }));
  pids_.push_back(pid);
  EXPECT_EQ(ExitOf(0), 102);
}

}  // namespace
}  // namespace cleave

#include "launch/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <string>

#include "launch/frames.h"

namespace cleave {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

TimePoint In(std::chrono::milliseconds time) { return SteadyClock::now() + time; }

// A shell that runs `script` with descriptor 7 as our other end.
struct Shell {
  explicit Shell(const std::string& script) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    socket.Reset(fds[0]);
    const UniqueFd theirs(fds[1]);
    auto spawned = ChildProcess::Spawn({.executable = "/bin/sh",
                                        .arguments = {"sh", "-c", script},
                                        .fds = {{.from = theirs.get(), .at = 7}}});
    EXPECT_TRUE(spawned.ok()) << spawned.status().ToString();
    child.emplace(std::move(*spawned));
  }
  // Everything it wrote to 7, until it closes it.
  std::string Read() {
    std::string text;
    char buffer[4096];
    while (WaitFor(socket.get(), POLLIN, In(20s))) {
      const ssize_t got = ::read(socket.get(), buffer, sizeof(buffer));
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }
  // Waits for a change of state.
  ChildProcess::Change Next() {
    const TimePoint deadline = In(20s);
    ChildProcess::Change change = ChildProcess::Change::kNone;
    while (change == ChildProcess::Change::kNone && SteadyClock::now() < deadline) {
      change = child->Look();
    }
    return change;
  }
  UniqueFd socket;
  std::optional<ChildProcess> child;
};

TEST(Process, TellsExitCodesAndSignals) {
  Shell coded("exit 7");
  ASSERT_TRUE(coded.child->WaitExit(In(20s)));
  EXPECT_EQ(Describe(coded.child->exit()), "ended with exit code 7");
  EXPECT_FALSE(coded.child->exit().clean());
  Shell killed("kill -9 $$");
  ASSERT_TRUE(killed.child->WaitExit(In(20s)));
  EXPECT_EQ(Describe(killed.child->exit()), "was killed by signal 9 (Killed)");
}

TEST(Process, GetsItsDescriptorsAndNoOthers) {
  const UniqueFd null(::open("/dev/null", O_RDONLY));
  const UniqueFd leak(::fcntl(null.get(), F_DUPFD, 40));  // not close-on-exec
  ASSERT_GE(leak.get(), 40);
  Shell shell("for f in /proc/$$/fd/*; do echo x${f##*/}; done >&7; exec 7>&-");
  const std::string numbers = shell.Read();
  for (const char* own : {"x0\n", "x1\n", "x2\n", "x7\n"}) EXPECT_THAT(numbers, HasSubstr(own));
  // The shell itself holds one for the folder and one aside for the redirection.
  EXPECT_LE(std::ranges::count(numbers, 'x'), 6) << numbers;
  EXPECT_EQ(numbers.find("x" + std::to_string(leak.get())), std::string::npos) << numbers;
}

TEST(Process, PassedDescriptorsMaySwapNumbers) {
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  const UniqueFd a(fds[0]);
  const UniqueFd b(fds[1]);
  ASSERT_LT(std::max(fds[0], fds[1]), 64);
  // Each takes the other's number.
  auto child = ChildProcess::Spawn(
      {.executable = "/bin/sh",
       .arguments = {"sh", "-c",
                     "echo x >&" + std::to_string(fds[0]) + "; read y <&" + std::to_string(fds[1]) +
                         "; [ $y = x ]"},
       .fds = {{.from = fds[0], .at = fds[1]}, {.from = fds[1], .at = fds[0]}}});
  ASSERT_TRUE(child.ok()) << child.status().ToString();
  ASSERT_TRUE(child->WaitExit(In(20s)));
  EXPECT_TRUE(child->exit().clean()) << Describe(child->exit());
}

TEST(Process, IgnoresWhatATerminalOrAnOrchestratorSendsToAll) {
  Shell shell("for s in INT TERM HUP PIPE; do kill -$s $$; done; echo alive >&7; exit 0");
  EXPECT_EQ(shell.Read(), "alive\n");
}

TEST(Process, TellsStopsAndContinues) {
  Shell shell("read x <&7");
  ::kill(shell.child->pid(), SIGSTOP);
  EXPECT_EQ(shell.Next(), ChildProcess::Change::kStopped);
  EXPECT_EQ(shell.child->Look(), ChildProcess::Change::kNone);
  ::kill(shell.child->pid(), SIGCONT);
  EXPECT_EQ(shell.Next(), ChildProcess::Change::kContinued);
  ::kill(shell.child->pid(), SIGSTOP);
  EXPECT_EQ(shell.Next(), ChildProcess::Change::kStopped);
  shell.child->Kill();  // reaches a stopped one too
  EXPECT_EQ(shell.Next(), ChildProcess::Change::kExited);
}

TEST(Process, KillReachesGrandchildren) {
  Shell shell("sleep 1000 & echo ready >&7; wait");
  char word[6];
  ASSERT_TRUE(WaitFor(shell.socket.get(), POLLIN, In(20s)));
  ASSERT_EQ(::read(shell.socket.get(), word, sizeof(word)), 6);
  shell.child->Kill();
  EXPECT_TRUE(shell.child->WaitExit(In(20s)));
  EXPECT_EQ(shell.Read(), "");  // the last holder of 7 is gone
}

TEST(Process, ItsEndIsThatOfItsOwner) {
  UniqueFd socket;
  {
    Shell shell("sleep 1000");
    socket = std::move(shell.socket);
  }
  char byte = 0;
  ASSERT_TRUE(WaitFor(socket.get(), POLLIN, In(20s)));
  EXPECT_EQ(::read(socket.get(), &byte, 1), 0);
}

TEST(Process, SaysWhatCouldNotBeStarted) {
  const auto none = ChildProcess::Spawn({.executable = "/no/such/file", .arguments = {"x"}});
  EXPECT_EQ(none.status().ToString(),
            "unavailable: starting a worker process: /no/such/file: No such file or directory");
  EXPECT_THAT(ChildProcess::Spawn({.fds = {{.from = 1, .at = 2}}}).status().message(),
              HasSubstr("descriptor 1 can not be passed on as 2"));
}

TEST(Process, AWaitEndsAtItsDeadline) {
  Shell shell("sleep 1000");
  EXPECT_FALSE(shell.child->WaitExit(In(20ms)));
}

}  // namespace
}  // namespace cleave

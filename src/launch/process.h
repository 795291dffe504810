#pragma once
// ChildProcess: a worker process of this host, from its start to its last trace.
//
// A child leads a process group of its own, gets the descriptors it is given at fixed numbers and
// no others, reads /dev/null, ignores SIGINT, SIGTERM, SIGHUP and SIGPIPE (its parent is who ends
// it), and is killed by the kernel when the *thread* that called Spawn ends: that thread must
// outlive it.
// Owner: the replica's driver; one thread. Destroying it kills the group and reaps the child.
// Fails: Spawn with kUnavailable or kResourceExhausted, naming the call that failed.

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace cleave {

struct PassedFd {
  int from = -1;  // of the parent
  int at = -1;    // number in the child, > 2
};

struct SpawnOptions {
  std::string executable = "/proc/self/exe";
  std::vector<std::string> arguments = {};  // argv, with argv[0]
  std::vector<PassedFd> fds = {};
};

struct ExitInfo {
  enum class How { kCode, kSignal, kUnknown };
  How how = How::kUnknown;
  int value = 0;  // exit code or signal
  [[nodiscard]] bool clean() const { return how == How::kCode && value == 0; }
};
// "ended with exit code 3", "was killed by signal 9 (Killed)".
std::string Describe(const ExitInfo& exit);

class ChildProcess {
 public:
  enum class Change { kNone, kStopped, kContinued, kExited };

  static Result<ChildProcess> Spawn(const SpawnOptions& options);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Readable once the child has exited; -1 when the kernel has no such thing: then only Look tells.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  [[nodiscard]] bool exited() const { return exited_; }
  [[nodiscard]] const ExitInfo& exit() const { return exit_; }

  // What became of it since the last look, one change at a time; reaps it when it has exited.
  Change Look();
  // SIGKILL to its whole group; nothing once it was reaped.
  void Kill();
  // Whether it exited before the deadline.
  bool WaitExit(TimePoint deadline);

 private:
  ChildProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_ = -1;
  UniqueFd pidfd_;
  bool exited_ = false;
  ExitInfo exit_;
};

}  // namespace cleave

#include "launch/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "launch/frames.h"

namespace cleave {
namespace {

constexpr auto kReapDeadline = std::chrono::seconds(2);
constexpr int kMostPassed = 16;
constexpr int kIgnoredSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

// What the child needs between fork and exec, where nothing may be allocated.
struct Birth {
  const char* executable = nullptr;
  char* const* arguments = nullptr;
  const PassedFd* fds = nullptr;
  size_t fd_count = 0;
  int last_number = 2;  // the highest of the passed ones
  int error_pipe = -1;
  pid_t parent = -1;
};

[[noreturn]] void Stillborn(int error_pipe) {
  const int error = errno;
  const ssize_t ignored = ::write(error_pipe, &error, sizeof(error));
  (void)ignored;
  ::_exit(127);
}

bool PlaceFds(const Birth& birth, int* error_pipe) {
  // First out of the way of each other's numbers, then into place.
  const int above = birth.last_number + 1;
  *error_pipe = ::fcntl(birth.error_pipe, F_DUPFD_CLOEXEC, above);
  if (*error_pipe < 0) {
    *error_pipe = birth.error_pipe;
    return false;
  }
  int moved[kMostPassed];
  for (size_t i = 0; i < birth.fd_count; ++i) {
    moved[i] = ::fcntl(birth.fds[i].from, F_DUPFD_CLOEXEC, above);
    if (moved[i] < 0) return false;
  }
  for (int fd = 3; fd <= birth.last_number; ++fd) ::close(fd);
  for (size_t i = 0; i < birth.fd_count; ++i) {
    if (::dup2(moved[i], birth.fds[i].at) < 0) return false;
  }
  if (::syscall(SYS_close_range, above, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
    // Kernels before 5.11: by number, as far as any are likely to be.
    for (int fd = above; fd < 65536; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  return null >= 0 && ::dup2(null, STDIN_FILENO) == STDIN_FILENO;
}

// Only async-signal-safe calls: other threads of the parent may have held any lock.
[[noreturn]] void BecomeWorker(const Birth& birth) {
  int error_pipe = birth.error_pipe;
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) Stillborn(error_pipe);
  if (::getppid() != birth.parent) ::_exit(127);  // it died before the kernel was asked to watch
  for (const int signal : kIgnoredSignals) ::signal(signal, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (!PlaceFds(birth, &error_pipe)) Stillborn(error_pipe);
  ::execv(birth.executable, birth.arguments);
  Stillborn(error_pipe);
}

Status SpawnError(const char* call, int error) {
  const bool full = error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE;
  return {full ? StatusCode::kResourceExhausted : StatusCode::kUnavailable,
          fmt::format("starting a worker process: {}: {}", call, std::strerror(error))};
}

Status CheckFds(const std::vector<PassedFd>& fds) {
  if (fds.size() > kMostPassed) {
    return InvalidArgument(
        fmt::format("{} descriptors to pass on, {} fit", fds.size(), kMostPassed));
  }
  for (const PassedFd& fd : fds) {
    if (fd.from < 0 || fd.at < 3 || fd.at > 64) {
      return InvalidArgument(
          fmt::format("descriptor {} can not be passed on as {}", fd.from, fd.at));
    }
  }
  return OkStatus();
}

// 0 when the exec worked: the pipe then closes without a word.
int ReadBirthError(int pipe) {
  int error = 0;
  ssize_t got = -1;
  do {
    got = ::read(pipe, &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(error) ? error : 0;
}

}  // namespace

std::string Describe(const ExitInfo& exit) {
  switch (exit.how) {
    case ExitInfo::How::kCode:
      return fmt::format("ended with exit code {}", exit.value);
    case ExitInfo::How::kSignal:
      return fmt::format("was killed by signal {} ({})", exit.value, ::strsignal(exit.value));
    case ExitInfo::How::kUnknown:
      break;
  }
  return "is gone";
}

Result<ChildProcess> ChildProcess::Spawn(const SpawnOptions& options) {
  RETURN_IF_ERROR(CheckFds(options.fds));
  std::vector<char*> arguments;
  for (const std::string& a : options.arguments) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return SpawnError("pipe2", errno);
  const UniqueFd errors(ends[0]);
  UniqueFd child_errors(ends[1]);
  Birth birth{.executable = options.executable.c_str(),
              .arguments = arguments.data(),
              .fds = options.fds.data(),
              .fd_count = options.fds.size(),
              .error_pipe = child_errors.get(),
              .parent = ::getpid()};
  for (const PassedFd& fd : options.fds) birth.last_number = std::max(birth.last_number, fd.at);

  const pid_t pid = ::fork();
  if (pid < 0) return SpawnError("fork", errno);
  if (pid == 0) BecomeWorker(birth);
  child_errors.Reset();
  // Not yet reaped: the number still is this child's.
  ChildProcess child(pid, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))));
  const int error = ReadBirthError(errors.get());
  if (error != 0) return SpawnError(options.executable.c_str(), error);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      exited_(other.exited_),
      exit_(other.exit_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(exited_, other.exited_);
  std::swap(exit_, other.exit_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || exited_) return;
  Kill();
  // One that the kernel does not let go of stays a zombie until this process ends.
  WaitExit(SteadyClock::now() + kReapDeadline);
}

ChildProcess::Change ChildProcess::Look() {
  if (pid_ < 0 || exited_) return Change::kNone;
  siginfo_t info{};
  const int flags = WEXITED | WSTOPPED | WCONTINUED | WNOHANG;
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, flags) != 0) {
    if (errno != ECHILD) return Change::kNone;
    exited_ = true;  // somebody else reaped it
    return Change::kExited;
  }
  if (info.si_pid == 0) return Change::kNone;
  if (info.si_code == CLD_STOPPED || info.si_code == CLD_TRAPPED) return Change::kStopped;
  if (info.si_code == CLD_CONTINUED) return Change::kContinued;
  exited_ = true;
  exit_.how = info.si_code == CLD_EXITED ? ExitInfo::How::kCode : ExitInfo::How::kSignal;
  exit_.value = info.si_status;
  return Change::kExited;
}

void ChildProcess::Kill() {
  if (pid_ < 0 || exited_) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
}

bool ChildProcess::WaitExit(TimePoint deadline) {
  while (pid_ >= 0 && !exited_) {
    if (Look() == Change::kExited) return true;
    const TimePoint now = SteadyClock::now();
    if (now >= deadline) return false;
    if (pidfd_.valid()) {
      WaitFor(pidfd_.get(), POLLIN, std::min(deadline, now + std::chrono::milliseconds(50)));
    } else {
      ::poll(nullptr, 0, 5);
    }
  }
  return true;
}

}  // namespace cleave

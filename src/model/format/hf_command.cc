#include "model/format/hf_command.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "model/format/model_folder.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has it in no header

namespace cleave {
namespace {

constexpr std::chrono::milliseconds kPollInterval{20};

// Starts the program with its standard output on our standard error.
Result<pid_t> Spawn(const std::string& path, std::vector<std::string> arguments) {
  std::vector<char*> argv;
  std::string program = path;
  argv.push_back(program.data());
  for (std::string& each : arguments) argv.push_back(each.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Unavailable(fmt::format("{}: {}", path, std::strerror(error)));
  return pid;
}

// The exit status, or nothing at the deadline. Polled, for waitpid takes no deadline.
std::optional<int> WaitUntil(pid_t pid, TimePoint deadline) {
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) return status;
    if (ended < 0 && errno != EINTR) return std::nullopt;
    if (SteadyClock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace

std::optional<std::string> FindOnPath(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
    if (folder.empty()) continue;  // the current folder: never run what happens to lie there
    const std::string candidate = std::string(folder) + "/" + program;
    if (FileExists(candidate) && ::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

std::vector<std::string> FetchArguments(const HubName& name) {
  std::vector<std::string> arguments = {"download", name.repository, "--include"};
  if (!name.quant.empty()) {
    arguments.push_back("*" + name.quant + "*.gguf");
    return arguments;
  }
  // One pattern, since versions of the command differ in how they take several: .safetensors,
  // .json and .jinja, but no .bin, .pth or .gguf. Mistral's repositories hold the weights twice.
  arguments.insert(arguments.end(), {"*.[sj]*", "--exclude", "consolidated*"});
  return arguments;
}

Status FetchWithHf(const std::string& hf_path, const HubName& name) {
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(hf_path, FetchArguments(name)));
  const auto status = WaitUntil(pid, SteadyClock::now() + kFetchDeadline);
  const std::string what = fmt::format("`hf download {}`", name.repository);
  if (!status.has_value()) {
    ::kill(pid, SIGTERM);
    return DeadlineExceeded(fmt::format("{} did not end within {} hours and was stopped", what,
                                        kFetchDeadline.count()));
  }
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return OkStatus();
  if (WIFEXITED(*status)) {
    return Unavailable(fmt::format("{} failed with exit code {}", what, WEXITSTATUS(*status)));
  }
  return Unavailable(fmt::format("{} was stopped by signal {}", what, WTERMSIG(*status)));
}

}  // namespace cleave

#include <fmt/core.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/printable.h"
#include "cli/dry_run.h"
#include "cli/log_setup.h"
#include "cli/service.h"
#include "cli/verbs.h"

namespace cleave {
namespace {

constexpr auto kTick = std::chrono::milliseconds(200);
// Probes of /ready find the reason for so long after the engine's death.
constexpr auto kObituary = std::chrono::milliseconds(800);

// SIGTERM and SIGINT are blocked in every thread and taken here, so that no handler runs anywhere.
class Signals {
 public:
  Signals() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGTERM);
    ::sigaddset(&set_, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
  }

  // Whether one came within a tick.
  [[nodiscard]] bool Wait() const {
    const timespec tick{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kTick).count()};
    return ::sigtimedwait(&set_, nullptr, &tick) > 0;
  }

 private:
  sigset_t set_{};
};

int Fail(const Status& status) {
  fmt::print(stderr, "cleave serve: {}\n", Printable(status.message()));
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

// Whether `flag` was set within `wait`.
bool WaitFor(const std::atomic<bool>& flag, std::chrono::milliseconds wait) {
  const TimePoint deadline = SteadyClock::now() + wait;
  while (!flag && SteadyClock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return flag;
}

struct Loaded {
  int exit_code = 0;        // not 0: it failed
  bool stop_asked = false;  // a signal came as it became ready
};

// Loads beside the signal loop, so that SIGTERM ends a long load too. A signal that comes when the
// server has just turned ready is kept for the drain: requests may have been accepted.
Loaded LoadUnderSignals(Service* service, const Signals& signals, const OptionTable& table) {
  std::atomic<bool> done{false};
  Status status;
  std::thread loader([&] {
    int shown = 0;
    status = service->Load([&shown](double share) {
      const int quarter = static_cast<int>(share * 4);
      if (quarter > shown && quarter < 4) spdlog::info("loading: {} %", quarter * 25);
      shown = quarter;
    });
    done = true;
  });
  Loaded loaded;
  while (!done) {
    if (!signals.Wait()) continue;
    if (loaded.stop_asked || !WaitFor(done, kTick)) {
      spdlog::info("stopped while loading; no request was accepted");
      std::_Exit(0);  // the loader can not be interrupted, and nothing is owed to anybody
    }
    loaded.stop_asked = true;
  }
  loader.join();
  if (!status.ok()) loaded.exit_code = Fail(table.NamePlace(status));
  return loaded;
}

int Drain(Service* service, const Signals& signals, double timeout_s) {
  spdlog::info("draining: not ready any more; running requests have {:g} s", timeout_s);
  service->StartDrain();
  const TimePoint deadline =
      SteadyClock::now() + std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  bool idle = service->WaitIdle(SteadyClock::now() + kTick);
  while (!idle && SteadyClock::now() < deadline) {
    if (signals.Wait()) {
      spdlog::warn("second signal: ending at once");
      std::_Exit(1);
    }
    idle = service->WaitIdle(std::min(deadline, SteadyClock::now() + kTick));
  }
  if (!idle) {
    spdlog::warn("what did not finish in {:g} s ends with an error", timeout_s);
    service->FailAll(Unavailable("the server is shutting down; send the request again"));
    service->WaitIdle(SteadyClock::now() + std::chrono::seconds(5));
  }
  const Status death = service->death();
  if (!death.ok()) spdlog::error("the engine died while draining: {}", death.ToString());
  service->LogBill();
  spdlog::info("stopped");
  return death.ok() ? 0 : 1;
}

// The streams end with their errors, and whoever probes is told why; then the process ends.
int Perish(Service* service, const Signals& signals, const Status& why) {
  spdlog::error("the engine died: {}", why.ToString());
  service->LogBill();
  const TimePoint told = SteadyClock::now() + kObituary;
  service->WaitIdle(SteadyClock::now() + std::chrono::seconds(2));
  while (SteadyClock::now() < told && !signals.Wait()) {
  }
  return 1;
}

}  // namespace

int RunServe(const std::vector<std::string>& args) {
  ServeFlags flags;
  OptionTable table("serve", "Serve a model over HTTP, compatible with OpenAI's API and vLLM's.");
  flags.AddTo(&table);
  const auto parsed = table.Parse(args);
  if (!parsed.ok()) return Fail(parsed.status());
  if (*parsed == OptionTable::Parsed::kHelpShown) return 0;
  flags.Finish();
  if (flags.json && !flags.dry_run) {
    return Fail(InvalidArgument("--json: it is how --dry-run prints; give that too"));
  }
  SetUpLogging(flags.log_level, flags.log_format);
  // Before the port is taken: a name that is nowhere should cost nothing.
  const auto path = flags.model.Path();
  if (!path.ok()) return Fail(path.status());
  if (flags.dry_run) {
    const Status status = DryRun(flags, *path);
    return status.ok() ? 0 : Fail(table.NamePlace(status));
  }

  const Signals signals;
  auto service = Service::Start(flags);
  if (!service.ok()) return Fail(table.NamePlace(service.status()));
  const Loaded loaded = LoadUnderSignals(service->get(), signals, table);
  if (loaded.exit_code != 0) return loaded.exit_code;
  for (;;) {
    if (loaded.stop_asked || signals.Wait())
      return Drain(service->get(), signals, flags.shutdown_timeout_s);
    const Status death = (*service)->death();
    if (!death.ok()) return Perish(service->get(), signals, death);
  }
}

}  // namespace cleave

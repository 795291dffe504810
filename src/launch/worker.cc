#include "launch/worker.h"
#include "launch/cpu_plan.h"

#include <fmt/format.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "launch/frames.h"
#include "launch/wire.h"

namespace cleave {
namespace {

constexpr auto kOrdersDeadline = std::chrono::seconds(30);
constexpr auto kTellDeadline = std::chrono::seconds(2);
constexpr auto kEndDeadline = std::chrono::seconds(2);
constexpr auto kProgressEvery = std::chrono::milliseconds(50);
constexpr int kFrontGoneExitCode = 3;

// The control socket: what the rank tells, and a thread that listens.
class Control {
 public:
  explicit Control(int fd) : fd_(fd), reader_(fd) {}
  ~Control() {
    done_ = true;
    ::shutdown(fd_.get(), SHUT_RD);
    if (listener_.joinable()) listener_.join();
  }
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  Result<WorkerSpec> ReadOrders() {
    ASSIGN_OR_RETURN(const FrameView frame, reader_.Read(SteadyClock::now() + kOrdersDeadline));
    if (frame.type != FrameType::kSpec) return DataLoss("a worker's orders come first");
    return UnpackWorkerSpec(frame.payload);
  }

  void Listen() {
    listener_ = std::thread([this] { Loop(); });
  }

  // Called when asked to end, at once if that was before.
  void OnEnd(std::function<void()> stop) {
    std::lock_guard<std::mutex> lock(mu_);
    stop_ = std::move(stop);
    if (ending_ && stop_) stop_();
  }
  [[nodiscard]] bool ending() const { return ending_; }

  void TellProgress(double share) {
    std::lock_guard<std::mutex> lock(mu_);
    const TimePoint now = SteadyClock::now();
    if (now - told_ < kProgressEvery) return;
    told_ = now;
    (void)SendFrame(fd_.get(), FrameType::kProgress, now + kTellDeadline,
                    [share](ByteWriter* writer) { writer->Put(share); });
  }
  Status TellReady() {
    std::lock_guard<std::mutex> lock(mu_);
    return SendFrame(fd_.get(), FrameType::kReady, SteadyClock::now() + kTellDeadline);
  }
  void TellError(const Status& why) {
    std::lock_guard<std::mutex> lock(mu_);
    (void)SendFrame(fd_.get(), FrameType::kError, SteadyClock::now() + kTellDeadline,
                    [&why](ByteWriter* writer) { Encode(writer, why); });
  }

 private:
  void Loop() {
    TimePoint end_by = TimePoint::max();
    while (!done_) {
      const TimePoint slice = SteadyClock::now() + std::chrono::seconds(1);
      const auto frame = reader_.Read(std::min(slice, end_by));
      if (done_) return;
      if (frame.ok() && frame->type == FrameType::kEnd && !ending_) {
        end_by = SteadyClock::now() + kEndDeadline;
        std::lock_guard<std::mutex> lock(mu_);
        ending_ = true;
        if (stop_) stop_();
      } else if (!frame.ok() && frame.status().code() != StatusCode::kDeadlineExceeded) {
        ::_exit(kFrontGoneExitCode);  // nobody is left to tell, and a step may be under way
      }
      if (SteadyClock::now() >= end_by) ::_exit(0);
    }
  }

  const UniqueFd fd_;
  FrameReader reader_;
  std::atomic<bool> done_{false};
  std::atomic<bool> ending_{false};
  std::mutex mu_;
  std::function<void()> stop_;  // guarded by mu_
  TimePoint told_;              // guarded by mu_
  std::thread listener_;
};

Status RunRank(const WorkerSpec& spec, WorkerBody* body, Control* control) {
  // Rank 0's link closes last: what was said is read before the socket ends.
  std::optional<EngineLinkServer> link;
  if (spec.rank == 0) link.emplace(UniqueFd(spec.fds.link), LinkServerOptions());
  ASSIGN_OR_RETURN(const SharedMemory memory, SharedMemory::Attach(spec.fds.memory));
  ASSIGN_OR_RETURN(World world, World::Join(memory, spec.rank, spec.epoch));
  RETURN_IF_ERROR(
      body->Load(spec, &world, [control](double share) { control->TellProgress(share); }));
  world.Enter(RankPhase::kIdle);
  RETURN_IF_ERROR(control->TellReady());
  if (!link) return body->Follow();
  control->OnEnd([&link] { link->StopServing(); });
  Status status = body->Serve(&*link);
  control->OnEnd(nullptr);
  return status;
}

}  // namespace

int RunWorker(WorkerBody* body, int control_fd) {
  Control control(control_fd);
  const auto spec = control.ReadOrders();
  Status status = spec.status();
  if (status.ok()) {
    control.Listen();
    // What loads and what serves then allocate in their own node. Not pinned is slower, not wrong.
    if (!PinThisThread(spec->cpus)) spdlog::warn("a rank could not be pinned");
    status = RunRank(*spec, body, &control);
  }
  if (control.ending()) return 0;
  if (status.ok()) status = Internal("it finished without being asked to");
  control.TellError(status);
  return 1;
}

}  // namespace cleave

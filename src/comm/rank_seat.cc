#include "comm/rank_seat.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

namespace cleave {
namespace {

// Inside a token the next message comes within microseconds, and a futex wake costs about 20 µs; a
// rank that looks longer takes a shared processor from whom it waits for.
constexpr uint64_t kSpinNs = 40'000;
constexpr uint64_t kYieldNs = 300'000;
constexpr int kLoadsPerLook = 64;  // a load that hits takes a nanosecond, the clock twenty

// A yield that took this long gave a whole time slice to a stranger, not the processor to the rank
// that is waited for: then for a while sleep soon, since a sleeper that is woken runs at once.
constexpr uint64_t kSliceLostNs = 1'000'000;
constexpr uint64_t kCrowdedForNs = 50'000'000;
constexpr uint64_t kCrowdedSpinNs = 5'000;

constexpr uint64_t kMinSliceNs = 1'000'000;
constexpr uint64_t kMaxSliceNs = 10'000'000;
// A look that comes this many slices late says that the observer itself did not run.
constexpr uint64_t kLateSlices = 4;

const char* GroupKindName(GroupKind kind) {
  if (kind == GroupKind::kDcp) return "dcp";
  return kind == GroupKind::kTeam ? "team" : AxisName(AxisOf(kind));
}

}  // namespace

std::string OpLabel::ToString() const {
  return fmt::format("{} {}, call {}", GroupKindName(group), CommOpName(op), call);
}

RankSeat::RankSeat(SegmentView view, uint32_t rank)
    : view_(std::move(view)),
      rank_(rank),
      line_(&view_.board()[rank]),
      deadline_ns_(uint64_t{view_.plan().options.deadline_ms} * 1'000'000),
      slice_ns_(std::clamp(deadline_ns_ / 16, kMinSliceNs, kMaxSliceNs)),
      waited_for_ns_(view_.plan().ranks),
      pidfds_(view_.plan().ranks, -1) {}

RankSeat::~RankSeat() {
  for (const int fd : pidfds_) {
    if (fd >= 0) close(fd);
  }
}

Status RankSeat::Begin(const OpLabel& op) {
  op_ = op;
  line_->Beat();
  return view_.ended() ? EndedStatus() : OkStatus();
}

Status RankSeat::EndedStatus() const {
  return Unavailable(fmt::format("{}: the replica ended: {}", op_.ToString(), view_.reason()));
}

Status RankSeat::Fail(StatusCode code, std::string_view why) {
  std::string message = fmt::format("{}: {}", op_.ToString(), why);
  view_.End(message);
  return {code, std::move(message)};
}

Status RankSeat::AwaitLong(SharedSignal* signal, uint32_t target, uint32_t for_rank) {
  const uint64_t start = SteadyNanos();
  Status status;
  switch (SpinAndYield(*signal, target, start)) {
    case Patience::kReached:
      break;
    case Patience::kEnded:
      status = EndedStatus();
      break;
    case Patience::kExhausted:
      status = Sleep(signal, target, for_rank);
      break;
  }
  const uint64_t waited = SteadyNanos() - start;
  waited_ns_ += waited;
  waited_for_ns_[for_rank].fetch_add(waited, std::memory_order_relaxed);
  return status;
}

RankSeat::Patience RankSeat::SpinAndYield(const SharedSignal& signal, uint32_t target,
                                          uint64_t start_ns) {
  const bool crowded = start_ns < crowded_until_ns_;
  const uint64_t spin = crowded ? kCrowdedSpinNs : kSpinNs;
  const uint64_t patience = crowded ? spin : spin + kYieldNs;
  for (uint64_t now = start_ns; now - start_ns < patience;) {
    if (now - start_ns < spin) {
      for (int i = 0; i < kLoadsPerLook; ++i) {
        if (signal.Reached(target)) return Patience::kReached;
      }
      now = SteadyNanos();
    } else {
      sched_yield();
      const uint64_t after = SteadyNanos();
      if (signal.Reached(target)) return Patience::kReached;
      if (after - now > kSliceLostNs) {
        crowded_until_ns_ = after + kCrowdedForNs;
        break;
      }
      now = after;
    }
    if (view_.ended()) return Patience::kEnded;
  }
  return Patience::kExhausted;
}

Status RankSeat::Sleep(SharedSignal* signal, uint32_t target, uint32_t for_rank) {
  const auto phase = static_cast<RankPhase>(line_->phase.load(std::memory_order_relaxed));
  line_->axis.store(static_cast<uint32_t>(AxisOf(op_.group)), std::memory_order_relaxed);
  line_->op.store(static_cast<uint32_t>(op_.op), std::memory_order_relaxed);
  line_->call.store(op_.call, std::memory_order_relaxed);
  line_->waits_for.store(for_rank, std::memory_order_relaxed);
  line_->target.store(target, std::memory_order_relaxed);
  line_->signal.store(view_.OffsetOf(signal), std::memory_order_relaxed);
  uint64_t last = SteadyNanos();
  line_->Enter(RankPhase::kWaiting, last);
  Silence silence;
  Status status;
  while (status.ok()) {
    const uint32_t seen = signal->Value();
    if (static_cast<int32_t>(seen - target) >= 0) break;
    signal->SleepWhile(seen, std::chrono::nanoseconds(slice_ns_));
    if (signal->Reached(target)) break;
    const uint64_t now = SteadyNanos();
    status = LookAround(*signal, target, for_rank, now - last, &silence);
    last = now;
  }
  line_->Enter(phase, SteadyNanos());
  return status;
}

Status RankSeat::LookAround(const SharedSignal& signal, uint32_t target, uint32_t for_rank,
                            uint64_t elapsed_ns, Silence* silence) {
  if (view_.ended()) return EndedStatus();
  const RankBoard board = {.lines = view_.board(), .segment = view_.bytes()};
  silence->Look(board, rank_, for_rank, elapsed_ns, kLateSlices * slice_ns_);
  const uint32_t blamed = silence->blamed();
  const auto describe = [&] {
    return DescribeRank(board.lines[blamed], blamed, view_.plan().options.split, SteadyNanos());
  };
  const bool left = board.lines[blamed].phase.load(std::memory_order_acquire) ==
                    static_cast<uint32_t>(RankPhase::kEnded);
  if (left || HasDied(blamed)) {
    if (signal.Reached(target)) return OkStatus();  // it did its part before it went
    return Fail(StatusCode::kUnavailable,
                fmt::format("{} {}", left ? "left early:" : "its process died:", describe()));
  }
  if (silence->silent_ns() < deadline_ns_) return OkStatus();
  return Fail(StatusCode::kDeadlineExceeded,
              fmt::format("no sign of life for {:.1f} s: {}",
                          static_cast<double>(silence->silent_ns()) * 1e-9, describe()));
}

bool RankSeat::HasDied(uint32_t rank) {
  const RankIdentity& identity = view_.identities()[rank];
  const uint32_t pid = identity.pid.load(std::memory_order_acquire);
  const RankIdentity& own = view_.identities()[rank_];
  // A number of another namespace names somebody else here; the deadline has to do.
  if (pid == 0 || pid == own.pid.load(std::memory_order_relaxed) ||
      identity.pid_namespace.load(std::memory_order_relaxed) !=
          own.pid_namespace.load(std::memory_order_relaxed)) {
    return false;
  }
  int& fd = pidfds_[rank];
  if (fd < 0) fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd poll_fd = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&poll_fd, 1, 0) == 1;
}

}  // namespace cleave

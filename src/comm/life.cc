#include "comm/life.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace cleave {
namespace {

RankPhase PhaseOf(const RankLine& line) {
  return static_cast<RankPhase>(line.phase.load(std::memory_order_relaxed));
}

const char* PhaseText(RankPhase phase) {
  switch (phase) {
    case RankPhase::kStarting:
      return "is starting";
    case RankPhase::kIdle:
      return "is idle";
    case RankPhase::kComputing:
      return "computes";
    case RankPhase::kWaiting:
      return "waits";
    case RankPhase::kEnded:
      return "has ended";
  }
  return "is in an unknown phase";
}

}  // namespace

uint64_t SteadyNanos() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

std::string DescribeRank(const RankLine& line, uint32_t rank, const Split& split, uint64_t now_ns) {
  const RankCoord at = CoordOf(split, rank);
  const RankPhase phase = PhaseOf(line);
  const std::string team = split.teams == 1 ? "" : fmt::format("team {}, ", at.team);
  std::string text = fmt::format("rank {} (pp {}, {}tp {}, cp {}) {}", rank, at.pp, team, at.tp,
                                 at.cp, PhaseText(phase));
  if (phase == RankPhase::kWaiting) {
    const uint32_t axis = std::min(line.axis.load(std::memory_order_relaxed), kAxes - 1);
    const uint32_t op = std::min(line.op.load(std::memory_order_relaxed), kCommOps - 1);
    text +=
        fmt::format(" in {} {}, call {}, for rank {}", AxisName(static_cast<Axis>(axis)),
                    CommOpName(static_cast<CommOp>(op)), line.call.load(std::memory_order_relaxed),
                    line.waits_for.load(std::memory_order_relaxed));
  }
  const uint64_t since = line.since_ns.load(std::memory_order_relaxed);
  if (since != 0) {
    text += fmt::format(", since {:.1f} s",
                        now_ns > since ? static_cast<double>(now_ns - since) * 1e-9 : 0.0);
  }
  return text;
}

bool RankBoard::WaitIsOver(uint32_t rank) const {
  const uint64_t offset = lines[rank].signal.load(std::memory_order_relaxed);
  if (offset == 0 || offset % alignof(SharedSignal) != 0 ||
      offset > segment.size() - std::min(segment.size(), sizeof(SharedSignal))) {
    return false;
  }
  const auto* signal = reinterpret_cast<const SharedSignal*>(segment.data() + offset);
  return signal->Reached(lines[rank].target.load(std::memory_order_relaxed));
}

uint32_t BlamedRank(const RankBoard& board, uint32_t waiter, uint32_t first) {
  uint32_t at = first;
  for (size_t hops = 0; hops < board.lines.size(); ++hops) {
    const RankLine& line = board.lines[at];
    if (PhaseOf(line) != RankPhase::kWaiting || board.WaitIsOver(at)) return at;
    const uint32_t next = line.waits_for.load(std::memory_order_relaxed);
    if (next >= board.lines.size() || next == at || next == waiter) return at;
    at = next;
  }
  return at;
}

void Silence::Look(const RankBoard& board, uint32_t waiter, uint32_t first, uint64_t elapsed_ns,
                   uint64_t at_most_ns) {
  const uint32_t blamed = BlamedRank(board, waiter, first);
  const uint64_t beat = board.lines[blamed].beat.load(std::memory_order_relaxed);
  if (blamed == blamed_ && beat == beat_) {
    silent_ns_ += std::min(elapsed_ns, at_most_ns);
    return;
  }
  blamed_ = blamed;
  beat_ = beat;
  silent_ns_ = 0;
}

}  // namespace cleave

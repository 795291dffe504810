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

// Of a circle that `entry` is in: the rank furthest behind in calls of entry's axis.
uint32_t FurthestBehind(std::span<const RankLine> board, uint32_t entry) {
  uint32_t behind = entry;
  uint32_t rank = entry;
  for (size_t hops = 0; hops < board.size(); ++hops) {
    rank = board[rank].waits_for.load(std::memory_order_relaxed);
    if (rank >= board.size() || rank == entry) break;  // lines may move while they are read
    const RankLine& line = board[rank];
    const RankLine& other = board[behind];
    if (line.axis.load(std::memory_order_relaxed) == other.axis.load(std::memory_order_relaxed) &&
        line.call.load(std::memory_order_relaxed) < other.call.load(std::memory_order_relaxed)) {
      behind = rank;
    }
  }
  return behind;
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
  std::string text =
      fmt::format("rank {} (pp {}, tp {}, cp {}) {}", rank, at.pp, at.tp, at.cp, PhaseText(phase));
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

uint32_t BlamedRank(std::span<const RankLine> board, uint32_t waiter, uint32_t first) {
  uint32_t at = first;
  for (size_t hops = 0; hops < board.size(); ++hops) {
    if (PhaseOf(board[at]) != RankPhase::kWaiting) return at;
    const uint32_t next = board[at].waits_for.load(std::memory_order_relaxed);
    if (next >= board.size() || next == at) return at;
    if (next == waiter) return at;  // what it waits for has been done
    at = next;
  }
  return FurthestBehind(board, at);  // as many hops as ranks: a circle that leaves the waiter out
}

void Silence::Look(std::span<const RankLine> board, uint32_t waiter, uint32_t first,
                   uint64_t elapsed_ns, uint64_t at_most_ns) {
  const uint32_t blamed = BlamedRank(board, waiter, first);
  const uint64_t beat = board[blamed].beat.load(std::memory_order_relaxed);
  if (blamed == blamed_ && beat == beat_) {
    silent_ns_ += std::min(elapsed_ns, at_most_ns);
    return;
  }
  blamed_ = blamed;
  beat_ = beat;
  silent_ns_ = 0;
}

}  // namespace cleave

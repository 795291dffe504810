#pragma once
// RankBoard: signs of life of a replica's ranks, one cache line each, in shared memory.
//
// A rank beats while it computes (between kernels) and writes down which operation it waits in and
// for whom. Others who wait for it, and the supervisor, read: a rank that has work and has not
// beaten for the deadline is hung, whatever its process is doing; one that is idle is not. A wait
// for a rank that itself waits is charged to the one at the end of the chain.
//
// Writers: each rank its own line (one thread). Readers: anyone. Relaxed words: a report may be one
// beat old.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/shared_signal.h"
#include "split/traffic.h"

namespace cleave {

enum class RankPhase : uint32_t { kStarting, kIdle, kComputing, kWaiting, kEnded };

struct alignas(64) RankLine {
  std::atomic<uint64_t> beat{0};
  std::atomic<uint32_t> phase{0};
  std::atomic<uint32_t> axis{0};       // of the operation it waits in
  std::atomic<uint32_t> op{0};         // likewise
  std::atomic<uint32_t> waits_for{0};  // rank of the replica
  std::atomic<uint64_t> call{0};       // number of the operation in its group
  std::atomic<uint64_t> since_ns{0};   // steady clock, when the phase began
  std::atomic<uint64_t> signal{0};     // what it waits on: offset of a SharedSignal; 0: nothing
  std::atomic<uint32_t> target{0};     // what the signal has to reach

  // The owner's: one sign of life; a change of phase, which is one too.
  void Beat() { beat.store(beat.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  void Enter(RankPhase to, uint64_t now_ns) {
    phase.store(static_cast<uint32_t>(to), std::memory_order_release);
    since_ns.store(now_ns, std::memory_order_relaxed);
    Beat();
  }
};
static_assert(sizeof(RankLine) == 64);

// Nanoseconds of the steady clock, which all processes of a host share.
uint64_t SteadyNanos();

// "rank 1 (pp 0, tp 1, cp 0) waits in tp all_reduce, call 381, for rank 0, since 4.2 s".
std::string DescribeRank(const RankLine& line, uint32_t rank, const Split& split, uint64_t now_ns);

// The lines of all ranks, and the segment that their signals lie in.
struct RankBoard {
  std::span<const RankLine> lines;
  std::span<const std::byte> segment;

  // Whether what the rank waits for has come: then it is itself who does not go on.
  [[nodiscard]] bool WaitIsOver(uint32_t rank) const;
};

// Whom a wait of `waiter` for `first` is charged to: the end of the chain of waiting ranks, never
// `waiter` itself. A chain that comes back to `waiter` or closes in a circle is a disagreement
// about who is to do what; then it is a rank of the circle.
uint32_t BlamedRank(const RankBoard& board, uint32_t waiter, uint32_t first);

// How long the blamed rank of one wait has given no sign of life, as seen by one observer.
class Silence {
 public:
  // Looks again, `elapsed_ns` after the last look. An observer who was itself kept from running for
  // long cannot tell: of each gap at most `at_most_ns` counts.
  void Look(const RankBoard& board, uint32_t waiter, uint32_t first, uint64_t elapsed_ns,
            uint64_t at_most_ns);
  [[nodiscard]] uint32_t blamed() const { return blamed_; }
  [[nodiscard]] uint64_t silent_ns() const { return silent_ns_; }

 private:
  uint32_t blamed_ = UINT32_MAX;
  uint64_t beat_ = 0;
  uint64_t silent_ns_ = 0;
};

}  // namespace cleave

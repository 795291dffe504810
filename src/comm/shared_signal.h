#pragma once
// SharedSignal: a counter in shared memory that one rank raises and others wait on.
//
// Lives in zeroed memory (zero is a valid start); works across processes. No wake is lost: raising
// is a sequentially consistent read-modify-write followed by a look at the sleepers, and a sleeper
// counts itself before it looks at the value. A sleeper that was killed leaves a count that costs
// later raises a system call, nothing more. The value wraps; compare with Reached.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cleave {

// Two cache lines: the prefetcher fetches them in pairs.
inline constexpr size_t kSharedLine = 128;

struct SharedSignal {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;

  [[nodiscard]] uint32_t Value() const { return value.load(std::memory_order_acquire); }
  // Whether the counter has passed or met `target`, less than 2^31 ahead.
  [[nodiscard]] bool Reached(uint32_t target) const {
    return static_cast<int32_t>(Value() - target) >= 0;
  }
  // Raises the counter to `to` (its only writer's business) and wakes all sleepers.
  void Raise(uint32_t to) {
    value.exchange(to, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) WakeAll();
  }
  // Wakes sleepers without a change; they look around and sleep again.
  void WakeAll();
  // Sleeps until the counter is no longer `seen`, a wake, or the time is over; may return early.
  void SleepWhile(uint32_t seen, std::chrono::nanoseconds at_most);
};
static_assert(sizeof(SharedSignal) == 8);

}  // namespace cleave

#pragma once
// CommStats: what a group moved and how long it took, by operation; its owner's axis gives the rest
// of the name. Written by the rank's comm thread; read by any (relaxed counters).
//
// bytes is payload as split/traffic.h counts it, of calls that ended well; a receiver counts
// neither call nor bytes. wait_ns is time until the last member this rank needed had arrived, for a
// sender that there was room; transfer_ns is the rest of the calls. A receiver's times are send's.

#include <array>
#include <atomic>
#include <cstdint>

#include "split/traffic.h"

namespace cleave {

struct OpStats {
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> transfer_ns{0};
  std::atomic<uint64_t> wait_ns{0};

  // The writer's.
  void AddCall(uint64_t call_bytes) {
    Raise(&calls, 1);
    Raise(&bytes, call_bytes);
  }
  void AddTime(uint64_t total_ns, uint64_t waited_ns) {
    Raise(&wait_ns, waited_ns);
    Raise(&transfer_ns, total_ns > waited_ns ? total_ns - waited_ns : 0);
  }

 private:
  // One writer: no locked instruction is needed.
  static void Raise(std::atomic<uint64_t>* counter, uint64_t by) {
    counter->store(counter->load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
};

struct CommStats {
  std::array<OpStats, kCommOps> ops;
  OpStats& of(CommOp op) { return ops[static_cast<uint32_t>(op)]; }
  [[nodiscard]] const OpStats& of(CommOp op) const { return ops[static_cast<uint32_t>(op)]; }
};

}  // namespace cleave

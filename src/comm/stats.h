#pragma once
// CommStats: what a group moved and how long it took, by operation; its owner's axis gives the rest
// of the name. Written by the rank's comm thread; read by any (relaxed counters).
//
// bytes is payload as split/traffic.h counts it. wait_s is time until the last member this rank
// needed had arrived; transfer_s is the rest of the calls.

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
};

struct CommStats {
  std::array<OpStats, kCommOps> ops;
  OpStats& of(CommOp op) { return ops[static_cast<uint32_t>(op)]; }
  [[nodiscard]] const OpStats& of(CommOp op) const { return ops[static_cast<uint32_t>(op)]; }
};

}  // namespace cleave

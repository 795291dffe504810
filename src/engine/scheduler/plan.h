#pragma once
// Plan: what one step computes. Values, written by Scheduler::Schedule into memory that is reused
// step after step; one thread.

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"

namespace cleave {

// A slot of the scheduler: small, dense, used again once its sequence is gone.
using SequenceHandle = uint32_t;

struct PlanEntry {
  SequenceHandle sequence = 0;
  uint64_t tag = 0;  // SequenceFacts::tag
  uint32_t first_position = 0;
  uint32_t tokens = 0;
  bool samples = false;  // the sequence's last token is in the plan: the step yields the next one
  uint32_t team = 0;     // that computes it, and whose pool its blocks are of
  std::span<const BlockId> block_table;  // of positions [0, first_position + tokens)
};

struct Admission {
  SequenceHandle sequence = 0;
  uint64_t tag = 0;
  uint32_t tokens = 0;         // known at admission
  uint32_t cached_tokens = 0;  // of these, found in the prefix cache
  bool resumed = false;        // it ran before and was preempted
};

struct Preemption {
  SequenceHandle sequence = 0;
  uint64_t tag = 0;
  uint32_t computed_tokens = 0;  // whose blocks were given up
};

struct Plan {
  std::vector<PlanEntry> entries;
  std::vector<Admission> admitted;
  std::vector<Preemption> preempted;
  uint32_t tokens = 0;  // of all entries
  uint64_t serial = 0;

  void Reserve(uint32_t sequences) {
    entries.reserve(sequences);
    admitted.reserve(sequences);
    preempted.reserve(sequences);
  }
  void Clear() {
    entries.clear();
    admitted.clear();
    preempted.clear();
    tokens = 0;
  }
};

// What came of an entry. Only entries that sample yield a token: exactly one.
enum class EntryResult : uint8_t { kGoesOn, kEnded };

}  // namespace cleave

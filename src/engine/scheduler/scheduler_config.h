#pragma once
// SchedulerConfig: what a scheduler works within, fixed at its start. A plain value.

#include <cstdint>

#include "kv/partitions.h"
#include "split/layout.h"

namespace cleave {

enum class SamplesInFlight : uint8_t { kAhead, kAwait };

struct SchedulerConfig {
  uint32_t max_num_seqs = 64;             // of a team
  uint32_t max_num_batched_tokens = 512;  // likewise
  uint32_t long_prefill_token_threshold = 0;
  uint32_t max_prefill_tokens = 0;  // of a team in a plan, beside its decodes; 0: what is left
  uint32_t block_size = 16;
  uint32_t num_blocks = 0;     // of all teams and partitions; a multiple of teams · kv_partitions
  uint32_t teams = 1;          // that sequences are shared out over
  uint32_t kv_partitions = 1;  // memories that share a sequence by position
  uint32_t run_positions = kRunPositions;  // with more than one: a multiple of block_size
  uint32_t max_plans_in_flight = 1;
  SamplesInFlight samples_in_flight = SamplesInFlight::kAhead;
  uint32_t max_bypasses = 64;
  uint32_t max_waiting = 1024;  // room taken at construction; more may wait

  // Over the blocks of a sequence.
  [[nodiscard]] KvPartitions partitions() const {
    return KvPartitions::OfBlocks(kv_partitions, run_positions, block_size);
  }
  // Blocks of one partition of one team.
  [[nodiscard]] uint32_t blocks_each() const { return num_blocks / teams / kv_partitions; }
};

}  // namespace cleave

#pragma once
// Sizing: how many KV blocks and how long a context fit, before anything is loaded.
//
// The account is weights, KV, runtime, margin, in bytes of one rank:
//   budget  = host memory (cgroup respected) / ranks on it · utilization
//   runtime = activations of a full batch + logits; no share of it grows with the context
//   KV      = what is left, but no more than max_num_seqs sequences of max_model_len could use;
//             or exactly --kv-cache-memory-bytes
// Where the ranks of context parallelism share a sequence by position, the one that holds its first
// run holds most of it, and sets how long it may get.
// Pure; any thread. Fails with kResourceExhausted: the numbers, and the flag that would help.

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "kernels/attention.h"
#include "model/config.h"
#include "split/layout.h"

namespace cleave {

struct SizingInput {
  const ModelConfig* config = nullptr;
  const RankLayout* rank = nullptr;  // what it holds of the model
  uint32_t tp = 1;                   // ranks it exchanges rows and logits with
  uint32_t teams = 1;                // whose rows its experts may get
  uint32_t kv_partitions = 1;        // cp · dcp: ranks that share a sequence's KV by runs
  uint32_t partial_queries = 0;      // query heads it attends for over its runs alone
  KvShape kv_shape;                  // head_dim filled in
  uint64_t weight_bytes = 0;
  uint64_t memory_bytes = 0;  // this rank's share of the host
  double utilization = 0.92;
  std::optional<uint64_t> kv_cache_memory_bytes;  // of this rank
  std::optional<uint32_t> max_model_len;          // nothing = what fits
  uint32_t max_num_seqs = 64;                     // of a team
  uint32_t max_num_batched_tokens = 512;          // likewise
};

struct Sizing {
  uint32_t max_model_len = 0;
  uint32_t num_blocks = 0;     // of one rank
  uint32_t teams = 1;          // as in the input
  uint32_t kv_partitions = 1;  // likewise
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t runtime_bytes = 0;
  uint64_t budget_bytes = 0;

  // Of a replica: those of all teams and partitions.
  [[nodiscard]] uint32_t pool_blocks() const { return num_blocks * teams * kv_partitions; }
  // Sequences of max_model_len that the pools hold.
  [[nodiscard]] double MaxConcurrency(uint32_t block_tokens) const;
  // Of a rank's bytes and the pool's tokens:
  // "weights 0.09 GiB, KV 1.50 GiB (65536 tokens, 8.00x of 8192), runtime 0.04 GiB of 22.1 GiB"
  [[nodiscard]] std::string Account(uint32_t block_tokens) const;
};

Result<Sizing> ComputeSizing(const SizingInput& input);

// What all ranks of a replica can hold: the fewest blocks, the shortest context; the bytes are
// those of the rank that sets them.
Sizing Smallest(const Sizing& a, const Sizing& b);

}  // namespace cleave

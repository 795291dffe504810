#pragma once
// Orders for testing/launch_worker.cc, for tests.

#include <string>
#include <vector>

#include "launch/replica.h"
#include "launch/worker_spec.h"

namespace cleave::testing {

// Of a replica of `ranks` tp ranks; `words` say what its workers do.
inline std::vector<WorkerSpec> FakeOrders(const std::string& words, uint32_t ranks,
                                          uint32_t replica = 0) {
  WorkerSpec spec;
  spec.model_path = words;
  spec.split.tp = ranks;
  spec.replica = replica;
  spec.engine.max_model_len = 4000;
  spec.engine.max_num_seqs = 16;
  spec.engine.block_size = 4;
  spec.engine.num_blocks = 1000;
  spec.engine.eos_token_ids = {0};
  std::vector<WorkerSpec> orders(ranks, spec);
  for (uint32_t rank = 0; rank < ranks; ++rank) orders[rank].rank = rank;
  return orders;
}

inline ReplicaOptions FakeOptions(const std::string& executable) {
  ReplicaOptions options;
  options.executable = executable;
  options.arguments = {"launch_worker", "worker"};
  options.watch.backoff_first = std::chrono::milliseconds(20);
  return options;
}

}  // namespace cleave::testing

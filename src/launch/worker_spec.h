#pragma once
// WorkerSpec: everything a worker process is told before it loads: which model, how it is cut,
// which part is its own, and how large the things are that all ranks must agree about.
//
// As CBOR over the control socket (launch/frames.h, kSpec): a path may hold bytes that JSON text
// can not. Pure values; any thread.
// Fails: kDataLoss naming the field.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/open_model.h"
#include "split/split.h"

namespace cleave {

// Descriptors a worker is started with, beside the standard three.
struct WorkerFds {
  int control = 3;  // stream socket to the front
  int memory = 4;   // the replica's shared memory (comm/shared_memory.h)
  int link = 5;     // stream socket of rank 0's engine; -1 on other ranks
  bool operator==(const WorkerFds&) const = default;
};

struct WorkerSpec {
  std::string model_path;
  ModelSettings settings;  // its split is not used
  Split split;             // pp_layers filled in
  uint32_t replica = 0;    // of dp
  uint32_t rank = 0;       // in the replica
  uint32_t threads = 1;
  std::vector<int> cpus;  // one a thread; empty = not pinned
  Sizing sizing;          // of the smallest rank: what all can hold
  EngineConfig engine;
  uint64_t epoch = 0;               // of the replica: one more at each start
  uint64_t one_shot_max_bytes = 0;  // of a tp reduction; 0 = measured at start
  std::string log_level = "info";
  std::string log_format = "text";
  WorkerFds fds;
};

std::vector<uint8_t> Pack(const WorkerSpec& spec);
Result<WorkerSpec> UnpackWorkerSpec(std::span<const std::byte> bytes);

}  // namespace cleave

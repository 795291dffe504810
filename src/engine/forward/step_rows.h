#pragma once
// StepRows: the batch a rank runs, as its parts read it. Filled by the decoder before the threads
// start; constant while they run. Arrays have room for the largest batch.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "split/layout.h"

namespace cleave {

struct StepRows {
  uint32_t tokens = 0;  // T
  Range own;            // rows that this rank computes, attention aside: its share over cp, or all
  bool shared = false;  // over cp: the other rows are other ranks'
  std::span<const int32_t> token_ids;
  std::span<const BatchSequence> sequences;
  std::vector<uint32_t> position_of;  // [T]
  std::vector<uint32_t> sequence_of;  // [T]
};

}  // namespace cleave

#pragma once
// StepRows: what a rank runs of a batch, as its parts read it: the rows of its team, counted from
// the first of them. Filled by the decoder before the threads start; constant while they run.
// Arrays have room for the largest batch.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "split/layout.h"

namespace cleave {

struct StepRows {
  uint32_t tokens = 0;           // T
  std::span<const Range> teams;  // [teams] rows of each in the batch; more than one take part in ep
  Range own;            // rows that this rank computes, attention aside: its share over cp, or all
  bool shared = false;  // over cp: the other rows are other ranks'
  std::span<const int32_t> token_ids;
  std::span<const BatchSequence> sequences;
  std::vector<uint32_t> position_of;  // [T]
  std::vector<uint32_t> sequence_of;  // [T]
};

}  // namespace cleave

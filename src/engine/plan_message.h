#pragma once
// PlanMessage: a batch as bytes, from a replica's leader to its other ranks.
//
//   PlanHeader | token ids i32 | sequences (first position, tokens, blocks, team) 4·u32 |
//   wanted rows (row, use) 2·u32 | block tables i32, one after another
//
// Pure; any thread. Parse checks every count against the bytes that are there: kDataLoss.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/executor.h"

namespace cleave {

// What Parse found; the batch points into it and the bytes.
struct ParsedPlan {
  std::vector<int32_t> token_ids;
  std::vector<BatchSequence> sequences;
  std::vector<WantedRow> wanted;
  std::vector<int32_t> blocks;

  [[nodiscard]] ForwardBatch batch() const { return {token_ids, sequences, wanted}; }
};

void WritePlan(const ForwardBatch& batch, std::vector<std::byte>* out);
Status ParsePlan(std::span<const std::byte> bytes, ParsedPlan* plan);

// The longest message of batches within these bounds.
uint64_t MaxPlanBytes(uint32_t max_batch_tokens, uint32_t max_sequences, uint32_t max_blocks);

}  // namespace cleave

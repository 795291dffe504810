#include "engine/fake_executor.h"

#include <fmt/format.h>

#include <utility>

#include "base/checked.h"
#include "base/rng.h"

namespace cleave {

FakeExecutor::FakeExecutor(FakeExecutorOptions options)
    : options_(std::move(options)),
      kv_(static_cast<size_t>(options_.num_blocks) * options_.block_size) {
  hidden_.reserve(options_.max_batch_tokens);
}

Status FakeExecutor::CheckBatch(const ForwardBatch& batch) const {
  uint64_t tokens = 0;
  for (const BatchSequence& s : batch.sequences) {
    tokens += s.tokens;
    const uint32_t end = s.first_position + s.tokens;
    if (s.tokens == 0 || s.block_table.size() != CeilDiv(end, options_.block_size)) {
      return Internal("a sequence without tokens, or whose table does not match them");
    }
    for (const int32_t block : s.block_table) {
      if (block < 0 || static_cast<uint32_t>(block) >= options_.num_blocks) {
        return Internal(fmt::format("block {} does not exist", block));
      }
    }
  }
  if (tokens != batch.token_ids.size() || tokens > options_.max_batch_tokens ||
      batch.sequences.size() > options_.max_sequences) {
    return Internal("the batch is larger than the executor allows, or not what it says");
  }
  return OkStatus();
}

FakeExecutor::Slot& FakeExecutor::At(const BatchSequence& sequence, uint32_t position) {
  const auto block = static_cast<size_t>(sequence.block_table[position / options_.block_size]);
  return kv_[block * options_.block_size + position % options_.block_size];
}

Status FakeExecutor::Forward(const ForwardBatch& batch) {
  if (options_.before_forward) RETURN_IF_ERROR(options_.before_forward());
  RETURN_IF_ERROR(CheckBatch(batch));
  size_t next = 0;
  for (const BatchSequence& s : batch.sequences) {
    for (uint32_t i = 0; i < s.tokens; ++i) {
      At(s, s.first_position + i) = {batch.token_ids[next++], s.first_position + i};
    }
  }
  // Only after all are written: a block that two sequences write at once shows up in one of them.
  hidden_.clear();
  for (const BatchSequence& s : batch.sequences) {
    uint64_t hash = 17;
    for (uint32_t p = 0; p < s.first_position + s.tokens; ++p) {
      const Slot& slot = At(s, p);
      if (slot.position != p) return Internal("a slot holds another position");
      hash = MixBits(hash * 31 + static_cast<uint64_t>(slot.token + 1));
      if (p >= s.first_position) hidden_.push_back(hash);
    }
  }
  return OkStatus();
}

Status FakeExecutor::Logits(std::span<const uint32_t> rows, float* out) {
  if (rows.size() > options_.max_sequences) return Internal("too many rows");
  for (const uint32_t row : rows) {
    if (row >= hidden_.size()) return Internal("a row outside the batch");
    for (uint32_t i = 0; i < options_.vocab_size; ++i) {
      const uint64_t bits = MixBits(hidden_[row] + i * 0x9e3779b97f4a7c15ULL);
      *out++ = static_cast<float>(bits >> 40U) * 0x1p-22F;  // [0, 4)
    }
  }
  return OkStatus();
}

}  // namespace cleave

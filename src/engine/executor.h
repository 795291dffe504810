#pragma once
// Executor: runs the model for one replica. The engine hands it a batch and asks for logits of some
// rows; how many processes and threads that takes is the executor's matter.
//
// Owner and thread: the engine. Calls block until done or the executor's deadline passed.
// Fails: kDeadlineExceeded or kUnavailable naming rank, axis and operation; the replica is then
// dead.

#include <cstdint>
#include <span>

#include "base/status.h"

namespace cleave {

// A stretch of one sequence's tokens, at consecutive positions.
struct BatchSequence {
  uint32_t first_position = 0;
  uint32_t tokens = 0;
  std::span<const int32_t> block_table;  // blocks of positions 0 … first_position + tokens - 1
};

struct ForwardBatch {
  std::span<const int32_t> token_ids;  // of all sequences, concatenated
  std::span<const BatchSequence> sequences;
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Largest batch in tokens and in sequences, and largest Logits call in rows: fixed at start.
  [[nodiscard]] virtual uint32_t max_batch_tokens() const = 0;
  [[nodiscard]] virtual uint32_t max_sequences() const = 0;
  [[nodiscard]] virtual uint32_t vocab_size() const = 0;

  // Writes the batch's keys and values into the KV cache and keeps the last hidden states.
  virtual Status Forward(const ForwardBatch& batch) = 0;
  // Logits [rows.size()][vocab_size] of batch token indices `rows` of the last Forward; at most
  // max_sequences rows a call, any number of calls.
  virtual Status Logits(std::span<const uint32_t> rows, float* out) = 0;
};

}  // namespace cleave

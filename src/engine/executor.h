#pragma once
// Executor: runs the model for one replica. The engine hands it batches and gets back what it asked
// for of some rows; how many processes and threads that takes is the executor's matter.
//
// Submit starts a batch, Collect waits for the oldest one. Up to max_in_flight batches may be under
// way: a pipeline works on as many as it has stages. A batch may hold tokens of a sequence whose
// earlier tokens are in a batch before it.
//
// Owner and thread: the engine. Calls block until done or the executor's deadline passed.
// Fails: kDeadlineExceeded or kUnavailable naming rank, axis and operation; the replica is then
// dead.

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "comm/expert_counts.h"
#include "kernels/logits.h"

namespace cleave {

// A stretch of one sequence's tokens, at consecutive positions.
struct BatchSequence {
  uint32_t first_position = 0;
  uint32_t tokens = 0;
  std::span<const int32_t> block_table;  // blocks of positions 0 … first_position + tokens - 1
  uint32_t team = 0;                     // that computes it, and whose pool the blocks are of
};

// What is wanted of a row: its highest logit (a greedy choice needs no more), or all of them.
enum class RowUse : uint8_t { kHighest, kLogits };

struct WantedRow {
  uint32_t row = 0;  // token index in the batch
  RowUse use = RowUse::kLogits;
};

struct ForwardBatch {
  std::span<const int32_t> token_ids;        // of all sequences, concatenated
  std::span<const BatchSequence> sequences;  // in the order of teams
  std::span<const WantedRow> wanted;         // any number, in any order
};

struct RowResult {
  MaxLogit highest{};       // kHighest
  float* logits = nullptr;  // kLogits: [vocab_size]; the receiver may write, until it returns
};

// Called for each wanted row in order, with its index in `wanted`. An error ends the Collect.
using RowSink = std::function<Status(uint32_t index, const RowResult& result)>;

class Executor {
 public:
  virtual ~Executor() = default;

  // Largest part of a batch that is one team's, in tokens and in sequences; batches under way at
  // once: fixed at start.
  [[nodiscard]] virtual uint32_t max_batch_tokens() const = 0;
  [[nodiscard]] virtual uint32_t max_sequences() const = 0;
  [[nodiscard]] virtual uint32_t max_in_flight() const { return 1; }
  [[nodiscard]] virtual uint32_t vocab_size() const = 0;

  // [E] that its rank in this process counts. Any thread.
  [[nodiscard]] virtual ExpertTokens expert_tokens() const { return {}; }

  // The batch's keys and values go into the KV cache. What the batch points to is not needed after
  // the call.
  virtual Status Submit(const ForwardBatch& batch) = 0;
  // Waits for the oldest batch and hands over what was wanted of it.
  virtual Status Collect(const RowSink& sink) = 0;
};

// One batch from end to end, when none is under way.
Status RunBatch(Executor* executor, const ForwardBatch& batch, const RowSink& sink);

}  // namespace cleave

#pragma once
// Embedder: the batch's embedding rows. Over a tp group each rank reads the vocabulary rows it
// holds, and the rows are gathered, each sent once by its owner.
//
// Owner: the decoder of a first stage. Run is called inside ThreadPool::Run by every thread; it
// ends with all of them having met. No allocation after construction.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/forward/rank_context.h"
#include "engine/forward/step_rows.h"

namespace cleave {

class Embedder {
 public:
  explicit Embedder(const RankContext& context);
  // x: [T, D].
  void Run(const StepRows& step, float* x, uint32_t thread);
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  void ReadRow(int32_t token_id, float* out) const;
  void Gather(const StepRows& step, float* x);

  const RankContext& context_;
  std::vector<uint32_t> owner_ends_;  // [tp] past each tp rank's vocabulary rows
  Status status_;
  std::vector<float> mine_;      // [T, D] rows this rank holds, in batch order
  std::vector<float> all_;       // [T, D] by owner, then in batch order
  std::vector<uint64_t> sizes_;  // [tp] bytes
};

}  // namespace cleave

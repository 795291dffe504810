#pragma once
// What a model's steps must read and compute at least, whatever computes them: what a measured
// speed is held against. A decoding step reads every packed weight once, and the keys and values
// that each request sees; a token takes a multiply and an add for every weight of its matrices and
// two products of attention. The embedding's row is looked up and counts nothing; of a prompt only
// the last token takes the head.
//
//   ASSIGN_OR_RETURN(const ModelWork work, WorkOf(*checkpoint, float_type, kv_shape));
//   work.DecodeBytes({.batch = 1, .prompt_tokens = 512, .output_tokens = 128})
//
// Of a mixture's experts a step reads those that its tokens choose; they count as if tokens chose
// evenly.
// Pure; any thread. Fails as Checkpoint::Weight.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "kernels/attention.h"
#include "kernels/peak.h"
#include "model/checkpoint.h"

namespace cleave {

// Requests of a kind, all at once.
struct RequestShape {
  uint32_t batch = 1;
  uint32_t prompt_tokens = 1;
  uint32_t output_tokens = 1;  // after the first
  // Copies of the weights that decode side by side, each some of the batch.
  uint32_t replicas = 1;
};

struct ModelWork {
  // Packed weights: of all layers but experts, norms and biases too; of all experts; of the head.
  double layer_bytes = 0;
  double expert_bytes = 0;
  double head_bytes = 0;
  // Operations of a token in the same, if it went to every expert.
  double layer_operations = 0;
  double expert_operations = 0;
  double head_operations = 0;
  uint32_t experts = 0;
  uint32_t experts_per_token = 0;
  // Attention: of one layer, for one position that a token sees.
  double position_bytes = 0;
  double position_operations = 0;
  std::vector<uint32_t> windows;   // [layers]; positions seen at most, 0 = all
  PeakKind peak = PeakKind::kF32;  // of most of its products

  [[nodiscard]] double weight_bytes() const { return layer_bytes + expert_bytes + head_bytes; }

  // The mean of a request's tokens: of its prompt; of those it makes after the first.
  [[nodiscard]] double PrefillOperations(const RequestShape& shape) const;
  [[nodiscard]] double DecodeOperations(const RequestShape& shape) const;
  [[nodiscard]] double DecodeBytes(const RequestShape& shape) const;

 private:
  // Summed over the layers, positions that a token sees, in the mean over those that see `first`
  // to `last` if there is no window.
  [[nodiscard]] double PositionsSeen(double first, double last) const;
};

// As PlanModel would load it: `float_type` as RankOptions has it.
Result<ModelWork> WorkOf(const Checkpoint& checkpoint, std::optional<DType> float_type,
                         const KvShape& kv_shape);

}  // namespace cleave

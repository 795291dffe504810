#pragma once
// ModelShape: the counts of a model that a cut shares out, and what a layer
// costs. Pure values; any thread.

#include <cstdint>
#include <vector>

namespace cleave {

struct ModelConfig;

struct ModelShape {
  uint32_t num_layers = 0;
  uint32_t hidden_size = 0;   // D
  uint32_t num_heads = 0;     // H query heads
  uint32_t num_kv_heads = 0;  // G, divides H
  uint32_t head_dim = 0;      // d
  uint32_t ffn_size = 0;      // F of a dense layer, or of one expert
  uint32_t vocab_size = 0;    // V
  uint32_t num_experts = 0;   // 0: every layer is dense
  uint32_t experts_per_token = 0;
  bool post_norms = false;  // row-parallel sums of int64 (docs/arithmetic.md)
  bool tied_embeddings = false;

  [[nodiscard]] uint32_t q_per_kv() const { return num_heads / num_kv_heads; }
  // Multiply-adds of a token in one layer: its matrices, without attention over
  // the context.
  [[nodiscard]] double AttentionWork() const;
  [[nodiscard]] double FfnWork() const;  // of the experts it goes to, and their router
};

// The shape of a configuration that Validate accepted.
ModelShape ShapeOf(const ModelConfig& config);

// What pipeline stages are balanced by, in any common unit.
struct LayerCosts {
  std::vector<double> layers;  // [num_layers]
  double embedding = 0;
  double head = 0;
};
// Multiply-adds of a decoded token without its attention over the context: the
// default. Looking up an embedding row counts as its width.
LayerCosts CostsByWork(const ModelShape& shape);

}  // namespace cleave

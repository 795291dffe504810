#include "split/model_shape.h"

#include "model/config.h"

namespace cleave {

ModelShape ShapeOf(const ModelConfig& config) {
  ModelShape shape;
  shape.num_layers = config.num_layers();
  shape.hidden_size = config.hidden_size;
  shape.num_heads = config.num_heads;
  shape.num_kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.ffn_size = config.ffn_size;
  shape.num_experts = config.num_experts;
  shape.experts_per_token = config.experts_per_token;
  shape.vocab_size = config.vocab_size;
  shape.post_norms = config.post_norms;
  shape.tied_embeddings = config.tied_embeddings;
  return shape;
}

double ModelShape::AttentionWork() const {
  return 2.0 * hidden_size * head_dim * (static_cast<double>(num_heads) + num_kv_heads);
}

double ModelShape::FfnWork() const {
  const double dense = 3.0 * hidden_size * ffn_size;
  if (num_experts == 0) return dense;
  return dense * experts_per_token + static_cast<double>(hidden_size) * num_experts;
}

LayerCosts CostsByWork(const ModelShape& shape) {
  LayerCosts costs;
  costs.layers.assign(shape.num_layers, shape.AttentionWork() + shape.FfnWork());
  costs.embedding = shape.hidden_size;
  costs.head = static_cast<double>(shape.hidden_size) * shape.vocab_size;
  return costs;
}

}  // namespace cleave

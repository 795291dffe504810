#pragma once
// Models and cuts for the tests of split. Tests only.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "split/layout.h"

namespace cleave {

// SmolLM2-135M: 9 query heads on 3 KV heads.
inline ModelShape DemoShape() {
  ModelShape shape;
  shape.num_layers = 30;
  shape.hidden_size = 576;
  shape.num_heads = 9;
  shape.num_kv_heads = 3;
  shape.head_dim = 64;
  shape.ffn_size = 1536;
  shape.vocab_size = 49152;
  shape.tied_embeddings = true;
  return shape;
}

inline uint32_t Draw(RngStream* rng, uint32_t low, uint32_t high) {
  return low + static_cast<uint32_t>(rng->Below(high - low + 1));
}

inline ModelShape DrawShape(RngStream* rng) {
  ModelShape shape;
  shape.num_layers = Draw(rng, 1, 9);
  shape.hidden_size = Draw(rng, 1, 200);
  shape.num_kv_heads = Draw(rng, 1, 6);
  shape.num_heads = shape.num_kv_heads * Draw(rng, 1, 5);
  shape.head_dim = 2 * Draw(rng, 1, 64);
  shape.ffn_size = Draw(rng, 1, 1200);
  shape.vocab_size = Draw(rng, 1, 700);
  if (rng->Below(2) == 0) {
    shape.num_experts = Draw(rng, 1, 12);
    shape.experts_per_token = Draw(rng, 1, shape.num_experts);
  }
  return shape;
}

// Most of them work for most shapes.
inline Split DrawSplit(RngStream* rng, const ModelShape& shape) {
  Split split;
  split.dp = Draw(rng, 1, 2);
  split.pp = Draw(rng, 1, shape.num_layers);
  split.tp = Draw(rng, 1, std::min(shape.num_heads, 9U));
  split.cp = Draw(rng, 1, 3);
  if (rng->Below(2) == 0) split.ep = Draw(rng, 1, 8);
  if (rng->Below(2) == 0) split.dcp = Draw(rng, 1, split.tp);
  if (rng->Below(3) == 0) {
    for (uint32_t i = 0; i < split.tp; ++i) split.tp_shares.push_back(Draw(rng, 1, 5));
  }
  if (rng->Below(3) == 0) {
    split.pp_layers.assign(split.pp, 1);
    for (uint32_t i = split.pp; i < shape.num_layers; ++i) {
      ++split.pp_layers[rng->Below(split.pp)];
    }
  }
  // Last, so that the draws above stay what they were.
  if (split.ep > 1 && rng->Below(2) == 0) split.redundant_experts = Draw(rng, 1, 5);
  if (split.ep > 1 && rng->Below(2) == 0) {
    for (uint32_t e = 0; e < shape.num_experts; ++e) split.expert_loads.push_back(rng->Below(1000));
  }
  if (split.ep > 1 && rng->Below(3) == 0) split.teams = Draw(rng, 2, 3);
  return split;
}

}  // namespace cleave

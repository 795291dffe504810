#pragma once
// What each weight of a model is called in a file, and the shape its config implies. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"
#include "model/config.h"

namespace cleave {

// How a file spells tensor names.
struct TensorNaming {
  enum class Kind { kGguf, kHuggingFace };
  Kind kind = Kind::kGguf;
  // kHuggingFace only: what stands before "embed_tokens.weight" and before "lm_head.weight".
  std::string body_prefix = "model.";
  std::string head_prefix;
};

struct WeightSpec {
  WeightId id;
  std::string name;
  std::vector<uint64_t> shape;  // outermost first
};

// Every weight a model of this config has, none more; all are needed to run it.
std::vector<WeightSpec> WeightSpecsOf(const ModelConfig& config, const TensorNaming& naming);

// The name alone, also of a weight the config does not have.
std::string WeightName(Family family, const TensorNaming& naming, WeightId id);

// Whether a tensor that is none of the model's weights would change what the model computes: a
// bias, or anything else inside a layer, also of layers that the config does not count. Precomputed
// rotary tables would not.
bool WouldChangeResult(const TensorNaming& naming, std::string_view tensor);

}  // namespace cleave

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
  // A layer's experts: a tensor for each of their matrices; one of all gates, one of all ups and
  // one of all downs; or one of all gates and ups together.
  enum class Experts { kEach, kStacked, kFused };
  Experts experts = Experts::kEach;
};

// Where a tensor that holds the matrices of all experts of a layer has one's rows.
struct ExpertStack {
  uint32_t experts = 0;              // 0: the tensor is one weight
  uint64_t stride_rows = 0;          // from an expert to the next
  uint64_t first_row = 0;            // of the weight, within its expert
  std::vector<uint64_t> shape = {};  // of one expert's weight
};

// A weight and the tensor that holds it. Experts that share a tensor have one spec, that of expert
// 0.
struct WeightSpec {
  WeightId id;
  std::string name;
  std::vector<uint64_t> shape;  // of the tensor, outermost first
  ExpertStack stack = {};
};

// Every weight a model of this config has outside its layers, and in one of them, none more; all
// are needed to run it.
std::vector<WeightSpec> OuterWeightSpecs(const ModelConfig& config, const TensorNaming& naming);
std::vector<WeightSpec> LayerWeightSpecs(const ModelConfig& config, const TensorNaming& naming,
                                         uint32_t layer);

// The tensor's name alone, also of a weight the config does not have.
std::string WeightName(Family family, const TensorNaming& naming, WeightId id);

// Whether a tensor that is none of the model's weights would change what the model computes: a
// bias, or anything else inside a layer, also of layers that the config does not count. Precomputed
// rotary tables would not.
bool WouldChangeResult(const TensorNaming& naming, std::string_view tensor);

}  // namespace cleave

#pragma once
// From the text of a Hugging Face config.json to a model's facts, of any family whose layers are
// said plainly: grouped, sliding or linear attention, MLA, dense FFN or experts. A multimodal
// model's text part is read. Pure; any thread.
// Fails: kDataLoss (not JSON, fields missing or of another type), kUnsupported (layers given as
// something we do not know), kInvalidArgument (sizes out of range).

#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/model_facts.h"
#include "plan/weight_format.h"

namespace cleave {

struct HfFacts {
  ModelFacts model;
  WeightFormat weights;  // by quantization_config and torch_dtype
};

Result<HfFacts> ReadHfFacts(std::string_view config_json, const std::string& name);

}  // namespace cleave

#pragma once
// Rotary settings of a Hugging Face config, in both spellings: rope_theta with rope_scaling, and
// transformers 5's rope_parameters (for Gemma 3 one set per kind of layer). Pure.
// Fails: kUnsupported names the rope type and the known ones; kDataLoss names a missing number.

#include "base/status.h"
#include "model/config.h"
#include "model/format/json_file.h"

namespace cleave {

struct RopeSettings {
  double theta = 0;
  RopeScaling scaling;
};

// Families with one kind of layer.
Result<RopeSettings> ReadRope(JsonFields* config, double default_theta);

struct GemmaRope {
  RopeSettings global;
  RopeSettings local;
};
Result<GemmaRope> ReadGemmaRope(JsonFields* config);

}  // namespace cleave

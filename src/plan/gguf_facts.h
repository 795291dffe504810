#pragma once
// From a GGUF file's metadata and tensor table to a model's facts, of families the engine does not
// run too. Weights are counted as they are stored: bits are means over the file's tensors. Pure;
// any thread.
// Fails: kDataLoss (keys missing or of another type), kInvalidArgument (sizes out of range).

#include <string>

#include "base/status.h"
#include "model/format/gguf.h"
#include "plan/model_facts.h"
#include "plan/weight_format.h"

namespace cleave {

struct GgufFacts {
  ModelFacts model;
  WeightFormat weights;
  uint64_t weight_bytes = 0;  // of all tensors
};

Result<GgufFacts> ReadGgufFacts(const GgufContents& contents, const std::string& name);

}  // namespace cleave

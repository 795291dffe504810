#pragma once
// From a Hugging Face config.json to a model's config. Values a file leaves out are those of the
// family's transformers config class. Pure.
// Fails: kUnsupported (architecture, quantisation method, activation, layer kind …, each by name,
// with those that are known), kDataLoss (fields missing or of another type).

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/format/json_file.h"

namespace cleave {

Result<ModelConfig> HfConfig(const Json& config);

// Stopping and sampling: generation_config.json (an empty object when there is none), with the
// end-of-sequence ids of config.json added.
Result<GenerationDefaults> HfGeneration(const Json& generation, const Json& config,
                                        uint32_t vocab_size);

}  // namespace cleave

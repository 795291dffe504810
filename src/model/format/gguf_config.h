#pragma once
// From a GGUF file's metadata to a model's config, and what it says about stopping and sampling.
// Pure. Fails: kUnsupported (architecture, rope type, kind of experts, partial rotation …, each by
// name), kDataLoss (keys missing or of another type).

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/format/gguf.h"

namespace cleave {

Result<ModelConfig> GgufConfig(const GgufContents& contents);

// Row order of stored Q and K: the llama converter interleaves them, the others do not.
RowOrder GgufQkOrder(Family family);

Result<GenerationDefaults> GgufGeneration(const GgufContents& contents,
                                          const TokenizerSource& tokenizer);

}  // namespace cleave

#pragma once
// The tokenizer.ggml.* part of a GGUF file. Pure, but for ReadGgufTokenizer, which opens a file:
// also one with a vocabulary and no tensors.
// Fails: kDataLoss (missing or damaged lists, ids outside the vocabulary).

#include <string>

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/format/gguf.h"

namespace cleave {

Result<TokenizerSource> GgufTokenizer(const GgufContents& contents);
Result<TokenizerSource> ReadGgufTokenizer(const std::string& path);

}  // namespace cleave

#pragma once
// Where tokenizers come from: one function a format. Called once a model; any thread.
// Fails: kDataLoss (a damaged file, with the place), kUnsupported (a component or model type we do
// not know, by name).

#include <memory>

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/tokenizer/tokenizer.h"

namespace cleave::tok {

Result<std::unique_ptr<Tokenizer>> TokenizerFromJson(const TokenizerSource& source);
Result<std::unique_ptr<Tokenizer>> TokenizerFromGguf(const TokenizerSource& source);

}  // namespace cleave::tok

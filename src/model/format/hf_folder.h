#pragma once
// Opens a Hugging Face folder as a Checkpoint: config.json, safetensors, generation_config.json,
// the tokenizer's files, and the chat template wherever it lies. Weights stay untouched on disk.

#include <memory>
#include <string>

#include "base/status.h"
#include "model/checkpoint.h"

namespace cleave {

Result<std::unique_ptr<Checkpoint>> OpenHfFolder(const std::string& folder);

// The template of a folder: chat_template.jinja, else chat_template.json, else chat_template of
// tokenizer_config.json (a string, or the "default" one of a list). Empty when there is none.
Result<std::string> HfChatTemplate(const std::string& folder,
                                   const std::string& tokenizer_config_json);

}  // namespace cleave

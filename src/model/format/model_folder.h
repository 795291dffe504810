#pragma once
// What a folder holds that can be opened. Reads names only; any thread.

#include <string>
#include <vector>

#include "base/status.h"

namespace cleave {

// Full paths of the .gguf files right inside a folder, sorted; empty when it can not be read.
std::vector<std::string> GgufFilesIn(const std::string& folder);

// The folder itself when it has config.json and safetensors, else its only .gguf file.
// Fails: kInvalidArgument lists several .gguf files, kNotFound says what was looked for.
Result<std::string> ModelInFolder(const std::string& folder);

bool IsFolder(const std::string& path);
bool FileExists(const std::string& path);

}  // namespace cleave

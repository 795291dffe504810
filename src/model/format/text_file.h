#pragma once
// Small text files of a model folder. Blocks on the disk; any thread.

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace cleave {

// Nothing when there is no such file; kResourceExhausted when it is longer than max_bytes.
Result<std::optional<std::string>> ReadTextFile(const std::string& path, uint64_t max_bytes);

}  // namespace cleave

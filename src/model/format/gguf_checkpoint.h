#pragma once
// Opens one GGUF file as a Checkpoint. Reads metadata only; weights stay untouched on disk.

#include <memory>
#include <string>

#include "base/status.h"
#include "model/checkpoint.h"

namespace cleave {

Result<std::unique_ptr<Checkpoint>> OpenGguf(const std::string& path);

}  // namespace cleave

#include "model/checkpoint.h"
#include "model/format/gguf_checkpoint.h"

namespace cleave {

Result<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path) {
  return OpenGguf(path);
}

}  // namespace cleave

#include "model/format/text_file.h"

#include <fmt/format.h>

#include "base/mapped_file.h"

namespace cleave {

Result<std::optional<std::string>> ReadTextFile(const std::string& path, uint64_t max_bytes) {
  auto file = MappedFile::Open(path);
  if (!file.ok()) {
    if (file.status().code() == StatusCode::kNotFound) return std::optional<std::string>();
    return file.status();
  }
  const auto bytes = file->bytes();
  if (bytes.size() > max_bytes) {
    return ResourceExhausted(
        fmt::format("{}: file is {} bytes; at most {} are read", path, bytes.size(), max_bytes));
  }
  return std::optional<std::string>(
      std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace cleave

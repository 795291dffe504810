#include "model/format/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace cleave {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxListed = 8;

std::string FileName(const std::string& path) { return fs::path(path).filename().string(); }

std::string ListOf(const std::vector<std::string>& paths) {
  std::string list;
  for (size_t i = 0; i < paths.size() && i < kMaxListed; ++i) {
    list += (i == 0 ? "" : ", ") + FileName(paths[i]);
  }
  if (paths.size() > kMaxListed) list += fmt::format(" and {} more", paths.size() - kMaxListed);
  return list;
}

bool HasSafetensors(const std::string& folder) {
  return FileExists(folder + "/model.safetensors") ||
         FileExists(folder + "/model.safetensors.index.json");
}

}  // namespace

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool FileExists(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::vector<std::string> GgufFilesIn(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (path.ends_with(".gguf") && FileExists(path)) found.push_back(path);
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<std::string> ModelInFolder(const std::string& folder) {
  const bool has_config = FileExists(folder + "/config.json");
  if (has_config && HasSafetensors(folder)) return folder;
  const std::vector<std::string> files = GgufFilesIn(folder);
  if (files.size() == 1) return files.front();
  if (files.size() > 1) {
    return InvalidArgument(fmt::format("{}: holds {} .gguf files; name one of {}", folder,
                                       files.size(), ListOf(files)));
  }
  // Opening it says which weights are missing, or that they are of another kind.
  if (has_config) return folder;
  return NotFound(
      fmt::format("{}: no model in this folder: neither config.json nor a .gguf file", folder));
}

}  // namespace cleave

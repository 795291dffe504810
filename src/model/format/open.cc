// Where a model argument lies, and which reader opens it.

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "model/checkpoint.h"
#include "model/format/gguf_checkpoint.h"
#include "model/format/hf_command.h"
#include "model/format/hf_folder.h"
#include "model/format/hub_cache.h"
#include "model/format/model_folder.h"

namespace cleave {
namespace {

Status NotAModelName(const std::string& argument) {
  return NotFound(
      fmt::format("{}: no such file or folder, and not a Hub name (\"org/model\" or "
                  "\"org/model:Q4_K_M\")",
                  argument));
}

bool IsOffline() {
  const char* value = std::getenv("HF_HUB_OFFLINE");
  return value != nullptr && (std::string_view(value) == "1" || std::string_view(value) == "true");
}

Status NotFetched(const std::string& argument, const HubName& name, std::string_view why) {
  return NotFound(fmt::format(
      "{}: not in the Hugging Face cache ({}), and {}; either `pip install huggingface_hub` and "
      "`hf download {}`, or give the path of a .gguf file or of a folder with config.json",
      argument, HubCacheFolder(), why, name.repository));
}

Result<std::string> Fetch(const std::string& argument, const HubName& name) {
  if (IsOffline()) return NotFetched(argument, name, "HF_HUB_OFFLINE is set");
  const auto hf = FindOnPath("hf");
  if (!hf.has_value()) return NotFetched(argument, name, "the `hf` command is not on PATH");
  RETURN_IF_ERROR(FetchWithHf(*hf, name).Annotate(argument));
  auto found = FindInHubCache(name);
  if (found.ok()) return found;
  if (found.status().code() != StatusCode::kNotFound) return found.status().Annotate(argument);
  return NotFound(fmt::format(
      "{}: fetched, but {}; for a repository of .gguf files add which, as in \"{}:Q4_K_M\"",
      argument, found.status().message(), name.repository));
}

}  // namespace

Result<std::string> ResolveModelPath(const std::string& argument) {
  if (argument.empty()) return InvalidArgument("the model argument is empty");
  if (IsFolder(argument)) return ModelInFolder(argument);
  std::error_code error;
  if (std::filesystem::exists(argument, error)) return argument;
  const auto name = ParseHubName(argument);
  if (!name.has_value()) return NotAModelName(argument);
  auto cached = FindInHubCache(*name);
  if (cached.ok() || cached.status().code() != StatusCode::kNotFound) return cached;
  return Fetch(argument, *name);
}

Result<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path) {
  if (!IsFolder(path)) {
    if (path.ends_with(".safetensors")) {
      return InvalidArgument(
          fmt::format("{}: give the folder that holds it together with config.json", path));
    }
    return OpenGguf(path);
  }
  ASSIGN_OR_RETURN(const std::string model, ModelInFolder(path));
  return model == path ? OpenHfFolder(path) : OpenGguf(model);
}

}  // namespace cleave

#pragma once
// The local Hugging Face cache: <hub>/models--org--name/refs/main names a commit, whose files lie
// in snapshots/<commit>/. Reads the environment and names of files; any thread, as long as nobody
// changes the environment.

#include <optional>
#include <string>

#include "base/status.h"

namespace cleave {

// "org/model", with ":QUANT" or without: which .gguf file of the repository is meant.
struct HubName {
  std::string repository;
  std::string quant;
};

// Nothing when the text can not be a Hub name.
std::optional<HubName> ParseHubName(const std::string& text);

// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub.
std::string HubCacheFolder();

// The model in the newest snapshot: a folder or a .gguf file. kNotFound when the cache has not the
// repository, or not all of it; kInvalidArgument when several .gguf files fit.
Result<std::string> FindInHubCache(const HubName& name);

}  // namespace cleave

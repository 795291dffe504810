#include "model/format/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "model/format/model_folder.h"
#include "model/format/text_file.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxRefBytes = 4096;
constexpr size_t kMaxNamePart = 96;  // the Hub's own limit

bool IsNameChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
}

// No leading dot or dash: neither a path nor an option can be mistaken for a name.
bool IsNamePart(std::string_view part) {
  return !part.empty() && part.size() <= kMaxNamePart && part.front() != '.' &&
         part.front() != '-' && part.find("..") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), IsNameChar);
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Whether a file's name has `quant` as a word of its own, in either case: "Q4_K" is not in
// "model.Q4_K_M.gguf".
bool NamesQuant(const std::string& path, const std::string& quant) {
  const std::string name = Lower(fs::path(path).filename().string());
  const std::string wanted = Lower(quant);
  const auto is_border = [&name](size_t at) {
    return at >= name.size() || name[at] == '.' || name[at] == '-';
  };
  for (size_t at = name.find(wanted); at != std::string::npos; at = name.find(wanted, at + 1)) {
    if ((at == 0 || is_border(at - 1)) && is_border(at + wanted.size())) return true;
  }
  return false;
}

std::string Environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string() : std::string(value);
}

std::string RepositoryFolder(const HubName& name) {
  std::string folder = name.repository;
  const size_t slash = folder.find('/');
  return HubCacheFolder() + "/models--" + folder.replace(slash, 1, "--");
}

// The commit of refs/main; else the only snapshot.
Result<std::string> SnapshotFolder(const std::string& repository) {
  ASSIGN_OR_RETURN(const std::optional<std::string> ref,
                   ReadTextFile(repository + "/refs/main", kMaxRefBytes));
  if (ref.has_value()) {
    std::string commit = *ref;
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0) {
      commit.pop_back();
    }
    if (!IsNamePart(commit)) {
      return DataLoss(fmt::format("{}/refs/main: does not name a commit", repository));
    }
    return repository + "/snapshots/" + commit;
  }
  std::string only;
  std::error_code error;
  for (fs::directory_iterator it(repository + "/snapshots", error), end; !error && it != end;
       it.increment(error)) {
    if (!only.empty()) return NotFound(repository + ": several snapshots and no refs/main");
    only = it->path().string();
  }
  if (only.empty()) return NotFound(repository + ": no snapshot");
  return only;
}

Result<std::string> FindQuant(const std::string& snapshot, const HubName& name) {
  std::vector<std::string> fitting;
  std::string all;
  for (const std::string& path : GgufFilesIn(snapshot)) {
    all += (all.empty() ? "" : ", ") + fs::path(path).filename().string();
    if (NamesQuant(path, name.quant)) fitting.push_back(path);
  }
  if (fitting.size() == 1) return fitting.front();
  if (fitting.empty()) {
    return NotFound(fmt::format("{}: no {} file; there are: {}", snapshot, name.quant,
                                all.empty() ? "none" : all));
  }
  return InvalidArgument(
      fmt::format("{}: {} .gguf files fit {}; name a file", snapshot, fitting.size(), name.quant));
}

}  // namespace

std::optional<HubName> ParseHubName(const std::string& text) {
  HubName name;
  const size_t colon = text.find(':');
  name.repository = text.substr(0, colon);
  if (colon != std::string::npos) {
    name.quant = text.substr(colon + 1);
    if (!IsNamePart(name.quant)) return std::nullopt;
  }
  const size_t slash = name.repository.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::string_view whole = name.repository;
  if (!IsNamePart(whole.substr(0, slash)) || !IsNamePart(whole.substr(slash + 1))) {
    return std::nullopt;
  }
  return name;
}

std::string HubCacheFolder() {
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    std::string folder = Environment(variable);
    if (!folder.empty()) return folder;
  }
  const std::string home = Environment("HF_HOME");
  if (!home.empty()) return home + "/hub";
  const std::string caches = Environment("XDG_CACHE_HOME");
  if (!caches.empty()) return caches + "/huggingface/hub";
  return Environment("HOME") + "/.cache/huggingface/hub";
}

Result<std::string> FindInHubCache(const HubName& name) {
  const std::string repository = RepositoryFolder(name);
  if (!IsFolder(repository)) return NotFound(repository + ": not in the cache");
  ASSIGN_OR_RETURN(const std::string snapshot, SnapshotFolder(repository));
  if (!name.quant.empty()) return FindQuant(snapshot, name);
  ASSIGN_OR_RETURN(std::string found, ModelInFolder(snapshot));
  const bool no_weights = found == snapshot && !FileExists(snapshot + "/model.safetensors") &&
                          !FileExists(snapshot + "/model.safetensors.index.json");
  if (no_weights) return NotFound(snapshot + ": config.json without safetensors");
  return found;
}

}  // namespace cleave

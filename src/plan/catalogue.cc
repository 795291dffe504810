#include "plan/catalogue.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <utility>

#include "base/nearest.h"
#include "plan/built_in.h"
#include "plan/catalogue_entries.h"

namespace cleave {
namespace {

// Letters in lower case, without what separates words.
std::string Plain(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    plain.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c);
  }
  return plain;
}

template <typename Entry>
bool IsCalled(const Entry& entry, const std::string& plain) {
  if (Plain(entry.name) == plain) return true;
  return std::any_of(entry.also.begin(), entry.also.end(),
                     [&](const std::string& other) { return Plain(other) == plain; });
}

// The last entry of a name is the one that counts: a user's stands after what is built in.
template <typename Entry>
Result<const Entry*> FindIn(const std::vector<Entry>& entries, std::string_view name,
                            const char* what) {
  const std::string plain = Plain(name);
  for (size_t i = entries.size(); i-- > 0;) {
    if (IsCalled(entries[i], plain)) return &entries[i];
  }
  std::vector<std::string> all;
  for (const Entry& entry : entries) {
    all.push_back(entry.name);
    all.insert(all.end(), entry.also.begin(), entry.also.end());
  }
  return NotFound(
      fmt::format("{} '{:.80}' is not in the catalogue; the nearest are {}; add "
                  "others with --catalogue FILE",
                  what, name, fmt::join(NearestFew(name, all, 3), ", ")));
}

template <typename Entry>
void Put(Entry entry, std::vector<Entry>* entries) {
  const auto same = std::find_if(entries->begin(), entries->end(), [&](const Entry& other) {
    return Plain(other.name) == Plain(entry.name);
  });
  if (same != entries->end()) entries->erase(same);
  entries->push_back(std::move(entry));
}

}  // namespace

Status Catalogue::Add(std::string_view yaml, std::string_view file_name) {
  const std::string file(file_name);
  if (yaml.size() > kMaxBytes) {
    return InvalidArgument(
        fmt::format("{}: {} bytes; a catalogue has at most {}", file, yaml.size(), kMaxBytes));
  }
  try {
    const YAML::Node root = YAML::Load(std::string(yaml));
    if (!root.IsMap()) {
      return InvalidArgument(
          fmt::format("{}: expected a mapping with devices, models or both", file));
    }
    for (const auto& part : root) {
      const std::string key = part.first.IsScalar() ? part.first.Scalar() : "";
      if ((key != "devices" && key != "models") || !part.second.IsSequence()) {
        return InvalidArgument(fmt::format("{}:{}: expected lists named devices and models", file,
                                           part.first.Mark().line + 1));
      }
      for (const YAML::Node& entry : part.second) {
        if (key == "devices") {
          ASSIGN_OR_RETURN(DeviceFacts device, ReadDevice(entry, file));
          Put(std::move(device), &devices_);
        } else {
          ASSIGN_OR_RETURN(ModelFacts model, ReadModel(entry, file));
          Put(std::move(model), &models_);
        }
      }
    }
  } catch (const YAML::Exception& error) {
    return InvalidArgument(
        fmt::format("{}:{}:{}: {}", file, error.mark.line + 1, error.mark.column + 1, error.msg));
  }
  return OkStatus();
}

Result<const DeviceFacts*> Catalogue::FindDevice(std::string_view name) const {
  return FindIn(devices_, name, "device");
}

Result<const ModelFacts*> Catalogue::FindModel(std::string_view name) const {
  return FindIn(models_, name, "model");
}

Result<Catalogue> BuiltInCatalogue() {
  Catalogue catalogue;
  RETURN_IF_ERROR(catalogue.Add(kHardwareYaml, "built-in hardware.yaml"));
  RETURN_IF_ERROR(catalogue.Add(kModelsYaml, "built-in models.yaml"));
  return catalogue;
}

}  // namespace cleave

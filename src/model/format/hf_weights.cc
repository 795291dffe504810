#include "model/format/hf_weights.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <set>

#include "model/format/json_file.h"
#include "model/format/text_file.h"

namespace cleave {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = 16U << 20U;

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

Result<SafeTensors> MapFile(const std::string& path, HfWeights* weights) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  auto tensors = ParseSafetensors(file.bytes());
  if (!tensors.ok()) return tensors.status().Annotate(path);
  weights->files.push_back(std::move(file));
  return tensors;
}

// A name in the index must be a file of the folder itself.
Status CheckShardName(const std::string& name) {
  if (name.ends_with(".safetensors") && name.find('/') == std::string::npos &&
      name.find('\0') == std::string::npos) {
    return OkStatus();
  }
  return InvalidArgument(
      fmt::format("{}: weight_map names \"{}\"; a .safetensors file of the same folder is wanted",
                  kIndexFile, name));
}

Result<HfWeights> OpenShards(const std::string& folder, const Json& weight_map) {
  std::map<std::string, std::set<std::string>> names_by_shard;
  for (const auto& [tensor, shard] : weight_map.items()) {
    if (!shard.is_string()) {
      return DataLoss(fmt::format("{}: weight_map gives no file for {}", kIndexFile, tensor));
    }
    const auto name = shard.get<std::string>();
    RETURN_IF_ERROR(CheckShardName(name));
    names_by_shard[name].insert(tensor);
  }
  HfWeights weights;
  for (const auto& [shard, names] : names_by_shard) {
    const std::string path = fmt::format("{}/{}", folder, shard);
    if (!Exists(path)) {
      return NotFound(fmt::format("{}: no such file, but {} needs it; fetch the model again", path,
                                  kIndexFile));
    }
    ASSIGN_OR_RETURN(SafeTensors tensors, MapFile(path, &weights));
    for (const std::string& name : names) {
      auto node = tensors.extract(name);
      if (node.empty()) {
        return DataLoss(
            fmt::format("{}: has no tensor {}, where {} puts it", path, name, kIndexFile));
      }
      weights.tensors.insert(std::move(node));
    }
  }
  return weights;
}

Status NoWeights(const std::string& folder) {
  for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json",
                            "consolidated.safetensors", "tf_model.h5", "flax_model.msgpack"}) {
    if (!Exists(folder + "/" + other)) continue;
    return Unsupported(
        fmt::format("{}: has {} but no {}; save the model as safetensors with transformers", folder,
                    other, kSingleFile));
  }
  return NotFound(fmt::format("{}: has neither {} nor {}", folder, kSingleFile, kIndexFile));
}

}  // namespace

Result<HfWeights> OpenHfWeights(const std::string& folder) {
  const std::string single = folder + "/" + kSingleFile;
  if (Exists(single)) {
    HfWeights weights;
    ASSIGN_OR_RETURN(weights.tensors, MapFile(single, &weights));
    return weights;
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> index,
                   ReadTextFile(folder + "/" + kIndexFile, kMaxIndexBytes));
  if (!index.has_value()) return NoWeights(folder);
  ASSIGN_OR_RETURN(const Json json,
                   ParseJsonObject(*index, folder + "/" + kIndexFile, DuplicateKeys::kRefused));
  JsonFields fields(json, folder + "/" + kIndexFile);
  const Json& weight_map = fields.Object("weight_map");
  RETURN_IF_ERROR(fields.status());
  if (weight_map.empty()) {
    return DataLoss(fmt::format("{}/{}: weight_map is missing", folder, kIndexFile));
  }
  return OpenShards(folder, weight_map);
}

}  // namespace cleave

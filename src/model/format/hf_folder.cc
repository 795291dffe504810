#include "model/format/hf_folder.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "model/format/hf_config.h"
#include "model/format/hf_weights.h"
#include "model/format/json_file.h"
#include "model/format/stored_checkpoint.h"
#include "model/format/text_file.h"

namespace cleave {
namespace {

constexpr uint64_t kMaxConfigBytes = 4U << 20U;
constexpr uint64_t kMaxTemplateBytes = 1U << 20U;
constexpr uint64_t kMaxTokenizerBytes = 256U << 20U;

// An empty object when there is no such file.
Result<Json> ReadJson(const std::string& folder, const char* name, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text,
                   ReadTextFile(folder + "/" + name, max_bytes));
  if (!text.has_value()) return Json::object();
  return ParseJsonObject(*text, name);
}

Result<std::string> ReadOrEmpty(const std::string& folder, const char* name, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(std::optional<std::string> text, ReadTextFile(folder + "/" + name, max_bytes));
  return std::move(text).value_or("");
}

// Where the body's and the head's names begin: models with a vision part, older and newer, and
// bodies saved without their head.
TensorNaming NamingOf(const SafeTensors& tensors) {
  TensorNaming naming;
  naming.kind = TensorNaming::Kind::kHuggingFace;
  for (const char* prefix : {"model.", "language_model.model.", "model.language_model.", ""}) {
    if (!tensors.contains(prefix + std::string("embed_tokens.weight"))) continue;
    naming.body_prefix = prefix;
    break;
  }
  for (const char* prefix : {"", "language_model."}) {
    if (!tensors.contains(prefix + std::string("lm_head.weight"))) continue;
    naming.head_prefix = prefix;
    break;
  }
  // How transformers 5 keeps experts in memory, and writes them when asked for its own format.
  if (tensors.contains(naming.body_prefix + "layers.0.mlp.experts.gate_up_proj")) {
    naming.experts = TensorNaming::Experts::kFused;
  }
  return naming;
}

TensorTable TableOf(const SafeTensors& tensors) {
  TensorTable table;
  for (const auto& [name, tensor] : tensors) table.names.push_back(name);
  table.find = [&tensors](const std::string& name) -> Result<std::optional<TensorView>> {
    const auto it = tensors.find(name);
    if (it == tensors.end()) return std::optional<TensorView>();
    ASSIGN_OR_RETURN(TensorView view, SupportedView(name, it->second));
    return std::optional<TensorView>(std::move(view));
  };
  return table;
}

// "org/model" for a snapshot of the Hub's cache, else the folder's own name.
std::string NameOf(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path path = fs::weakly_canonical(folder, error);
  if (error) path = folder;
  const std::string repository = path.parent_path().parent_path().filename().string();
  constexpr std::string_view kPrefix = "models--";
  if (path.parent_path().filename() != "snapshots" || !repository.starts_with(kPrefix)) {
    return path.filename().string();
  }
  std::string name = repository.substr(kPrefix.size());
  const size_t separator = name.find("--");
  if (separator != std::string::npos) name.replace(separator, 2, "/");
  return name;
}

Result<std::string> TemplateOf(const Json& json, const char* where) {
  const auto it = json.find("chat_template");
  if (it == json.end() || it->is_null()) return std::string();
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_array()) {
    return DataLoss(fmt::format("{}: chat_template is neither a string nor a list", where));
  }
  for (const Json& each : *it) {
    if (!each.is_object()) continue;
    JsonFields fields(each, where);
    const auto name = fields.String("name");
    auto text = fields.String("template");
    RETURN_IF_ERROR(fields.status());
    if (name == "default" && text.has_value()) return *std::move(text);
  }
  return std::string();
}

Result<StoredModel> ReadModel(const std::string& folder) {
  StoredModel model;
  model.path = folder;
  model.name = NameOf(folder);
  ASSIGN_OR_RETURN(const std::optional<std::string> text,
                   ReadTextFile(folder + "/config.json", kMaxConfigBytes));
  if (!text.has_value()) return NotFound("config.json: no such file");
  ASSIGN_OR_RETURN(const Json config, ParseJsonObject(*text, "config.json"));
  ASSIGN_OR_RETURN(model.config, HfConfig(config));
  ASSIGN_OR_RETURN(const Json generation,
                   ReadJson(folder, "generation_config.json", kMaxConfigBytes));
  ASSIGN_OR_RETURN(model.generation, HfGeneration(generation, config, model.config.vocab_size));
  TokenizerSource& tokenizer = model.tokenizer;
  tokenizer.kind = TokenizerSource::Kind::kHuggingFaceJson;
  ASSIGN_OR_RETURN(tokenizer.tokenizer_json,
                   ReadOrEmpty(folder, "tokenizer.json", kMaxTokenizerBytes));
  ASSIGN_OR_RETURN(tokenizer.tokenizer_config_json,
                   ReadOrEmpty(folder, "tokenizer_config.json", kMaxConfigBytes));
  ASSIGN_OR_RETURN(model.chat_template, HfChatTemplate(folder, tokenizer.tokenizer_config_json));
  return model;
}

Result<std::unique_ptr<Checkpoint>> Open(const std::string& folder) {
  ASSIGN_OR_RETURN(StoredModel model, ReadModel(folder));
  ASSIGN_OR_RETURN(HfWeights weights, OpenHfWeights(folder));
  model.naming = NamingOf(weights.tensors);
  model.files = std::move(weights.files);
  return StoredCheckpoint::Bind(std::move(model), TableOf(weights.tensors));
}

}  // namespace

Result<std::string> HfChatTemplate(const std::string& folder,
                                   const std::string& tokenizer_config_json) {
  ASSIGN_OR_RETURN(std::string jinja,
                   ReadOrEmpty(folder, "chat_template.jinja", kMaxTemplateBytes));
  if (!jinja.empty()) return jinja;
  ASSIGN_OR_RETURN(const Json legacy, ReadJson(folder, "chat_template.json", kMaxTemplateBytes));
  ASSIGN_OR_RETURN(std::string found, TemplateOf(legacy, "chat_template.json"));
  if (!found.empty() || tokenizer_config_json.empty()) return found;
  ASSIGN_OR_RETURN(const Json config,
                   ParseJsonObject(tokenizer_config_json, "tokenizer_config.json"));
  return TemplateOf(config, "tokenizer_config.json");
}

Result<std::unique_ptr<Checkpoint>> OpenHfFolder(const std::string& folder) {
  auto checkpoint = Open(folder);
  if (!checkpoint.ok() && !checkpoint.status().message().starts_with(folder)) {
    return checkpoint.status().Annotate(folder);
  }
  return checkpoint;
}

}  // namespace cleave

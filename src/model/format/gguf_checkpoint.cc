#include "model/format/gguf_checkpoint.h"

#include <fmt/format.h>

#include <filesystem>

#include "model/format/gguf.h"
#include "model/format/gguf_config.h"
#include "model/format/gguf_tokenizer.h"
#include "model/format/stored_checkpoint.h"

namespace cleave {
namespace {

TensorTable TableOf(const GgufContents& contents) {
  TensorTable table;
  for (const auto& [name, view] : contents.tensors) table.names.push_back(name);
  table.find = [&contents](const std::string& name) -> Result<std::optional<TensorView>> {
    const auto it = contents.tensors.find(name);
    if (it == contents.tensors.end()) return std::optional<TensorView>();
    return std::optional<TensorView>(it->second);
  };
  return table;
}

TensorNaming NamingOf(const GgufContents& contents) {
  TensorNaming naming;
  naming.kind = TensorNaming::Kind::kGguf;
  if (contents.tensors.contains("blk.0.ffn_gate_exps.weight")) {
    naming.experts = TensorNaming::Experts::kStacked;
  } else if (contents.tensors.contains("blk.0.ffn_gate_up_exps.weight")) {
    naming.experts = TensorNaming::Experts::kFused;
  }
  return naming;
}

Result<StoredModel> ReadModel(const GgufContents& contents, const std::string& path) {
  StoredModel model;
  model.path = path;
  model.naming = NamingOf(contents);
  ASSIGN_OR_RETURN(model.config, GgufConfig(contents));
  model.qk_order = GgufQkOrder(model.config.family);
  ASSIGN_OR_RETURN(model.tokenizer, GgufTokenizer(contents));
  if (model.tokenizer.tokens.size() > model.config.vocab_size) {
    return DataLoss(fmt::format("the vocabulary has {} tokens, but token_embd.weight only {} rows",
                                model.tokenizer.tokens.size(), model.config.vocab_size));
  }
  ASSIGN_OR_RETURN(model.generation, GgufGeneration(contents, model.tokenizer));
  GgufFields fields(contents);
  model.chat_template = fields.String("tokenizer.chat_template").value_or("");
  model.name = fields.String("general.name").value_or("");
  if (model.name.empty()) model.name = std::filesystem::path(path).stem().string();
  RETURN_IF_ERROR(fields.status());
  return model;
}

Result<std::unique_ptr<Checkpoint>> Open(MappedFile file) {
  if (!LooksLikeGguf(file.bytes())) {
    return DataLoss(
        "not a GGUF file: it does not start with \"GGUF\"; a .gguf file or a folder with "
        "config.json and safetensors can be opened");
  }
  ASSIGN_OR_RETURN(const GgufContents contents, ParseGguf(file.bytes()));
  ASSIGN_OR_RETURN(StoredModel model, ReadModel(contents, file.path()));
  model.files.push_back(std::move(file));
  return StoredCheckpoint::Bind(std::move(model), TableOf(contents));
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> OpenGguf(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  auto checkpoint = Open(std::move(file));
  if (!checkpoint.ok()) return checkpoint.status().Annotate(path);
  return checkpoint;
}

}  // namespace cleave

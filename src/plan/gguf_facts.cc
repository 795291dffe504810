#include "plan/gguf_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace cleave {
namespace {

constexpr uint32_t kTooMany = ModelFacts::kMaxWidth + 1;

// Keys of an architecture, "llama.block_count".
class Keys {
 public:
  Keys(GgufFields* fields, std::string architecture)
      : fields_(fields), architecture_(std::move(architecture)) {}

  // Nothing where it is not there; what is out of range is too large to pass CheckFacts.
  std::optional<uint32_t> Uint(const char* key) {
    const auto value = fields_->Int(architecture_ + "." + key);
    if (!value) return std::nullopt;
    return *value < 0 || *value > INT32_MAX ? uint32_t{INT32_MAX} : static_cast<uint32_t>(*value);
  }
  uint32_t Required(const char* key) { return fields_->RequiredUint(architecture_ + "." + key); }

 private:
  GgufFields* fields_;
  std::string architecture_;
};

void ReadSizes(Keys* keys, ModelFacts* model) {
  model->hidden_size = keys->Required("embedding_length");
  model->num_heads = keys->Required("attention.head_count");
  model->num_kv_heads = keys->Uint("attention.head_count_kv").value_or(model->num_heads);
  const uint32_t plain = model->num_heads == 0 ? 0 : model->hidden_size / model->num_heads;
  model->head_dim = keys->Uint("attention.key_length").value_or(plain);
  model->ffn_size = keys->Uint("feed_forward_length").value_or(0);
  model->max_context = keys->Required("context_length");
}

void ReadMla(Keys* keys, ModelFacts* model) {
  const auto kv_rank = keys->Uint("attention.kv_lora_rank");
  if (!kv_rank || *kv_rank == 0) return;
  const uint32_t rope = std::min(keys->Required("rope.dimension_count"), kTooMany);
  // Newer files give the lengths of a head here, as key_length those of the compressed one.
  const uint32_t key = keys->Uint("attention.key_length_mla").value_or(model->head_dim);
  const auto value = keys->Uint("attention.value_length_mla");
  model->mla = {.q_rank = keys->Uint("attention.q_lora_rank").value_or(0),
                .kv_rank = *kv_rank,
                .rope_dim = rope,
                .nope_dim = key > rope ? key - rope : 0,
                .value_dim = value ? *value : keys->Uint("attention.value_length").value_or(0)};
  model->num_kv_heads = 1;
  model->head_dim = key;
}

void ReadExperts(Keys* keys, ModelFacts* model) {
  model->num_experts = keys->Uint("expert_count").value_or(0);
  if (model->num_experts == 0) return;
  model->experts_per_token = keys->Required("expert_used_count");
  model->expert_ffn_size = keys->Uint("expert_feed_forward_length").value_or(model->ffn_size);
  const uint32_t count = std::min(keys->Uint("expert_shared_count").value_or(0), kTooMany);
  const uint64_t width = uint64_t{count} * std::min(model->expert_ffn_size, kTooMany);
  model->shared_ffn_size =
      keys->Uint("expert_shared_feed_forward_length")
          .value_or(static_cast<uint32_t>(std::min<uint64_t>(width, kTooMany)));
  const uint32_t dense = keys->Uint("leading_dense_block_count").value_or(0);
  const uint32_t step = keys->Uint("interleave_moe_layer_step").value_or(1);
  for (uint32_t i = dense; i < model->layers.size(); ++i) {
    model->layers[i].experts = step <= 1 || (i + 1) % step == 0;
  }
}

void PlaceWindows(Keys* keys, const std::string& architecture, ModelFacts* model) {
  const uint32_t window = keys->Uint("attention.sliding_window").value_or(0);
  const uint32_t every = architecture == "gemma3"                                ? 6
                         : architecture == "gemma2" || architecture == "gpt-oss" ? 2
                                                                                 : 0;
  for (uint32_t i = 0; i < model->layers.size(); ++i) {
    model->layers[i].window = every > 0 && (i + 1) % every == 0 ? 0 : window;
  }
}

// Bytes and elements of a kind of tensors.
struct Stored {
  double bytes = 0;
  double elements = 0;
  void Add(const TensorView& view) {
    const double columns = static_cast<double>(RowBytes(view.dtype, view.cols()).value_or(0));
    bytes += static_cast<double>(view.rows()) * columns;
    elements += static_cast<double>(view.elements());
  }
  [[nodiscard]] double BitsOr(double absent) const {
    return elements > 0 ? 8 * bytes / elements : absent;
  }
};

WeightFormat StoredFormat(const GgufContents& contents) {
  Stored linear;
  Stored experts;
  Stored embedding;
  for (const auto& [name, view] : contents.tensors) {
    if (view.shape.size() < 2) continue;
    if (name == "token_embd.weight" || name == "output.weight") {
      embedding.Add(view);
    } else if (name.find("_exps.") != std::string_view::npos) {
      experts.Add(view);
    } else {
      linear.Add(view);
    }
  }
  WeightFormat format;
  format.name = "the file has them";
  format.linear_bits = linear.BitsOr(16);
  format.expert_bits = experts.BitsOr(format.linear_bits);
  format.embedding_bits = embedding.BitsOr(format.linear_bits);
  format.source = "means over the tensors of the file";
  return format;
}

}  // namespace

Result<GgufFacts> ReadGgufFacts(const GgufContents& contents, const std::string& name) {
  GgufFields fields(contents);
  const std::string architecture = fields.String("general.architecture").value_or("");
  Keys keys(&fields, architecture);
  GgufFacts facts;
  ModelFacts& model = facts.model;
  model.name = name;
  model.source = "its GGUF file";
  ReadSizes(&keys, &model);
  const uint32_t layers = keys.Required("block_count");
  RETURN_IF_ERROR(fields.status());
  model.layers.resize(std::min(layers, ModelFacts::kMaxLayers + 1));
  ReadMla(&keys, &model);
  ReadExperts(&keys, &model);
  PlaceWindows(&keys, architecture, &model);
  RETURN_IF_ERROR(fields.status());
  const auto embedding = contents.tensors.find("token_embd.weight");
  if (embedding == contents.tensors.end() || embedding->second.shape.size() != 2) {
    return DataLoss(fmt::format("{}: no token_embd.weight, whose rows are the vocabulary", name));
  }
  model.vocab_size =
      static_cast<uint32_t>(std::min<uint64_t>(embedding->second.shape[0], UINT32_MAX));
  model.tied_embeddings = !contents.tensors.contains("output.weight");
  RETURN_IF_ERROR(CheckFacts(model).Annotate(name));
  facts.weights = StoredFormat(contents);
  model.stored_format = facts.weights.name;
  facts.weight_bytes = contents.tensor_bytes;
  return facts;
}

}  // namespace cleave

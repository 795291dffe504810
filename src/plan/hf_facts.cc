#include "plan/hf_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "model/format/json_file.h"

namespace cleave {
namespace {

constexpr const char* kFile = "config.json";
constexpr uint32_t kTooMany = ModelFacts::kMaxWidth + 1;

// The first of the spellings that is there.
std::optional<uint32_t> AnyUint(JsonFields* fields, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto value = fields->Uint(key);
    if (value) return value;
  }
  return std::nullopt;
}

uint32_t Required(JsonFields* fields, std::initializer_list<const char*> keys) {
  const auto value = AnyUint(fields, keys);
  return value ? *value : fields->RequiredUint(*keys.begin());
}

void ReadSizes(JsonFields* fields, ModelFacts* model) {
  model->hidden_size = Required(fields, {"hidden_size", "n_embd", "d_model"});
  model->num_heads = Required(fields, {"num_attention_heads", "n_head"});
  model->num_kv_heads =
      AnyUint(fields, {"num_key_value_heads", "n_head_kv"}).value_or(model->num_heads);
  const uint32_t plain = model->num_heads == 0 ? 0 : model->hidden_size / model->num_heads;
  model->head_dim = fields->Uint("head_dim").value_or(plain);
  model->vocab_size = Required(fields, {"vocab_size"});
  model->max_context =
      AnyUint(fields, {"max_position_embeddings", "n_positions", "max_sequence_length"})
          .value_or(131072);
}

void ReadMla(JsonFields* fields, ModelFacts* model) {
  const auto kv_rank = fields->Uint("kv_lora_rank");
  if (!kv_rank || *kv_rank == 0) return;
  model->mla = {.q_rank = fields->Uint("q_lora_rank").value_or(0),
                .kv_rank = *kv_rank,
                .rope_dim = fields->RequiredUint("qk_rope_head_dim"),
                .nope_dim = fields->RequiredUint("qk_nope_head_dim"),
                .value_dim = fields->RequiredUint("v_head_dim")};
  model->num_kv_heads = 1;
  model->head_dim =
      std::min(model->mla.nope_dim, kTooMany) + std::min(model->mla.rope_dim, kTooMany);
  // A sparse indexer keeps a key of fp8 and a scale of fp32.
  if (const auto index = fields->Uint("index_head_dim")) {
    model->index_bytes = std::min(*index, kTooMany) + 4;
  }
}

void ReadExperts(JsonFields* fields, ModelFacts* model) {
  model->num_experts =
      AnyUint(fields, {"num_local_experts", "n_routed_experts", "num_experts"}).value_or(0);
  const auto width = AnyUint(fields, {"intermediate_size", "n_inner", "ffn_hidden_size"});
  const auto dense = fields->Uint("intermediate_size_mlp");  // Llama 4, whose other is an expert's
  model->ffn_size = dense ? *dense : width.value_or(0);
  if (model->num_experts == 0) return;
  model->experts_per_token =
      Required(fields, {"num_experts_per_tok", "experts_per_token", "moe_k", "top_k_experts"});
  model->expert_ffn_size = AnyUint(fields, {"moe_intermediate_size", "expert_ffn_hidden_size"})
                               .value_or(width.value_or(0));
  const auto shared = fields->Uint("shared_expert_intermediate_size");
  const uint32_t count = fields->Uint("n_shared_experts").value_or(dense ? 1 : 0);
  const uint64_t wide =
      uint64_t{std::min(count, kTooMany)} * std::min(model->expert_ffn_size, kTooMany);
  model->shared_ffn_size =
      shared ? *shared : static_cast<uint32_t>(std::min<uint64_t>(wide, kTooMany));
}

std::vector<uint32_t> ReadUints(JsonFields* fields, const char* key) {
  std::vector<uint32_t> values;
  const Json* list = fields->Find(key);
  if (list == nullptr || !list->is_array()) return values;
  for (const Json& each : *list) {
    if (each.is_number_unsigned()) values.push_back(each.get<uint32_t>());
  }
  return values;
}

// Which layers have experts.
void PlaceExperts(JsonFields* fields, ModelFacts* model) {
  if (model->num_experts == 0) return;
  const uint32_t first = fields->Uint("first_k_dense_replace").value_or(0);
  const uint32_t step = AnyUint(fields, {"decoder_sparse_step", "interleave_moe_layer_step"})
                            .value_or(fields->Uint("moe_layer_freq").value_or(1));
  const std::vector<uint32_t> listed = ReadUints(fields, "moe_layers");
  const std::vector<uint32_t> dense = ReadUints(fields, "mlp_only_layers");
  const auto in = [](const std::vector<uint32_t>& list, uint32_t i) {
    return std::find(list.begin(), list.end(), i) != list.end();
  };
  for (uint32_t i = 0; i < model->layers.size(); ++i) {
    const bool by_rule = i >= first && (step <= 1 || (i + 1) % step == 0);
    model->layers[i].experts = listed.empty() ? by_rule && !in(dense, i) : in(listed, i);
  }
}

Status PlaceListed(const std::vector<std::string>& types, uint32_t window, ModelFacts* model) {
  if (types.size() != model->layers.size()) {
    return DataLoss(fmt::format("{}: layer_types has {} entries for {} layers", kFile, types.size(),
                                model->layers.size()));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "linear_attention") {
      model->layers[i].linear = true;
    } else if (types[i] == "sliding_attention" || types[i] == "chunked_attention") {
      model->layers[i].window = window;
    } else if (types[i] != "full_attention") {
      return Unsupported(
          fmt::format("{}: layer type \"{}\" is not known; known are "
                      "full_attention, sliding_attention, chunked_attention and "
                      "linear_attention",
                      kFile, types[i]));
    }
  }
  return OkStatus();
}

// Which layers see a window, and which are linear.
Status PlaceAttention(JsonFields* fields, ModelFacts* model) {
  const bool off = !fields->Bool("use_sliding_window").value_or(true);
  const uint32_t window =
      off ? 0 : AnyUint(fields, {"sliding_window", "attention_chunk_size"}).value_or(0);
  const std::vector<std::string> types = fields->Strings("layer_types");
  RETURN_IF_ERROR(fields->status());
  if (!types.empty()) return PlaceListed(types, window, model);
  const auto full = fields->Uint("full_attention_interval");
  const std::string type = fields->String("model_type").value_or("");
  uint32_t pattern = fields->Uint("sliding_window_pattern").value_or(0);
  if (pattern == 0 && type.starts_with("gemma3")) pattern = 6;
  if (pattern == 0 && (type.starts_with("gemma2") || type == "gpt_oss")) pattern = 2;
  if (pattern == 0 && type.starts_with("llama4")) pattern = 4;
  // Qwen's window starts at a layer, and is off unless use_sliding_window says otherwise.
  const bool qwen_off =
      type.starts_with("qwen") && !fields->Bool("use_sliding_window").value_or(false);
  for (uint32_t i = 0; i < model->layers.size(); ++i) {
    const bool nth = pattern > 0 && (i + 1) % pattern == 0;
    model->layers[i].window = nth || qwen_off ? 0 : window;
    model->layers[i].linear = full && *full > 0 && (i + 1) % *full != 0;
  }
  return fields->status();
}

void ReadLinear(JsonFields* fields, ModelFacts* model) {
  const bool linear = std::any_of(model->layers.begin(), model->layers.end(),
                                  [](const LayerFacts& layer) { return layer.linear; });
  if (!linear) return;
  model->linear = {.key_heads = fields->RequiredUint("linear_num_key_heads"),
                   .value_heads = fields->RequiredUint("linear_num_value_heads"),
                   .key_dim = fields->RequiredUint("linear_key_head_dim"),
                   .value_dim = fields->RequiredUint("linear_value_head_dim"),
                   .conv_width = fields->Uint("linear_conv_kernel_dim").value_or(4)};
  model->output_gate = fields->Bool("attn_output_gate").value_or(true);
}

Result<WeightFormat> ReadFormat(JsonFields* outer, JsonFields* text) {
  JsonFields* holder = outer->Has("quantization_config") ? outer : text;
  if (!holder->Has("quantization_config")) {
    std::string type =
        outer->String("torch_dtype")
            .value_or(
                text->String("torch_dtype").value_or(text->String("dtype").value_or("bfloat16")));
    return FindWeightFormat(type == "float32" ? "fp32" : type == "float16" ? "fp16" : "bf16");
  }
  JsonFields quant(holder->Object("quantization_config"), "config.json: quantization_config");
  const std::string method = quant.String("quant_method").value_or("");
  const uint32_t bits = quant.Uint("bits").value_or(4);
  const uint32_t group = quant.Uint("group_size").value_or(128);
  RETURN_IF_ERROR(holder->status());
  RETURN_IF_ERROR(quant.status());
  if (method == "fp8") {
    return FindWeightFormat(quant.Has("weight_block_size") ? "fp8" : "fp8-channel");
  }
  if (method == "mxfp4") return FindWeightFormat("mxfp4-experts");
  if (method == "awq" || method == "gptq") {
    ASSIGN_OR_RETURN(WeightFormat format, FindWeightFormat(method));
    if (bits < 2 || bits > 8 || group < 1 || group > (1U << 16U)) {
      return InvalidArgument(
          fmt::format("{}: {} of {} bits in groups of {}: expected 2 to 8 bits "
                      "and 1 to 65536",
                      kFile, method, bits, group));
    }
    format.linear_bits = format.expert_bits = bits + (16.0 + bits) / group;
    format.block_columns = group;
    return format;
  }
  return Unsupported(
      fmt::format("{}: quant_method \"{}\" is not known; known are fp8, mxfp4, awq "
                  "and gptq; or name the format with --quantization",
                  kFile, method));
}

}  // namespace

Result<HfFacts> ReadHfFacts(std::string_view config_json, const std::string& name) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonObject(config_json, kFile));
  JsonFields outer(json, kFile);
  const bool nested = outer.Has("text_config");
  const Json& text = nested ? outer.Object("text_config") : json;
  JsonFields fields(text, nested ? "config.json: text_config" : kFile);
  HfFacts facts;
  ModelFacts& model = facts.model;
  model.name = name;
  model.source = "its config.json";
  ReadSizes(&fields, &model);
  const uint32_t layers = Required(&fields, {"num_hidden_layers", "n_layer", "n_layers"});
  RETURN_IF_ERROR(fields.status());
  model.layers.resize(std::min(layers, ModelFacts::kMaxLayers + 1));
  ReadMla(&fields, &model);
  ReadExperts(&fields, &model);
  PlaceExperts(&fields, &model);
  RETURN_IF_ERROR(PlaceAttention(&fields, &model));
  ReadLinear(&fields, &model);
  const std::string type = fields.String("model_type").value_or("");
  const auto outer_tied = outer.Bool("tie_word_embeddings");
  model.tied_embeddings =
      fields.Bool("tie_word_embeddings").value_or(outer_tied.value_or(type.starts_with("gemma")));
  RETURN_IF_ERROR(outer.status());
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(CheckFacts(model).Annotate(kFile));
  ASSIGN_OR_RETURN(facts.weights, ReadFormat(&outer, &fields));
  model.stored_format = facts.weights.name;
  return facts;
}

}  // namespace cleave

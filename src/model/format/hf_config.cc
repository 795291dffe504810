#include "model/format/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/format/hf_rope.h"

namespace cleave {
namespace {

constexpr const char* kFile = "config.json";

// Values of the config class; 0 where the file must say.
struct ClassDefaults {
  uint32_t hidden = 0;
  uint32_t ffn = 0;
  uint32_t layers = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  // 0: as many as heads
  uint32_t head_dim = 0;  // 0: hidden / heads
  uint32_t vocab = 0;
  uint32_t max_position = 0;
  uint32_t window = 0;
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  uint32_t experts = 0;
  uint32_t experts_per_token = 0;
};

constexpr ClassDefaults kLlama = {.max_position = 2048};
constexpr ClassDefaults kMistral = {.kv_heads = 8, .max_position = 131072, .window = 4096};
constexpr ClassDefaults kQwen2 = {.kv_heads = 32, .max_position = 32768, .window = 4096};
constexpr ClassDefaults kQwen3 = {
    .kv_heads = 32, .head_dim = 128, .max_position = 32768, .window = 4096};
constexpr ClassDefaults kMixtral = {.kv_heads = 8,
                                    .max_position = 131072,
                                    .norm_eps = 1e-5,
                                    .rope_theta = 1e6,
                                    .experts = 8,
                                    .experts_per_token = 2};
constexpr ClassDefaults kQwen3Moe = {.ffn = 768,
                                     .kv_heads = 4,
                                     .max_position = 32768,
                                     .window = 4096,
                                     .experts = 128,
                                     .experts_per_token = 8};
// A multimodal Gemma's text_config holds little more than what differs from these.
constexpr ClassDefaults kGemma3 = {.hidden = 2304,
                                   .ffn = 9216,
                                   .layers = 26,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .head_dim = 256,
                                   .vocab = 262208,
                                   .max_position = 131072,
                                   .window = 4096};

struct KnownArchitecture {
  std::string_view name;
  std::string_view model_type;
  Family family;
  const ClassDefaults& defaults;
  bool in_text_config = false;  // a multimodal model: its text part is read
};

constexpr std::array<KnownArchitecture, 9> kArchitectures = {{
    {"LlamaForCausalLM", "llama", Family::kLlama, kLlama},
    {"MistralForCausalLM", "mistral", Family::kMistral, kMistral},
    {"Qwen2ForCausalLM", "qwen2", Family::kQwen2, kQwen2},
    {"Qwen3ForCausalLM", "qwen3", Family::kQwen3, kQwen3},
    {"MixtralForCausalLM", "mixtral", Family::kMixtral, kMixtral},
    {"Qwen3MoeForCausalLM", "qwen3_moe", Family::kQwen3Moe, kQwen3Moe},
    {"Gemma3ForCausalLM", "gemma3_text", Family::kGemma3, kGemma3},
    {"Gemma3TextModel", "gemma3_text", Family::kGemma3, kGemma3},
    {"Gemma3ForConditionalGeneration", "gemma3", Family::kGemma3, kGemma3, true},
}};

Result<const KnownArchitecture*> FindArchitecture(JsonFields* fields) {
  const std::vector<std::string> named = fields->Strings("architectures");
  const std::string model_type = fields->String("model_type").value_or("");
  RETURN_IF_ERROR(fields->status());
  std::string known;
  for (const KnownArchitecture& each : kArchitectures) {
    if (named.empty() ? each.model_type == model_type : each.name == named.front()) return &each;
    known += known.empty() ? "" : ", ";
    known += each.name;
  }
  return Unsupported(fmt::format("{}: architecture \"{}\" is not known; known are {}", kFile,
                                 named.empty() ? model_type : named.front(), known));
}

Status RefuseQuantisation(JsonFields* fields) {
  if (!fields->Has("quantization_config")) return OkStatus();
  JsonFields inner(fields->Object("quantization_config"), "quantization_config");
  const std::string method = inner.String("quant_method").value_or("unnamed");
  RETURN_IF_ERROR(fields->status());
  return Unsupported(
      fmt::format("{}: quantization_config with method \"{}\" is not supported; take the "
                  "unquantised weights or a GGUF file",
                  kFile, method));
}

Status RefuseWhatIsNotComputed(JsonFields* fields, Family family) {
  // These have no such switches; a bias in their files is found by its tensor.
  const bool has_switch =
      family != Family::kQwen2 && family != Family::kMistral && family != Family::kMixtral;
  for (const char* key : {"attention_bias", "mlp_bias", "use_bidirectional_attention"}) {
    const bool set = fields->Bool(key).value_or(false);
    RETURN_IF_ERROR(fields->status());
    if (set && has_switch) {
      return Unsupported(fmt::format("{}: {} true is not supported", kFile, key));
    }
  }
  const auto softcap = fields->Number("attn_logit_softcapping");
  RETURN_IF_ERROR(fields->status());
  if (family == Family::kGemma3 && softcap.value_or(0) != 0) {
    return Unsupported(
        fmt::format("{}: attn_logit_softcapping {} is not supported, only null", kFile, *softcap));
  }
  return OkStatus();
}

// Layers of experts and plain ones in one model.
Status RefuseDenseLayers(JsonFields* fields) {
  const uint32_t step = fields->Uint("decoder_sparse_step").value_or(1);
  RETURN_IF_ERROR(fields->status());
  if (step != 1) {
    return Unsupported(
        fmt::format("{}: decoder_sparse_step {} is not supported, only 1: experts in every layer",
                    kFile, step));
  }
  const Json* dense = fields->Find("mlp_only_layers");
  if (dense == nullptr || (dense->is_array() && dense->empty())) return OkStatus();
  return Unsupported(
      fmt::format("{}: mlp_only_layers {} is not supported, only []: experts in every layer", kFile,
                  dense->dump()));
}

Status ReadExperts(JsonFields* fields, const ClassDefaults& defaults, ModelConfig* config) {
  if (defaults.experts == 0) return OkStatus();
  // Both spellings are written for both families.
  const auto local = fields->Uint("num_local_experts");
  config->num_experts = fields->Uint("num_experts").value_or(local.value_or(defaults.experts));
  config->experts_per_token =
      fields->Uint("num_experts_per_tok").value_or(defaults.experts_per_token);
  config->norm_topk_prob = true;
  if (config->family == Family::kQwen3Moe) {
    RETURN_IF_ERROR(RefuseDenseLayers(fields));
    config->norm_topk_prob = fields->Bool("norm_topk_prob").value_or(false);
  }
  return fields->status();
}

uint32_t UintOr(JsonFields* fields, const char* key, uint32_t absent) {
  return absent == 0 ? fields->RequiredUint(key) : fields->Uint(key).value_or(absent);
}

Status ReadSizes(JsonFields* fields, const Json& json, const ClassDefaults& defaults,
                 ModelConfig* config) {
  config->hidden_size = UintOr(fields, "hidden_size", defaults.hidden);
  const bool own_size = config->family == Family::kQwen3Moe;
  config->ffn_size =
      UintOr(fields, own_size ? "moe_intermediate_size" : "intermediate_size", defaults.ffn);
  config->num_heads = UintOr(fields, "num_attention_heads", defaults.heads);
  // null means as many as query heads; leaving it out means the class's value.
  const bool no_kv_heads = defaults.kv_heads == 0 || json.contains("num_key_value_heads");
  config->num_kv_heads = fields->Uint("num_key_value_heads")
                             .value_or(no_kv_heads ? config->num_heads : defaults.kv_heads);
  const uint32_t plain_dim = config->num_heads == 0 ? 0 : config->hidden_size / config->num_heads;
  config->head_dim =
      fields->Uint("head_dim").value_or(defaults.head_dim == 0 ? plain_dim : defaults.head_dim);
  config->vocab_size = UintOr(fields, "vocab_size", defaults.vocab);
  config->max_position = UintOr(fields, "max_position_embeddings", defaults.max_position);
  config->norm_eps = fields->Number("rms_norm_eps").value_or(defaults.norm_eps);
  const uint32_t layers = UintOr(fields, "num_hidden_layers", defaults.layers);
  RETURN_IF_ERROR(fields->status());
  if (layers > ModelConfig::kMaxLayers) {
    return InvalidArgument(fmt::format("{}: num_hidden_layers is {}; it must be between 1 and {}",
                                       kFile, layers, ModelConfig::kMaxLayers));
  }
  config->layers.resize(layers);
  return OkStatus();
}

// layer_types when the file has it: whether each layer is local. Nothing when it has not.
Result<std::optional<std::vector<bool>>> ListedLocalLayers(JsonFields* fields, size_t layers) {
  const std::vector<std::string> types = fields->Strings("layer_types");
  RETURN_IF_ERROR(fields->status());
  if (!fields->Has("layer_types")) return std::optional<std::vector<bool>>();
  if (types.size() != layers) {
    return DataLoss(
        fmt::format("{}: layer_types has {} entries for {} layers", kFile, types.size(), layers));
  }
  std::vector<bool> local(layers);
  for (size_t i = 0; i < layers; ++i) {
    local[i] = types[i] == "sliding_attention";
    if (!local[i] && types[i] != "full_attention") {
      return Unsupported(
          fmt::format("{}: layer type \"{}\" is not supported; supported are "
                      "full_attention and sliding_attention",
                      kFile, types[i]));
    }
  }
  return std::optional<std::vector<bool>>(std::move(local));
}

// Which layers are local by the family's own rule.
Result<std::vector<bool>> RuleLocalLayers(JsonFields* fields, Family family, size_t layers) {
  std::vector<bool> local(layers);
  switch (family) {
    case Family::kLlama:
      break;
    case Family::kMistral:
    case Family::kMixtral:
    case Family::kQwen3Moe:
      local.assign(layers, true);
      break;
    case Family::kQwen2:
    case Family::kQwen3: {
      const uint32_t first = fields->Uint("max_window_layers").value_or(28);
      for (size_t i = first; i < layers; ++i) local[i] = true;
      break;
    }
    case Family::kGemma3: {
      const uint32_t period = fields->Uint("sliding_window_pattern").value_or(6);
      if (period == 0) return DataLoss(fmt::format("{}: sliding_window_pattern is 0", kFile));
      for (size_t i = 0; i < layers; ++i) local[i] = (i + 1) % period != 0;
      break;
    }
  }
  RETURN_IF_ERROR(fields->status());
  return local;
}

Status FillWindows(JsonFields* fields, const Json& json, const ClassDefaults& defaults,
                   ModelConfig* config) {
  const Family family = config->family;
  const bool qwen =
      family == Family::kQwen2 || family == Family::kQwen3 || family == Family::kQwen3Moe;
  const bool enabled =
      qwen ? fields->Bool("use_sliding_window").value_or(false) : family != Family::kLlama;
  std::optional<uint32_t> window = fields->Uint("sliding_window");
  if (!json.contains("sliding_window") && defaults.window != 0) window = defaults.window;
  RETURN_IF_ERROR(fields->status());
  if (family == Family::kGemma3 && !window.has_value()) {
    return Unsupported(fmt::format("{}: sliding_window null is not supported for Gemma 3", kFile));
  }
  if (!enabled || !window.has_value()) return OkStatus();
  if (*window == 0) {
    return DataLoss(fmt::format("{}: sliding_window is 0; null means no window", kFile));
  }
  std::optional<std::vector<bool>> local;
  // transformers windows every layer of these, whatever layer_types says.
  if (family != Family::kMistral && family != Family::kMixtral && family != Family::kQwen3Moe) {
    ASSIGN_OR_RETURN(local, ListedLocalLayers(fields, config->layers.size()));
  }
  if (!local.has_value()) {
    ASSIGN_OR_RETURN(local, RuleLocalLayers(fields, family, config->layers.size()));
  }
  for (size_t i = 0; i < config->layers.size(); ++i) {
    config->layers[i].window = (*local)[i] ? *window : 0;
  }
  return OkStatus();
}

Status FillRope(JsonFields* fields, const ClassDefaults& defaults, ModelConfig* config) {
  GemmaRope rope;
  if (config->family == Family::kGemma3) {
    ASSIGN_OR_RETURN(rope, ReadGemmaRope(fields));
  } else {
    ASSIGN_OR_RETURN(rope.global, ReadRope(fields, defaults.rope_theta));
    rope.local = rope.global;
  }
  for (LayerConfig& layer : config->layers) {
    const RopeSettings& settings = layer.window == 0 ? rope.global : rope.local;
    layer.rope_theta = settings.theta;
    layer.rope_scaling = settings.scaling;
  }
  return OkStatus();
}

Status FillActivation(JsonFields* fields, ModelConfig* config) {
  const bool gemma = config->family == Family::kGemma3;
  const std::string name = fields->String(gemma ? "hidden_activation" : "hidden_act")
                               .value_or(gemma ? "gelu_pytorch_tanh" : "silu");
  RETURN_IF_ERROR(fields->status());
  if (name == "silu" || name == "swish") {
    config->activation = Activation::kSilu;
  } else if (name == "gelu_pytorch_tanh" || name == "gelu_new") {
    config->activation = Activation::kGeluTanh;
  } else {
    return Unsupported(
        fmt::format("{}: activation \"{}\" is not supported; supported are silu and "
                    "gelu_pytorch_tanh",
                    kFile, name));
  }
  return OkStatus();
}

Status FillFamily(JsonFields* fields, ModelConfig* config) {
  const bool gemma = config->family == Family::kGemma3;
  config->qkv_bias = config->family == Family::kQwen2;
  config->qk_norm =
      config->family == Family::kQwen3 || config->family == Family::kQwen3Moe || gemma;
  config->post_norms = gemma;
  config->norm_plus_one = gemma;
  double scalar = config->head_dim;
  if (gemma) {
    config->embedding_scale = std::sqrt(static_cast<float>(config->hidden_size));
    config->final_logit_softcap = fields->Number("final_logit_softcapping").value_or(0);
    scalar = fields->Number("query_pre_attn_scalar").value_or(256);
  }
  RETURN_IF_ERROR(fields->status());
  config->attention_scale = 1.0 / std::sqrt(scalar);
  return FillActivation(fields, config);
}

// One id or a list of them.
Status AddIds(const Json& json, const char* where, uint32_t vocab_size, std::vector<int32_t>* ids) {
  const auto it = json.find("eos_token_id");
  if (it == json.end() || it->is_null()) return OkStatus();
  const Json list = it->is_array() ? *it : Json::array({*it});
  for (const Json& each : list) {
    if (!each.is_number_integer()) {
      return DataLoss(fmt::format("{}: eos_token_id is not an id or a list of ids", where));
    }
    // A negative id reads as a huge one.
    const auto id = each.get<uint64_t>();
    if (id >= vocab_size) {
      return DataLoss(fmt::format("{}: eos_token_id {} is outside the vocabulary of {}", where,
                                  each.dump(), vocab_size));
    }
    const auto value = static_cast<int32_t>(id);
    if (std::find(ids->begin(), ids->end(), value) == ids->end()) ids->push_back(value);
  }
  return OkStatus();
}

}  // namespace

Result<ModelConfig> HfConfig(const Json& json) {
  JsonFields outer(json, kFile);
  ASSIGN_OR_RETURN(const KnownArchitecture* known, FindArchitecture(&outer));
  RETURN_IF_ERROR(RefuseQuantisation(&outer));
  const Json& text = known->in_text_config ? outer.Object("text_config") : json;
  RETURN_IF_ERROR(outer.status());
  JsonFields fields(text, known->in_text_config ? "config.json: text_config" : kFile);
  ModelConfig config;
  config.family = known->family;
  config.architecture = known->name;
  RETURN_IF_ERROR(RefuseWhatIsNotComputed(&fields, config.family));
  RETURN_IF_ERROR(ReadSizes(&fields, text, known->defaults, &config));
  RETURN_IF_ERROR(FillWindows(&fields, text, known->defaults, &config));
  RETURN_IF_ERROR(ReadExperts(&fields, known->defaults, &config));
  RETURN_IF_ERROR(FillRope(&fields, known->defaults, &config));
  RETURN_IF_ERROR(FillFamily(&fields, &config));
  const auto outer_tied = outer.Bool("tie_word_embeddings");
  config.tied_embeddings = fields.Bool("tie_word_embeddings")
                               .value_or(outer_tied.value_or(known->family == Family::kGemma3));
  RETURN_IF_ERROR(outer.status());
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(config.Validate().Annotate(kFile));
  return config;
}

Result<GenerationDefaults> HfGeneration(const Json& generation, const Json& config,
                                        uint32_t vocab_size) {
  constexpr const char* kGenerationFile = "generation_config.json";
  GenerationDefaults defaults;
  RETURN_IF_ERROR(AddIds(generation, kGenerationFile, vocab_size, &defaults.eos_token_ids));
  RETURN_IF_ERROR(AddIds(config, kFile, vocab_size, &defaults.eos_token_ids));
  JsonFields fields(generation, kGenerationFile);
  // Below 0 is how some files say "none", as we do.
  defaults.temperature = std::max(-1.0, fields.Number("temperature").value_or(-1));
  defaults.top_p = std::max(-1.0, fields.Number("top_p").value_or(-1));
  defaults.min_p = std::max(-1.0, fields.Number("min_p").value_or(-1));
  defaults.repetition_penalty = std::max(-1.0, fields.Number("repetition_penalty").value_or(-1));
  const auto count = [&fields](const char* key) {
    const double value = fields.Number(key).value_or(-1);
    return value >= 0 && value <= INT32_MAX ? static_cast<int32_t>(value) : -1;
  };
  defaults.top_k = count("top_k");
  defaults.max_new_tokens = count("max_new_tokens");
  RETURN_IF_ERROR(fields.status());
  return defaults;
}

}  // namespace cleave

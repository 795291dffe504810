#include "model/format/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace cleave {
namespace {

struct KnownArchitecture {
  std::string_view name;
  Family family;
};

// Mistral models are converted as "llama", and so is Mixtral, told by its experts.
constexpr std::array<KnownArchitecture, 5> kArchitectures = {{
    {"llama", Family::kLlama},
    {"qwen2", Family::kQwen2},
    {"qwen3", Family::kQwen3},
    {"qwen3moe", Family::kQwen3Moe},
    {"gemma3", Family::kGemma3},
}};

// Gemma 3's local layers; files written before 2026 do not hold it (transformers'
// Gemma3TextConfig, default_theta).
constexpr double kGemmaLocalTheta = 10000.0;
constexpr int64_t kGemmaWindowPattern = 6;
// The one Gemma 3 whose query_pre_attn_scalar is D/H instead of d is the 27B, told by its layers.
constexpr size_t kGemma27bLayers = 62;

Result<Family> FindFamily(const std::string& architecture) {
  std::string known;
  for (const KnownArchitecture& each : kArchitectures) {
    if (each.name == architecture) return each.family;
    known += known.empty() ? "" : ", ";
    known += each.name;
  }
  return Unsupported(
      fmt::format("architecture \"{}\" is not known; known are {}", architecture, known));
}

// Reads "<architecture>.<key>".
class ArchitectureFields {
 public:
  ArchitectureFields(const GgufContents& contents, std::string architecture)
      : contents_(contents), fields_(contents), prefix_(std::move(architecture) + ".") {}

  bool Has(std::string_view key) const { return contents_.metadata.contains(Name(key)); }
  bool IsArray(std::string_view key) const {
    const auto it = contents_.metadata.find(Name(key));
    return it != contents_.metadata.end() && it->second.array_count.has_value();
  }
  uint32_t Uint(std::string_view key) { return fields_.RequiredUint(Name(key)); }
  uint32_t Uint(std::string_view key, uint32_t absent) {
    return Has(key) ? fields_.RequiredUint(Name(key)) : absent;
  }
  double Number(std::string_view key) { return fields_.RequiredNumber(Name(key)); }
  double Number(std::string_view key, double absent) {
    return fields_.Number(Name(key)).value_or(absent);
  }
  bool Bool(std::string_view key, bool absent) { return fields_.Bool(Name(key)).value_or(absent); }
  std::string String(std::string_view key) { return fields_.String(Name(key)).value_or(""); }
  std::vector<int32_t> Ints(std::string_view key) { return fields_.Ints(Name(key)); }

  [[nodiscard]] std::string Name(std::string_view key) const { return prefix_ + std::string(key); }
  [[nodiscard]] const Status& status() const { return fields_.status(); }

 private:
  const GgufContents& contents_;
  GgufFields fields_;
  std::string prefix_;
};

const TensorView* FindTensor(const GgufContents& contents, std::string_view name) {
  const auto it = contents.tensors.find(name);
  return it == contents.tensors.end() ? nullptr : &it->second;
}

Status ReadSizes(ArchitectureFields* fields, ModelConfig* config) {
  for (const std::string_view key :
       {"feed_forward_length", "attention.head_count", "attention.head_count_kv"}) {
    if (!fields->IsArray(key)) continue;
    return Unsupported(fmt::format("{} differs from layer to layer; one value for all is supported",
                                   fields->Name(key)));
  }
  config->hidden_size = fields->Uint("embedding_length");
  config->num_heads = fields->Uint("attention.head_count");
  config->num_kv_heads = fields->Uint("attention.head_count_kv", config->num_heads);
  constexpr std::string_view kExpertSize = "expert_feed_forward_length";
  const bool own_size = config->has_experts() && fields->Has(kExpertSize);
  config->ffn_size = fields->Uint(own_size ? kExpertSize : "feed_forward_length");
  config->max_position = fields->Uint("context_length");
  config->norm_eps = fields->Number("attention.layer_norm_rms_epsilon");
  const uint32_t plain_dim = config->num_heads == 0 ? 0 : config->hidden_size / config->num_heads;
  config->head_dim = fields->Uint("attention.key_length", plain_dim);
  config->final_logit_softcap = fields->Number("final_logit_softcapping", 0);
  const uint32_t layers = fields->Uint("block_count");
  RETURN_IF_ERROR(fields->status());

  if (layers > ModelConfig::kMaxLayers) {
    return InvalidArgument(fmt::format("{} is {}; it must be between 1 and {}",
                                       fields->Name("block_count"), layers,
                                       ModelConfig::kMaxLayers));
  }
  config->layers.resize(layers);
  return OkStatus();
}

// Mixtures that are computed otherwise: shared experts, groups, other gates, dense layers.
Status RefuseOtherMixtures(ArchitectureFields* fields) {
  struct Known {
    std::string_view key;
    double plain;
  };
  constexpr double kSoftmax = 1;
  for (const auto& [key, plain] :
       {Known{"expert_shared_count", 0}, Known{"expert_group_count", 1},
        Known{"expert_gating_func", kSoftmax}, Known{"expert_weights_scale", 1},
        Known{"leading_dense_block_count", 0}}) {
    const double value = fields->Number(key, plain);
    RETURN_IF_ERROR(fields->status());
    // 0 is how writers say that a mixture has none.
    if (value == plain || value == 0) continue;
    return Unsupported(
        fmt::format("{} is {}; only {} is supported", fields->Name(key), value, plain));
  }
  return OkStatus();
}

Status ReadExperts(ArchitectureFields* fields, ModelConfig* config) {
  const bool always = config->family == Family::kQwen3Moe;
  const uint32_t experts = always ? fields->Uint("expert_count") : fields->Uint("expert_count", 0);
  RETURN_IF_ERROR(fields->status());
  if (experts == 0 && !always) return OkStatus();
  if (config->family == Family::kLlama) config->family = Family::kMixtral;
  if (config->family != Family::kMixtral && !always) {
    return Unsupported(fmt::format("{} is {}; experts are supported in llama and qwen3moe",
                                   fields->Name("expert_count"), experts));
  }
  config->num_experts = experts;
  config->experts_per_token = fields->Uint("expert_used_count");
  config->norm_topk_prob = fields->Bool("expert_weights_norm", true);
  return RefuseOtherMixtures(fields);
}

Status RefuseWhatIsNotComputed(ArchitectureFields* fields, const ModelConfig& config) {
  const uint32_t value_dim = fields->Uint("attention.value_length", config.head_dim);
  const uint32_t rotary_dim = fields->Uint("rope.dimension_count", config.head_dim);
  const bool causal = fields->Bool("attention.causal", true);
  const double score_softcap = fields->Number("attn_logit_softcapping", 0);
  RETURN_IF_ERROR(fields->status());
  if (value_dim != config.head_dim) {
    return Unsupported(fmt::format("{} is {} and the key length {}; equal ones are supported",
                                   fields->Name("attention.value_length"), value_dim,
                                   config.head_dim));
  }
  if (rotary_dim != config.head_dim) {
    return Unsupported(fmt::format("{} is {} of a head's {}; rotation of whole heads is supported",
                                   fields->Name("rope.dimension_count"), rotary_dim,
                                   config.head_dim));
  }
  if (!causal) return Unsupported("attention is not causal; decoder-only models are supported");
  if (score_softcap != 0) {
    return Unsupported(fmt::format("{} is {}; capped attention scores are not supported",
                                   fields->Name("attn_logit_softcapping"), score_softcap));
  }
  return OkStatus();
}

Result<RopeScaling> ReadScaling(ArchitectureFields* fields) {
  RopeScaling scaling;
  const std::string type = fields->String("rope.scaling.type");
  // scale_linear is the older name, without a type.
  const double factor =
      fields->Number("rope.scaling.factor", fields->Number("rope.scale_linear", 1.0));
  RETURN_IF_ERROR(fields->status());
  if (!type.empty() && type != "none" && type != "linear") {
    return Unsupported(
        fmt::format("rope scaling type \"{}\" is not supported; supported are none "
                    "and linear, and the factors of rope_freqs.weight",
                    type));
  }
  if (type == "none" || factor == 1.0 || factor == 0.0) return scaling;
  scaling.kind = RopeScaling::Kind::kLinear;
  scaling.factor = factor;
  return scaling;
}

// Per-pair divisors, written for Llama 3.1 and later in place of the scaling's four numbers.
Status ReadFactors(const GgufContents& contents, const ModelConfig& config, RopeScaling* scaling) {
  const TensorView* stored = FindTensor(contents, "rope_freqs.weight");
  if (stored == nullptr) return OkStatus();
  if (scaling->kind != RopeScaling::Kind::kNone) {
    return Unsupported("rope_freqs.weight together with rope scaling is not supported");
  }
  if (stored->shape.size() != 1 || stored->cols() != config.head_dim / 2) {
    return DataLoss(fmt::format(
        "tensor rope_freqs.weight has {} elements in {} dimensions; head "
        "size {} needs {} in one",
        stored->elements(), stored->shape.size(), config.head_dim, config.head_dim / 2));
  }
  scaling->kind = RopeScaling::Kind::kFactors;
  scaling->freq_factors.resize(stored->cols());
  DequantiseRow(stored->dtype, stored->data, stored->cols(), scaling->freq_factors.data());
  return OkStatus();
}

// One value for all layers.
Status FillPlainLayers(const GgufContents& contents, ArchitectureFields* fields,
                       ModelConfig* config) {
  LayerConfig layer;
  layer.rope_theta = fields->Number("rope.freq_base", 10000.0);
  layer.window = fields->Uint("attention.sliding_window", 0);
  ASSIGN_OR_RETURN(layer.rope_scaling, ReadScaling(fields));
  RETURN_IF_ERROR(ReadFactors(contents, *config, &layer.rope_scaling));
  RETURN_IF_ERROR(fields->status());
  config->layers.assign(config->layers.size(), layer);
  return OkStatus();
}

// Which layers are local: newer files say, as a period or per layer.
Result<std::vector<bool>> LocalLayers(ArchitectureFields* fields, size_t layers) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  std::vector<bool> local(layers);
  if (fields->IsArray(kKey)) {
    const std::vector<int32_t> flags = fields->Ints(kKey);
    RETURN_IF_ERROR(fields->status());
    if (flags.size() != layers) {
      return DataLoss(
          fmt::format("{} has {} entries for {} layers", fields->Name(kKey), flags.size(), layers));
    }
    for (size_t i = 0; i < layers; ++i) local[i] = flags[i] != 0;
    return local;
  }
  const uint32_t period = fields->Uint(kKey, kGemmaWindowPattern);
  RETURN_IF_ERROR(fields->status());
  if (period == 0) return DataLoss(fmt::format("{} is 0", fields->Name(kKey)));
  for (size_t i = 0; i < layers; ++i) local[i] = (i + 1) % period != 0;
  return local;
}

Status FillGemmaLayers(ArchitectureFields* fields, ModelConfig* config) {
  const uint32_t window = fields->Uint("attention.sliding_window");
  LayerConfig global;
  global.rope_theta = fields->Number("rope.freq_base", 1e6);
  ASSIGN_OR_RETURN(global.rope_scaling, ReadScaling(fields));
  LayerConfig local;  // never scaled
  local.window = window;
  local.rope_theta = fields->Number("rope.freq_base_swa", kGemmaLocalTheta);
  ASSIGN_OR_RETURN(const std::vector<bool> is_local, LocalLayers(fields, config->layers.size()));
  RETURN_IF_ERROR(fields->status());
  for (size_t i = 0; i < is_local.size(); ++i) config->layers[i] = is_local[i] ? local : global;
  return OkStatus();
}

void FillFamily(const GgufContents& contents, ModelConfig* config) {
  config->tied_embeddings = FindTensor(contents, "output.weight") == nullptr;
  config->qkv_bias =
      config->family == Family::kQwen2 || FindTensor(contents, "blk.0.attn_q.bias") != nullptr;
  config->qk_norm = config->family == Family::kQwen3 || config->family == Family::kQwen3Moe ||
                    config->family == Family::kGemma3;
  if (config->family != Family::kGemma3) return;
  config->post_norms = true;
  config->activation = Activation::kGeluTanh;
  config->embedding_scale = std::sqrt(static_cast<float>(config->hidden_size));
}

double DefaultAttentionScale(const ModelConfig& config) {
  double scalar = config.head_dim;
  if (config.family == Family::kGemma3 && config.layers.size() == kGemma27bLayers) {
    scalar = static_cast<double>(config.hidden_size) / config.num_heads;
  }
  return 1.0 / std::sqrt(scalar);
}

Status RefuseOtherKinds(GgufFields* fields) {
  const std::string type = fields->String("general.type").value_or("model");
  RETURN_IF_ERROR(fields->status());
  if (type == "model") return OkStatus();
  return Unsupported(fmt::format("general.type is \"{}\"; a whole model is wanted", type));
}

Status SetSampling(GgufFields* fields, GenerationDefaults* defaults) {
  const auto number = [fields](std::string_view key, double* out) {
    const auto value = fields->Number(fmt::format("general.sampling.{}", key));
    if (value.has_value() && std::isfinite(*value) && *value >= 0) *out = *value;
  };
  number("temp", &defaults->temperature);
  number("top_p", &defaults->top_p);
  number("min_p", &defaults->min_p);
  number("penalty_repeat", &defaults->repetition_penalty);
  const auto top_k = fields->Int("general.sampling.top_k");
  if (top_k.has_value() && *top_k >= 0 && *top_k <= INT32_MAX) {
    defaults->top_k = static_cast<int32_t>(*top_k);
  }
  return fields->status();
}

}  // namespace

Result<ModelConfig> GgufConfig(const GgufContents& contents) {
  GgufFields general(contents);
  const auto architecture = general.String("general.architecture");
  RETURN_IF_ERROR(general.status());
  if (!architecture.has_value()) return DataLoss("metadata key general.architecture is missing");
  RETURN_IF_ERROR(RefuseOtherKinds(&general));
  ModelConfig config;
  config.architecture = *architecture;
  ASSIGN_OR_RETURN(config.family, FindFamily(*architecture));
  ArchitectureFields fields(contents, *architecture);
  RETURN_IF_ERROR(ReadExperts(&fields, &config));
  RETURN_IF_ERROR(ReadSizes(&fields, &config));
  RETURN_IF_ERROR(RefuseWhatIsNotComputed(&fields, config));
  const TensorView* embedding = FindTensor(contents, "token_embd.weight");
  if (embedding == nullptr) return DataLoss("tensor token_embd.weight is missing");
  config.vocab_size = static_cast<uint32_t>(std::min<uint64_t>(embedding->rows(), UINT32_MAX));
  FillFamily(contents, &config);
  if (config.family == Family::kGemma3) {
    RETURN_IF_ERROR(FillGemmaLayers(&fields, &config));
  } else {
    RETURN_IF_ERROR(FillPlainLayers(contents, &fields, &config));
  }
  config.attention_scale = fields.Number("attention.scale", DefaultAttentionScale(config));
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(config.Validate());
  return config;
}

RowOrder GgufQkOrder(Family family) {
  const bool llama = family == Family::kLlama || family == Family::kMixtral;
  return llama ? RowOrder::kInterleavedHalves : RowOrder::kPlain;
}

Result<GenerationDefaults> GgufGeneration(const GgufContents& contents,
                                          const TokenizerSource& tokenizer) {
  GgufFields fields(contents);
  GenerationDefaults defaults;
  const auto add = [&defaults](std::optional<int64_t> id) {
    if (!id.has_value()) return;
    auto& ids = defaults.eos_token_ids;
    const auto value = static_cast<int32_t>(*id);
    if (std::find(ids.begin(), ids.end(), value) == ids.end()) ids.push_back(value);
  };
  const auto vocabulary = static_cast<int64_t>(tokenizer.tokens.size());
  for (const std::string_view key : {"eos", "eot", "eom"}) {
    const auto id = fields.Int(fmt::format("tokenizer.ggml.{}_token_id", key));
    if (id.has_value() && *id >= 0 && *id < vocabulary) add(id);
  }
  // Gemma's files name only <eos>, while a chat turn ends with this one.
  const auto turn_end =
      std::find(tokenizer.tokens.begin(), tokenizer.tokens.end(), "<end_of_turn>");
  const bool gemma = fields.String("general.architecture").value_or("") == "gemma3";
  if (gemma && turn_end != tokenizer.tokens.end()) add(turn_end - tokenizer.tokens.begin());
  RETURN_IF_ERROR(SetSampling(&fields, &defaults));
  return defaults;
}

}  // namespace cleave

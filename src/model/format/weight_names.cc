#include "model/format/weight_names.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace cleave {
namespace {

bool IsGguf(const TensorNaming& naming) { return naming.kind == TensorNaming::Kind::kGguf; }

// Weights outside the layers; empty for a role inside them.
std::string OuterName(const TensorNaming& naming, WeightRole role) {
  switch (role) {
    case WeightRole::kEmbedding:
      return IsGguf(naming) ? "token_embd.weight" : naming.body_prefix + "embed_tokens.weight";
    case WeightRole::kFinalNorm:
      return IsGguf(naming) ? "output_norm.weight" : naming.body_prefix + "norm.weight";
    case WeightRole::kHead:
      return IsGguf(naming) ? "output.weight" : naming.head_prefix + "lm_head.weight";
    default:
      return {};
  }
}

struct LayerNames {
  std::string_view gguf;
  std::string_view hugging_face;
};

LayerNames NamesInLayer(Family family, WeightRole role) {
  const bool gemma = family == Family::kGemma3;
  switch (role) {
    case WeightRole::kAttnNorm:
      return {"attn_norm.weight", "input_layernorm.weight"};
    case WeightRole::kQ:
      return {"attn_q.weight", "self_attn.q_proj.weight"};
    case WeightRole::kK:
      return {"attn_k.weight", "self_attn.k_proj.weight"};
    case WeightRole::kV:
      return {"attn_v.weight", "self_attn.v_proj.weight"};
    case WeightRole::kQBias:
      return {"attn_q.bias", "self_attn.q_proj.bias"};
    case WeightRole::kKBias:
      return {"attn_k.bias", "self_attn.k_proj.bias"};
    case WeightRole::kVBias:
      return {"attn_v.bias", "self_attn.v_proj.bias"};
    case WeightRole::kQNorm:
      return {"attn_q_norm.weight", "self_attn.q_norm.weight"};
    case WeightRole::kKNorm:
      return {"attn_k_norm.weight", "self_attn.k_norm.weight"};
    case WeightRole::kO:
      return {"attn_output.weight", "self_attn.o_proj.weight"};
    case WeightRole::kAttnPostNorm:
      return {"post_attention_norm.weight", "post_attention_layernorm.weight"};
    case WeightRole::kFfnNorm:
      // Hugging Face names the norm after its place, and Gemma 3 has one more before it.
      return {"ffn_norm.weight", gemma ? std::string_view("pre_feedforward_layernorm.weight")
                                       : std::string_view("post_attention_layernorm.weight")};
    case WeightRole::kGate:
      return {"ffn_gate.weight", "mlp.gate_proj.weight"};
    case WeightRole::kUp:
      return {"ffn_up.weight", "mlp.up_proj.weight"};
    case WeightRole::kDown:
      return {"ffn_down.weight", "mlp.down_proj.weight"};
    case WeightRole::kFfnPostNorm:
      return {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"};
    default:
      break;
  }
  return {};
}

// Two halves of a name in a file of one tensor per expert, whose number stands between them.
struct ExpertNames {
  std::string_view gguf;
  std::string_view mixtral;
  std::string_view qwen;
};

ExpertNames NamesOfEach(WeightRole role) {
  switch (role) {
    case WeightRole::kExpertGate:
      return {"ffn_gate", "w1", "gate_proj"};
    case WeightRole::kExpertUp:
      return {"ffn_up", "w3", "up_proj"};
    default:
      return {"ffn_down", "w2", "down_proj"};
  }
}

bool IsExpertRole(WeightRole role) {
  return role == WeightRole::kExpertGate || role == WeightRole::kExpertUp ||
         role == WeightRole::kExpertDown;
}

std::string RouterName(Family family, const TensorNaming& naming) {
  if (IsGguf(naming)) return "ffn_gate_inp.weight";
  const bool original =
      family == Family::kMixtral && naming.experts == TensorNaming::Experts::kEach;
  return original ? "block_sparse_moe.gate.weight" : "mlp.gate.weight";
}

std::string ExpertName(Family family, const TensorNaming& naming, WeightId id) {
  const ExpertNames names = NamesOfEach(id.role);
  if (naming.experts == TensorNaming::Experts::kEach) {
    if (IsGguf(naming)) return fmt::format("{}.{}.weight", names.gguf, id.expert);
    if (family == Family::kMixtral) {
      return fmt::format("block_sparse_moe.experts.{}.{}.weight", id.expert, names.mixtral);
    }
    return fmt::format("mlp.experts.{}.{}.weight", id.expert, names.qwen);
  }
  const bool gate_up =
      naming.experts == TensorNaming::Experts::kFused && id.role != WeightRole::kExpertDown;
  if (IsGguf(naming)) {
    return gate_up ? "ffn_gate_up_exps.weight" : fmt::format("{}_exps.weight", names.gguf);
  }
  return fmt::format("mlp.experts.{}", gate_up ? std::string_view("gate_up_proj") : names.qwen);
}

std::string LayerPrefix(const TensorNaming& naming) {
  return IsGguf(naming) ? "blk." : naming.body_prefix + "layers.";
}

std::vector<WeightRole> LayerRoles(const ModelConfig& config) {
  std::vector<WeightRole> roles = {WeightRole::kAttnNorm, WeightRole::kQ, WeightRole::kK,
                                   WeightRole::kV,        WeightRole::kO, WeightRole::kFfnNorm};
  const auto add = [&roles](std::initializer_list<WeightRole> more) {
    roles.insert(roles.end(), more);
  };
  if (config.has_experts()) {
    add({WeightRole::kRouter});
  } else {
    add({WeightRole::kGate, WeightRole::kUp, WeightRole::kDown});
  }
  if (config.qkv_bias) add({WeightRole::kQBias, WeightRole::kKBias, WeightRole::kVBias});
  if (config.qk_norm) add({WeightRole::kQNorm, WeightRole::kKNorm});
  if (config.post_norms) add({WeightRole::kAttnPostNorm, WeightRole::kFfnPostNorm});
  return roles;
}

std::vector<uint64_t> ShapeOf(const ModelConfig& config, WeightRole role) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t query = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t key = uint64_t{config.num_kv_heads} * config.head_dim;
  switch (role) {
    case WeightRole::kEmbedding:
    case WeightRole::kHead:
      return {config.vocab_size, hidden};
    case WeightRole::kFinalNorm:
    case WeightRole::kAttnNorm:
    case WeightRole::kAttnPostNorm:
    case WeightRole::kFfnNorm:
    case WeightRole::kFfnPostNorm:
      return {hidden};
    case WeightRole::kQ:
      return {query, hidden};
    case WeightRole::kK:
    case WeightRole::kV:
      return {key, hidden};
    case WeightRole::kQBias:
      return {query};
    case WeightRole::kKBias:
    case WeightRole::kVBias:
      return {key};
    case WeightRole::kQNorm:
    case WeightRole::kKNorm:
      return {config.head_dim};
    case WeightRole::kO:
      return {hidden, query};
    case WeightRole::kRouter:
      return {config.num_experts, hidden};
    case WeightRole::kGate:
    case WeightRole::kUp:
    case WeightRole::kExpertGate:
    case WeightRole::kExpertUp:
      return {config.ffn_size, hidden};
    case WeightRole::kDown:
    case WeightRole::kExpertDown:
      return {hidden, config.ffn_size};
  }
  return {};
}

// The experts' matrices of a layer.
void AddExperts(const ModelConfig& config, const TensorNaming& naming, uint32_t layer,
                std::vector<WeightSpec>* specs) {
  constexpr std::array kRoles{WeightRole::kExpertGate, WeightRole::kExpertUp,
                              WeightRole::kExpertDown};
  const bool each = naming.experts == TensorNaming::Experts::kEach;
  for (uint32_t expert = 0; expert < (each ? config.num_experts : 1); ++expert) {
    for (const WeightRole role : kRoles) {
      const WeightId id{.role = role, .layer = layer, .expert = expert};
      WeightSpec spec{id, WeightName(config.family, naming, id), ShapeOf(config, role)};
      if (!each) {
        const bool gate_up =
            naming.experts == TensorNaming::Experts::kFused && role != WeightRole::kExpertDown;
        const uint64_t rows = spec.shape[0];
        spec.stack = {.experts = config.num_experts,
                      .stride_rows = gate_up ? 2 * rows : rows,
                      .first_row = gate_up && role == WeightRole::kExpertUp ? rows : 0,
                      .shape = spec.shape};
        spec.shape = {config.num_experts, spec.stack.stride_rows, spec.stack.shape[1]};
      }
      specs->push_back(std::move(spec));
    }
  }
}

}  // namespace

std::string WeightName(Family family, const TensorNaming& naming, WeightId id) {
  std::string outer = OuterName(naming, id.role);
  if (!outer.empty()) return outer;
  std::string prefix = fmt::format("{}{}.", LayerPrefix(naming), id.layer);
  if (id.role == WeightRole::kRouter) return prefix + RouterName(family, naming);
  if (IsExpertRole(id.role)) return prefix + ExpertName(family, naming, id);
  const LayerNames names = NamesInLayer(family, id.role);
  return prefix.append(IsGguf(naming) ? names.gguf : names.hugging_face);
}

std::vector<WeightSpec> OuterWeightSpecs(const ModelConfig& config, const TensorNaming& naming) {
  std::vector<WeightSpec> specs;
  const auto add = [&](WeightRole role) {
    specs.push_back({{role}, WeightName(config.family, naming, {role}), ShapeOf(config, role)});
  };
  add(WeightRole::kEmbedding);
  add(WeightRole::kFinalNorm);
  if (!config.tied_embeddings) add(WeightRole::kHead);
  return specs;
}

std::vector<WeightSpec> LayerWeightSpecs(const ModelConfig& config, const TensorNaming& naming,
                                         uint32_t layer) {
  std::vector<WeightSpec> specs;
  for (const WeightRole role : LayerRoles(config)) {
    const WeightId id{.role = role, .layer = layer};
    specs.push_back({id, WeightName(config.family, naming, id), ShapeOf(config, role)});
  }
  if (config.has_experts()) AddExperts(config, naming, layer, &specs);
  return specs;
}

bool WouldChangeResult(const TensorNaming& naming, std::string_view tensor) {
  if (tensor.ends_with("rotary_emb.inv_freq")) return false;
  const std::string head = OuterName(naming, WeightRole::kHead);
  const std::string norm = OuterName(naming, WeightRole::kFinalNorm);
  for (const std::string& outer : {head, norm}) {
    const std::string_view stem = std::string_view(outer).substr(0, outer.rfind('.'));
    if (tensor.starts_with(stem) && tensor.substr(stem.size()) == ".bias") return true;
  }
  const std::string prefix = LayerPrefix(naming);
  if (!tensor.starts_with(prefix)) return false;
  const std::string_view rest = tensor.substr(prefix.size());
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  return error == std::errc() && end != rest.data() + rest.size() && *end == '.';
}

}  // namespace cleave

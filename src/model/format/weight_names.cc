#include "model/format/weight_names.h"

#include <fmt/format.h>

#include <charconv>

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
    case WeightRole::kEmbedding:
    case WeightRole::kFinalNorm:
    case WeightRole::kHead:
      break;
  }
  return {};
}

std::string LayerPrefix(const TensorNaming& naming) {
  return IsGguf(naming) ? "blk." : naming.body_prefix + "layers.";
}

std::vector<WeightRole> LayerRoles(const ModelConfig& config) {
  std::vector<WeightRole> roles = {WeightRole::kAttnNorm, WeightRole::kQ,  WeightRole::kK,
                                   WeightRole::kV,        WeightRole::kO,  WeightRole::kFfnNorm,
                                   WeightRole::kGate,     WeightRole::kUp, WeightRole::kDown};
  const auto add = [&roles](std::initializer_list<WeightRole> more) {
    roles.insert(roles.end(), more);
  };
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
    case WeightRole::kGate:
    case WeightRole::kUp:
      return {config.ffn_size, hidden};
    case WeightRole::kDown:
      return {hidden, config.ffn_size};
  }
  return {};
}

}  // namespace

std::string WeightName(Family family, const TensorNaming& naming, WeightId id) {
  std::string outer = OuterName(naming, id.role);
  if (!outer.empty()) return outer;
  const LayerNames names = NamesInLayer(family, id.role);
  return fmt::format("{}{}.{}", LayerPrefix(naming), id.layer,
                     IsGguf(naming) ? names.gguf : names.hugging_face);
}

std::vector<WeightSpec> WeightSpecsOf(const ModelConfig& config, const TensorNaming& naming) {
  std::vector<WeightSpec> specs;
  const auto add = [&](WeightRole role, uint32_t layer) {
    const WeightId id{.role = role, .layer = layer};
    specs.push_back({id, WeightName(config.family, naming, id), ShapeOf(config, role)});
  };
  add(WeightRole::kEmbedding, 0);
  add(WeightRole::kFinalNorm, 0);
  if (!config.tied_embeddings) add(WeightRole::kHead, 0);
  const std::vector<WeightRole> roles = LayerRoles(config);
  for (uint32_t layer = 0; layer < config.num_layers(); ++layer) {
    for (const WeightRole role : roles) add(role, layer);
  }
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

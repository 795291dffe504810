#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace cleave {
namespace {

// Far above any model of these families, and low enough that products of two fit 64 bits and
// single values 32 bits with room.
constexpr uint32_t kMaxHidden = 1U << 17U;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxFfn = 1U << 20U;
constexpr uint32_t kMaxVocab = 1U << 24U;
constexpr uint32_t kMaxPositions = 1U << 30U;
constexpr uint32_t kMaxAttentionWidth = 1U << 20U;  // H·d

Status InRange(std::string_view field, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(
      fmt::format("{} is {}; it must be between {} and {}", field, value, low, high));
}

Status Positive(std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return OkStatus();
  return InvalidArgument(fmt::format("{} is {}; it must be a number above 0", field, value));
}

Status ValidateLlama3(const RopeScaling& scaling) {
  RETURN_IF_ERROR(Positive("rope_scaling.low_freq_factor", scaling.low_freq_factor));
  RETURN_IF_ERROR(Positive("rope_scaling.high_freq_factor", scaling.high_freq_factor));
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    return InvalidArgument(
        fmt::format("rope_scaling.high_freq_factor is {}; it must be above low_freq_factor, {}",
                    scaling.high_freq_factor, scaling.low_freq_factor));
  }
  return InRange("rope_scaling.original_max_position_embeddings", scaling.original_context, 1,
                 kMaxPositions);
}

Status ValidateFactors(const RopeScaling& scaling, uint32_t head_dim) {
  if (scaling.freq_factors.size() != head_dim / 2) {
    return InvalidArgument(fmt::format("rope frequency factors: {} of them; head_dim {} needs {}",
                                       scaling.freq_factors.size(), head_dim, head_dim / 2));
  }
  for (const float factor : scaling.freq_factors) {
    RETURN_IF_ERROR(Positive("a rope frequency factor", factor));
  }
  return OkStatus();
}

Status ValidateLayer(const LayerConfig& layer, uint32_t head_dim) {
  RETURN_IF_ERROR(InRange("sliding_window", layer.window, 0, kMaxPositions));
  RETURN_IF_ERROR(Positive("rope_theta", layer.rope_theta));
  const RopeScaling& scaling = layer.rope_scaling;
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      return OkStatus();
    case RopeScaling::Kind::kLinear:
      return Positive("rope_scaling.factor", scaling.factor);
    case RopeScaling::Kind::kLlama3:
      RETURN_IF_ERROR(Positive("rope_scaling.factor", scaling.factor));
      return ValidateLlama3(scaling);
    case RopeScaling::Kind::kFactors:
      return ValidateFactors(scaling, head_dim);
  }
  return Internal("rope_scaling: unknown kind");
}

Status ValidateHeads(const ModelConfig& config) {
  RETURN_IF_ERROR(InRange("num_attention_heads", config.num_heads, 1, kMaxHeads));
  RETURN_IF_ERROR(InRange("num_key_value_heads", config.num_kv_heads, 1, config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    return InvalidArgument(
        fmt::format("num_key_value_heads is {}; it must divide num_attention_heads, {}",
                    config.num_kv_heads, config.num_heads));
  }
  RETURN_IF_ERROR(InRange("head_dim", config.head_dim, 2, kMaxHeadDim));
  if (config.head_dim % 2 != 0) {
    return InvalidArgument(fmt::format("head_dim is {}; it must be even", config.head_dim));
  }
  return InRange("num_attention_heads times head_dim", uint64_t{config.num_heads} * config.head_dim,
                 2, kMaxAttentionWidth);
}

Status ValidateExperts(const ModelConfig& config) {
  const bool mixture = config.family == Family::kMixtral || config.family == Family::kQwen3Moe;
  if (!mixture && !config.has_experts()) return OkStatus();
  RETURN_IF_ERROR(InRange("num_experts", config.num_experts, 1, ModelConfig::kMaxExperts));
  return InRange("num_experts_per_tok", config.experts_per_token, 1,
                 std::min(config.num_experts, ModelConfig::kMaxExpertsPerToken));
}

}  // namespace

Status ModelConfig::Validate() const {
  RETURN_IF_ERROR(InRange("hidden_size", hidden_size, 1, kMaxHidden));
  RETURN_IF_ERROR(ValidateHeads(*this));
  RETURN_IF_ERROR(InRange("intermediate_size", ffn_size, 1, kMaxFfn));
  RETURN_IF_ERROR(ValidateExperts(*this));
  RETURN_IF_ERROR(InRange("vocab_size", vocab_size, 1, kMaxVocab));
  RETURN_IF_ERROR(InRange("max_position_embeddings", max_position, 1, kMaxPositions));
  RETURN_IF_ERROR(InRange("num_hidden_layers", layers.size(), 1, ModelConfig::kMaxLayers));
  RETURN_IF_ERROR(Positive("rms_norm_eps", norm_eps));
  RETURN_IF_ERROR(Positive("the attention scale", attention_scale));
  RETURN_IF_ERROR(Positive("the embedding scale", embedding_scale));
  if (final_logit_softcap != 0) {
    RETURN_IF_ERROR(Positive("final_logit_softcapping", final_logit_softcap));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    RETURN_IF_ERROR(ValidateLayer(layers[i], head_dim).Annotate(fmt::format("layer {}", i)));
  }
  return OkStatus();
}

}  // namespace cleave

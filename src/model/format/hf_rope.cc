#include "model/format/hf_rope.h"

#include <fmt/format.h>

namespace cleave {
namespace {

// transformers' Gemma3TextConfig, default_theta.
constexpr double kGemmaGlobalTheta = 1e6;
constexpr double kGemmaLocalTheta = 1e4;

Status RequireNumber(JsonFields* params, const char* key, double* out) {
  const auto value = params->Number(key);
  RETURN_IF_ERROR(params->status());
  if (!value.has_value()) {
    return DataLoss(fmt::format("{}: {} is missing; its rope type needs it", params->where(), key));
  }
  *out = *value;
  return OkStatus();
}

Status ReadLlama3(JsonFields* params, JsonFields* config, RopeScaling* scaling) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  RETURN_IF_ERROR(RequireNumber(params, "factor", &scaling->factor));
  RETURN_IF_ERROR(RequireNumber(params, "low_freq_factor", &scaling->low_freq_factor));
  RETURN_IF_ERROR(RequireNumber(params, "high_freq_factor", &scaling->high_freq_factor));
  JsonFields* holder = params->Has(kOriginal) ? params : config;
  scaling->original_context = holder->RequiredUint(kOriginal);
  return holder->status();
}

// `params` is rope_scaling, rope_parameters, or one kind's part of the latter.
Result<RopeScaling> ReadScaling(JsonFields* params, JsonFields* config) {
  RopeScaling scaling;
  const auto type = params->String(params->Has("rope_type") ? "rope_type" : "type");
  const auto part = params->Number("partial_rotary_factor");
  const auto outer_part = config->Number("partial_rotary_factor");
  RETURN_IF_ERROR(params->status());
  RETURN_IF_ERROR(config->status());
  const double rotated = part.value_or(outer_part.value_or(1.0));
  if (rotated != 1.0) {
    return Unsupported(fmt::format("{}: partial_rotary_factor {} is not supported, only 1",
                                   params->where(), rotated));
  }
  const std::string name = type.value_or("default");
  if (name == "default") return scaling;
  if (name == "linear") {
    scaling.kind = RopeScaling::Kind::kLinear;
    RETURN_IF_ERROR(RequireNumber(params, "factor", &scaling.factor));
    return scaling;
  }
  if (name == "llama3") {
    scaling.kind = RopeScaling::Kind::kLlama3;
    RETURN_IF_ERROR(ReadLlama3(params, config, &scaling));
    return scaling;
  }
  return Unsupported(
      fmt::format("{}: rope type \"{}\" is not supported; supported are default, linear and llama3",
                  params->where(), name));
}

std::string Inside(const JsonFields& fields, const char* key) {
  return fields.where() + ": " + key;
}

Result<RopeSettings> Read(JsonFields* params, JsonFields* config, const char* outer_theta,
                          double default_theta) {
  RopeSettings rope;
  const auto inner = params->Number("rope_theta");
  rope.theta = inner.value_or(config->Number(outer_theta).value_or(default_theta));
  ASSIGN_OR_RETURN(rope.scaling, ReadScaling(params, config));
  RETURN_IF_ERROR(params->status());
  RETURN_IF_ERROR(config->status());
  return rope;
}

const char* ParamsKey(const JsonFields& config) {
  return config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
}

}  // namespace

Result<RopeSettings> ReadRope(JsonFields* config, double default_theta) {
  const char* key = ParamsKey(*config);
  JsonFields params(config->Object(key), Inside(*config, key));
  return Read(&params, config, "rope_theta", default_theta);
}

Result<GemmaRope> ReadGemmaRope(JsonFields* config) {
  const char* key = ParamsKey(*config);
  const Json& params = config->Object(key);
  JsonFields by_kind(params, Inside(*config, key));
  const bool nested = by_kind.Has("full_attention") || by_kind.Has("sliding_attention");
  JsonFields global(nested ? by_kind.Object("full_attention") : params,
                    nested ? Inside(by_kind, "full_attention") : by_kind.where());
  JsonFields local(by_kind.Object("sliding_attention"), Inside(by_kind, "sliding_attention"));
  RETURN_IF_ERROR(by_kind.status());
  GemmaRope rope;
  ASSIGN_OR_RETURN(rope.global, Read(&global, config, "rope_theta", kGemmaGlobalTheta));
  ASSIGN_OR_RETURN(rope.local, Read(&local, config, "rope_local_base_freq", kGemmaLocalTheta));
  return rope;
}

}  // namespace cleave

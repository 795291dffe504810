#include "plan/model_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace cleave {
namespace {

Status InRange(const ModelFacts& model, const char* field, uint64_t value, uint64_t low,
               uint64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(fmt::format("model {}: {} is {}; it must be between {} and {}", model.name,
                                     field, value, low, high));
}

Status CheckMla(const ModelFacts& model) {
  const MlaFacts& mla = model.mla;
  if (mla.kv_rank == 0) return OkStatus();
  RETURN_IF_ERROR(InRange(model, "mla q_rank", mla.q_rank, 0, ModelFacts::kMaxWidth));
  RETURN_IF_ERROR(InRange(model, "mla kv_rank", mla.kv_rank, 1, ModelFacts::kMaxWidth));
  RETURN_IF_ERROR(InRange(model, "mla rope", mla.rope_dim, 1, ModelFacts::kMaxHeadWidth));
  RETURN_IF_ERROR(InRange(model, "mla nope", mla.nope_dim, 1, ModelFacts::kMaxHeadWidth));
  return InRange(model, "mla value", mla.value_dim, 1, ModelFacts::kMaxHeadWidth);
}

Status CheckLinear(const ModelFacts& model) {
  const LinearFacts& linear = model.linear;
  const bool used = std::any_of(model.layers.begin(), model.layers.end(),
                                [](const LayerFacts& layer) { return layer.linear; });
  if (!used) return OkStatus();
  RETURN_IF_ERROR(InRange(model, "linear key_heads", linear.key_heads, 1, ModelFacts::kMaxHeads));
  RETURN_IF_ERROR(
      InRange(model, "linear value_heads", linear.value_heads, 1, ModelFacts::kMaxHeads));
  RETURN_IF_ERROR(InRange(model, "linear key_dim", linear.key_dim, 1, ModelFacts::kMaxHeadWidth));
  RETURN_IF_ERROR(
      InRange(model, "linear value_dim", linear.value_dim, 1, ModelFacts::kMaxHeadWidth));
  return InRange(model, "linear conv", linear.conv_width, 0, 64);
}

Status CheckFfn(const ModelFacts& model) {
  const auto with_experts = std::count_if(model.layers.begin(), model.layers.end(),
                                          [](const LayerFacts& layer) { return layer.experts; });
  if (with_experts < static_cast<int64_t>(model.layers.size())) {
    RETURN_IF_ERROR(InRange(model, "ffn", model.ffn_size, 1, ModelFacts::kMaxWidth));
  }
  if (with_experts == 0) return OkStatus();
  RETURN_IF_ERROR(InRange(model, "experts count", model.num_experts, 1, ModelFacts::kMaxExperts));
  RETURN_IF_ERROR(
      InRange(model, "experts per_token", model.experts_per_token, 1, model.num_experts));
  RETURN_IF_ERROR(InRange(model, "experts ffn", model.expert_ffn_size, 1, ModelFacts::kMaxWidth));
  return InRange(model, "shared experts' ffn", model.shared_ffn_size, 0, ModelFacts::kMaxWidth);
}

LayerParameters AttentionParameters(const ModelFacts& model) {
  LayerParameters p;
  const uint64_t d = model.hidden_size;
  const uint64_t h = model.num_heads;
  const MlaFacts& mla = model.mla;
  if (mla.kv_rank == 0) {
    p.query = d * h * model.head_dim * (model.output_gate ? 3 : 2);
    p.kv = 2 * d * model.num_kv_heads * model.head_dim;
    return p;
  }
  const uint64_t q_columns = h * (mla.nope_dim + mla.rope_dim);
  p.common = d * (mla.kv_rank + mla.rope_dim) + d * mla.q_rank;
  p.query = (mla.q_rank > 0 ? mla.q_rank : d) * q_columns +
            mla.kv_rank * h * (mla.nope_dim + mla.value_dim) + h * mla.value_dim * d;
  return p;
}

uint64_t LinearParameters(const ModelFacts& model) {
  const LinearFacts& linear = model.linear;
  const uint64_t keys = uint64_t{linear.key_heads} * linear.key_dim;
  const uint64_t values = uint64_t{linear.value_heads} * linear.value_dim;
  const uint64_t d = model.hidden_size;
  return d * (2 * keys + 2 * values + 2 * uint64_t{linear.value_heads}) + values * d +
         (2 * keys + values) * linear.conv_width;
}

}  // namespace

LayerParameters ModelFacts::ParametersOf(const LayerFacts& layer) const {
  LayerParameters p;
  if (layer.linear) {
    p.query = LinearParameters(*this);
  } else {
    p = AttentionParameters(*this);
  }
  const uint64_t d = hidden_size;
  if (layer.experts) {
    p.common += d * num_experts;
    p.dense = 3 * d * shared_ffn_size;
    p.experts = 3 * d * expert_ffn_size * num_experts;
  } else {
    p.dense = 3 * d * ffn_size;
  }
  return p;
}

uint64_t ModelFacts::EmbeddingParameters() const { return uint64_t{vocab_size} * hidden_size; }

uint64_t ModelFacts::TotalParameters() const {
  uint64_t total = EmbeddingParameters() * (tied_embeddings ? 1 : 2);
  for (const LayerFacts& layer : layers) total += ParametersOf(layer).total();
  return total;
}

uint64_t ModelFacts::ActiveParameters() const {
  uint64_t total = EmbeddingParameters() * (tied_embeddings ? 1 : 2);
  for (const LayerFacts& layer : layers) {
    LayerParameters p = ParametersOf(layer);
    if (num_experts > 0) p.experts = p.experts / num_experts * experts_per_token;
    total += p.total();
  }
  return total;
}

Status CheckFacts(const ModelFacts& model) {
  RETURN_IF_ERROR(InRange(model, "layers", model.layers.size(), 1, ModelFacts::kMaxLayers));
  RETURN_IF_ERROR(InRange(model, "hidden", model.hidden_size, 1, ModelFacts::kMaxWidth));
  RETURN_IF_ERROR(InRange(model, "heads", model.num_heads, 1, ModelFacts::kMaxHeads));
  RETURN_IF_ERROR(InRange(model, "kv_heads", model.num_kv_heads, 1, model.num_heads));
  RETURN_IF_ERROR(InRange(model, "head_dim", model.head_dim, 1, 2 * ModelFacts::kMaxHeadWidth));
  RETURN_IF_ERROR(InRange(model, "vocab", model.vocab_size, 1, ModelFacts::kMaxVocab));
  RETURN_IF_ERROR(InRange(model, "context", model.max_context, 1, 1U << 30U));
  RETURN_IF_ERROR(InRange(model, "index_bytes", model.index_bytes, 0, 1U << 16U));
  RETURN_IF_ERROR(CheckMla(model));
  RETURN_IF_ERROR(CheckLinear(model));
  RETURN_IF_ERROR(CheckFfn(model));
  if (model.num_heads % model.num_kv_heads == 0) return OkStatus();
  return InvalidArgument(fmt::format("model {}: kv_heads is {}; it must divide the {} heads",
                                     model.name, model.num_kv_heads, model.num_heads));
}

double KvElements(const ModelFacts& model) {
  if (model.mla.kv_rank > 0) return double{1} * model.mla.kv_rank + model.mla.rope_dim;
  return 2.0 * model.num_kv_heads * model.head_dim;
}

double KvBytesPerToken(const ModelFacts& model, double element_bytes) {
  const auto keeping = std::count_if(model.layers.begin(), model.layers.end(),
                                     [](const LayerFacts& layer) { return !layer.linear; });
  return KvElements(model) * element_bytes * static_cast<double>(keeping);
}

uint64_t StateBytesOfLayer(const ModelFacts& model) {
  const LinearFacts& linear = model.linear;
  const uint64_t keys = uint64_t{linear.key_heads} * linear.key_dim;
  const uint64_t values = uint64_t{linear.value_heads} * linear.value_dim;
  const uint64_t kept = linear.conv_width > 0 ? linear.conv_width - 1 : 0;
  return values * linear.key_dim * 4 + (2 * keys + values) * kept * 2;
}

double SequenceBytes(const ModelFacts& model, double element_bytes, uint64_t tokens) {
  const double token_bytes = KvElements(model) * element_bytes + model.index_bytes;
  double bytes = 0;
  for (const LayerFacts& layer : model.layers) {
    if (layer.linear) {
      bytes += static_cast<double>(StateBytesOfLayer(model));
      continue;
    }
    const uint64_t seen = layer.window == 0 ? tokens : std::min<uint64_t>(tokens, layer.window);
    bytes += token_bytes * static_cast<double>(seen);
  }
  return bytes;
}

Result<ModelShape> EngineShape(const ModelFacts& model) {
  std::string missing;
  const bool experts = model.num_experts > 0;
  for (const LayerFacts& layer : model.layers) {
    if (layer.linear) missing = "linear attention";
    if (layer.experts != experts) missing = "dense layers beside layers of experts";
  }
  if (model.mla.kv_rank > 0) missing = "compressed KV (MLA)";
  if (model.shared_ffn_size > 0) missing = "shared experts";
  if (!missing.empty()) {
    return Unsupported(fmt::format("model {}: cleave's engine has no {}; price it as vLLM runs it",
                                   model.name, missing));
  }
  ModelShape shape;
  shape.num_layers = model.num_layers();
  shape.hidden_size = model.hidden_size;
  shape.num_heads = model.num_heads;
  shape.num_kv_heads = model.num_kv_heads;
  shape.head_dim = model.head_dim;
  shape.ffn_size = experts ? model.expert_ffn_size : model.ffn_size;
  shape.vocab_size = model.vocab_size;
  shape.num_experts = model.num_experts;
  shape.experts_per_token = model.experts_per_token;
  shape.tied_embeddings = model.tied_embeddings;
  return shape;
}

double InBillions(uint64_t parameters) {
  return std::round(static_cast<double>(parameters) / 1e7) / 100;
}

}  // namespace cleave

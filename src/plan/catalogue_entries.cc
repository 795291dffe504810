#include "plan/catalogue_entries.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/weight_format.h"
#include "plan/yaml_fields.h"

namespace cleave {
namespace {

std::string NameOfEntry(const YAML::Node& node, const char* what) {
  if (!node.IsMap() || !node["name"].IsDefined() || !node["name"].IsScalar()) {
    return fmt::format("a {} without a name", what);
  }
  return fmt::format("{} {:.80}", what, node["name"].Scalar());
}

Status RequireName(const std::string& name, const std::string& file, const std::string& what) {
  if (!name.empty() && name.size() <= 100) return OkStatus();
  return InvalidArgument(fmt::format("{}: {}: name must have 1 to 100 letters", file, what));
}

// Every n-th layer, from the n-th on, is another kind than its neighbours.
struct Every {
  uint32_t period = 1;
  [[nodiscard]] bool is_nth(uint32_t layer) const {
    return period != 0 && (layer + 1) % period == 0;
  }
};

struct LayerRules {
  uint32_t layers = 0;
  uint32_t dense_first = 0;
  Every experts;
  uint32_t window = 0;
  Every full_of_sliding;
  Every full_of_linear;
  bool linear = false;
};

std::vector<LayerFacts> LayersOf(const LayerRules& rules, bool has_experts) {
  std::vector<LayerFacts> layers(std::min(rules.layers, ModelFacts::kMaxLayers + 1));
  for (uint32_t i = 0; i < layers.size(); ++i) {
    layers[i].experts = has_experts && i >= rules.dense_first && rules.experts.is_nth(i);
    layers[i].linear = rules.linear && !rules.full_of_linear.is_nth(i);
    if (!rules.full_of_sliding.is_nth(i)) layers[i].window = rules.window;
  }
  return layers;
}

void ReadExperts(YamlFields* fields, LayerRules* rules, ModelFacts* model) {
  YamlFields inner = fields->Inner("experts");
  model->num_experts = inner.Uint("count");
  model->experts_per_token = inner.Uint("per_token");
  model->expert_ffn_size = inner.Uint("ffn");
  const uint32_t shared = std::min(inner.Uint("shared"), ModelFacts::kMaxExperts);
  const uint64_t width = uint64_t{shared} * std::min(model->expert_ffn_size, 1U << 20U);
  model->shared_ffn_size = inner.Uint("shared_ffn", static_cast<uint32_t>(width));
  rules->dense_first = inner.Uint("dense_first");
  rules->experts.period = inner.Uint("every", 1);
  fields->Take(inner.Finish());
}

void ReadMla(YamlFields* fields, ModelFacts* model) {
  YamlFields inner = fields->Inner("mla");
  model->mla = {.q_rank = inner.Uint("q_rank"),
                .kv_rank = inner.Uint("kv_rank"),
                .rope_dim = inner.Uint("rope"),
                .nope_dim = inner.Uint("nope"),
                .value_dim = inner.Uint("value")};
  fields->Take(inner.Finish());
}

void ReadLinear(YamlFields* fields, LayerRules* rules, ModelFacts* model) {
  rules->linear = fields->Has("linear");
  YamlFields inner = fields->Inner("linear");
  rules->full_of_linear.period = inner.Uint("full_every");
  model->linear = {.key_heads = inner.Uint("key_heads"),
                   .value_heads = inner.Uint("value_heads"),
                   .key_dim = inner.Uint("key_dim"),
                   .value_dim = inner.Uint("value_dim"),
                   .conv_width = inner.Uint("conv")};
  fields->Take(inner.Finish());
}

void ReadSliding(YamlFields* fields, LayerRules* rules) {
  YamlFields inner = fields->Inner("sliding");
  rules->window = inner.Uint("window");
  rules->full_of_sliding.period = inner.Uint("full_every");
  fields->Take(inner.Finish());
}

void ReadPublished(YamlFields* fields, ModelFacts* model) {
  YamlFields inner = fields->Inner("published");
  model->published_total = inner.Text("total");
  inner.Text("active");
  fields->Take(inner.Finish());
}

void ReadSizes(YamlFields* fields, LayerRules* rules, ModelFacts* model) {
  model->name = fields->Text("name");
  model->also = fields->Texts("also");
  rules->layers = fields->Uint("layers");
  model->hidden_size = fields->Uint("hidden");
  model->num_heads = fields->Uint("heads");
  model->num_kv_heads = fields->Uint("kv_heads", model->num_heads);
  const uint32_t plain = model->num_heads == 0 ? 0 : model->hidden_size / model->num_heads;
  model->head_dim = fields->Uint("head_dim", plain);
  model->ffn_size = fields->Uint("ffn");
  model->vocab_size = fields->Uint("vocab");
  model->max_context = fields->Uint("context");
  model->tied_embeddings = fields->Bool("tied_embeddings");
  model->output_gate = fields->Bool("output_gate");
  model->index_bytes = fields->Uint("index_bytes");
  model->source = fields->Text("source");
  model->note = fields->Text("note");
}

}  // namespace

Result<DeviceFacts> ReadDevice(const YAML::Node& node, const std::string& file) {
  const std::string what = NameOfEntry(node, "device");
  YamlFields fields(node, file, what);
  DeviceFacts device;
  device.name = fields.Text("name");
  device.also = fields.Texts("also");
  const std::string kind = fields.Has("kind") ? fields.Text("kind") : "gpu";
  device.is_cpu = kind == "cpu";
  device.memory_gb = fields.Number("memory_gb");
  device.memory_mib = fields.Number("memory_mib");
  device.bandwidth_gb_s = fields.Number("bandwidth_gb_s");
  device.bf16_tflops = fields.Number("bf16_tflops");
  device.fp8_tflops = fields.Number("fp8_tflops");
  device.int8_tops = fields.Number("int8_tops");
  device.fp4_tflops = fields.Number("fp4_tflops");
  device.link = fields.Text("link");
  device.link_bidir_gb_s = fields.Number("link_bidir_gb_s");
  device.pcie_gen = fields.Uint("pcie_gen");
  device.compute_capability = fields.Text("compute_capability");
  device.tdp_w = fields.Number("tdp_w");
  device.l2_mb = fields.Number("l2_mb");
  device.eff_memory = fields.Number("eff_memory");
  device.eff_flops = fields.Number("eff_flops");
  device.eff_flops_8bit = fields.Number("eff_flops_8bit");
  device.source = fields.Text("source");
  device.note = fields.Text("note");
  RETURN_IF_ERROR(fields.Finish());
  RETURN_IF_ERROR(RequireName(device.name, file, what));
  if (kind != "cpu" && kind != "gpu") {
    return InvalidArgument(fmt::format("{}: {}: kind must be gpu or cpu", file, what));
  }
  RETURN_IF_ERROR(CheckFacts(device).Annotate(file));
  return device;
}

Result<ModelFacts> ReadModel(const YAML::Node& node, const std::string& file) {
  const std::string what = NameOfEntry(node, "model");
  YamlFields fields(node, file, what);
  ModelFacts model;
  LayerRules rules;
  ReadSizes(&fields, &rules, &model);
  ReadExperts(&fields, &rules, &model);
  ReadMla(&fields, &model);
  ReadLinear(&fields, &rules, &model);
  ReadSliding(&fields, &rules);
  ReadPublished(&fields, &model);
  if (fields.Has("stored")) model.stored_format = fields.Text("stored");
  RETURN_IF_ERROR(fields.Finish());
  RETURN_IF_ERROR(RequireName(model.name, file, what));
  const auto format = FindWeightFormat(model.stored_format);
  if (!format.ok()) {
    return InvalidArgument(
        fmt::format("{}: {}: stored: {}", file, what, format.status().message()));
  }
  if (model.mla.kv_rank > 0) {
    model.num_kv_heads = 1;
    // Too wide is CheckFacts' to say.
    model.head_dim = std::min(model.mla.nope_dim, ModelFacts::kMaxHeadWidth + 1) +
                     std::min(model.mla.rope_dim, ModelFacts::kMaxHeadWidth + 1);
  }
  model.layers = LayersOf(rules, model.num_experts > 0);
  RETURN_IF_ERROR(CheckFacts(model).Annotate(file));
  return model;
}

}  // namespace cleave

// Mixtures of experts in every way that files hold them: a tensor for each matrix, one for all
// experts' matrices of a kind, one for all gates and ups.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "model/format/hf_config.h"
#include "model/format/test_gguf.h"
#include "model/format/test_models.h"

namespace cleave {
namespace {

using enum WeightRole;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_files::BuildSafetensors;
using testing_files::GgufWriter;
using testing_files::Open;
using testing_files::RefusalOf;
using testing_files::SafeTensorSpec;
using testing_files::TempFolder;
using testing_files::TinyConfig;
using testing_files::TinyGguf;
using testing_files::TinyTensors;

constexpr uint32_t kExperts = 3;
constexpr uint64_t kMatrixBytes = 6 * 8 * 4;
constexpr std::array kExpertRoles{kExpertGate, kExpertUp, kExpertDown};

enum class Stored { kEach, kStacked, kFused };

// D 8, F 6, three experts of which two are taken.
GgufWriter Mixture(Stored stored, const std::string& arch = "llama",
                   const std::string& without = "") {
  GgufWriter writer = TinyGguf({.arch = arch, .qk_norm = arch == "qwen3moe", .experts = true});
  writer.Uint(arch + ".expert_count", kExperts).Uint(arch + ".expert_used_count", 2);
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& extents) {
    if (name != without) writer.F32(name, extents);
  };
  for (const std::string at : {"blk.0.", "blk.1."}) {
    add(at + "ffn_gate_inp.weight", {8, kExperts});
    for (uint32_t e = 0; stored == Stored::kEach && e < kExperts; ++e) {
      add(fmt::format("{}ffn_gate.{}.weight", at, e), {8, 6});
      add(fmt::format("{}ffn_up.{}.weight", at, e), {8, 6});
      add(fmt::format("{}ffn_down.{}.weight", at, e), {6, 8});
    }
    if (stored == Stored::kEach) continue;
    add(at + "ffn_down_exps.weight", {6, 8, kExperts});
    if (stored == Stored::kFused) {
      add(at + "ffn_gate_up_exps.weight", {8, 12, kExperts});
    } else {
      add(at + "ffn_gate_exps.weight", {8, 6, kExperts});
      add(at + "ffn_up_exps.weight", {8, 6, kExperts});
    }
  }
  return writer;
}

const std::byte* DataOf(const Checkpoint& model, WeightRole role, uint32_t expert) {
  const auto view = model.Weight({role, 1, expert});
  EXPECT_TRUE(view.ok()) << view.status().ToString();
  if (!view.ok()) return nullptr;
  EXPECT_THAT(view->shape, role == kExpertDown ? ElementsAre(8, 6) : ElementsAre(6, 8));
  EXPECT_EQ(view->dtype, DType::kF32);
  return view->data;
}

// That experts of layer 1 lie `stride` bytes from each other, and ups `ups_at` from gates.
void ExpectStacked(const Checkpoint& model, uint64_t stride, uint64_t ups_at) {
  const std::byte* gates = DataOf(model, kExpertGate, 0);
  const std::byte* downs = DataOf(model, kExpertDown, 0);
  for (uint32_t e = 0; e < kExperts; ++e) {
    EXPECT_EQ(DataOf(model, kExpertGate, e), gates + e * stride);
    EXPECT_EQ(DataOf(model, kExpertDown, e), downs + e * kMatrixBytes);
    if (ups_at > 0) {
      EXPECT_EQ(DataOf(model, kExpertUp, e), gates + e * stride + ups_at);
    }
  }
}

TEST(GgufExperts, OpensEveryWayOfStoringThem) {
  std::vector<uint64_t> bytes;
  for (const Stored stored : {Stored::kEach, Stored::kStacked, Stored::kFused}) {
    const auto opened = Open(Mixture(stored));
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    const Checkpoint& model = **opened;
    EXPECT_EQ(model.config().family, Family::kMixtral);
    EXPECT_EQ(model.config().num_experts, kExperts);
    EXPECT_EQ(model.config().experts_per_token, 2U);
    EXPECT_TRUE(model.config().norm_topk_prob);
    EXPECT_EQ(model.OrderOf({kQ, 0}), RowOrder::kInterleavedHalves);
    EXPECT_THAT(model.Weight({kRouter, 1})->shape, ElementsAre(kExperts, 8));
    EXPECT_FALSE(model.Has({kGate, 1}));
    for (const WeightRole role : kExpertRoles) {
      EXPECT_TRUE(model.Has({role, 1, kExperts - 1}));
      EXPECT_FALSE(model.Has({role, 1, kExperts}));
      EXPECT_FALSE(model.Has({role, 2, 0}));
      std::ignore = DataOf(model, role, kExperts - 1);
    }
    if (stored == Stored::kStacked) ExpectStacked(model, kMatrixBytes, 0);
    if (stored == Stored::kFused) ExpectStacked(model, 2 * kMatrixBytes, kMatrixBytes);
    bytes.push_back(model.weight_bytes());
  }
  EXPECT_THAT(bytes, ElementsAre(bytes[0], bytes[0], bytes[0]));
}

TEST(GgufExperts, ReadsQwen3Moe) {
  GgufWriter writer = Mixture(Stored::kStacked, "qwen3moe");
  writer.Bool("qwen3moe.expert_weights_norm", false);
  const auto opened = Open(writer);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ((*opened)->config().family, Family::kQwen3Moe);
  EXPECT_TRUE((*opened)->config().qk_norm);
  EXPECT_FALSE((*opened)->config().norm_topk_prob);
  EXPECT_EQ((*opened)->OrderOf({kQ, 0}), RowOrder::kPlain);
  // The dense size is some other number in these files.
  GgufWriter sized = Mixture(Stored::kStacked, "qwen3moe");
  sized.Uint("qwen3moe.expert_feed_forward_length", 7);
  EXPECT_EQ(RefusalOf(sized, StatusCode::kDataLoss),
            "tensor blk.0.ffn_gate_exps.weight has shape [3, 6, 8]; the config implies [3, 7, 8]");
}

TEST(GgufExperts, NamesTheMainTypeByTheExperts) {
  GgufWriter writer = Mixture(Stored::kStacked, "llama", "blk.0.ffn_up_exps.weight");
  writer.Tensor({.name = "blk.0.ffn_up_exps.weight",
                 .extents = {8, 6, kExperts},
                 .type = 1,
                 .bytes = uint64_t{8} * 6 * kExperts * 2});
  EXPECT_EQ((*Open(writer))->main_dtype(), DType::kF32);
}

TEST(GgufExperts, RefusesOtherMixtures) {
  const auto with = [](const std::string& key, uint32_t value) {
    GgufWriter writer = Mixture(Stored::kStacked);
    writer.Uint("llama." + key, value);
    return RefusalOf(writer, StatusCode::kUnsupported);
  };
  EXPECT_EQ(with("expert_shared_count", 1), "llama.expert_shared_count is 1; only 0 is supported");
  EXPECT_EQ(with("expert_group_count", 8), "llama.expert_group_count is 8; only 1 is supported");
  EXPECT_EQ(with("expert_gating_func", 2), "llama.expert_gating_func is 2; only 1 is supported");
  EXPECT_EQ(with("leading_dense_block_count", 1),
            "llama.leading_dense_block_count is 1; only 0 is supported");
  GgufWriter other = TinyGguf({.arch = "qwen2"});
  other.Uint("qwen2.expert_count", 8);
  EXPECT_EQ(RefusalOf(other, StatusCode::kUnsupported),
            "qwen2.expert_count is 8; experts are supported in llama and qwen3moe");
  GgufWriter more = Mixture(Stored::kStacked);
  more.F32("blk.1.ffn_gate_shexp.weight", {8, 6});
  EXPECT_THAT(RefusalOf(more, StatusCode::kUnsupported), HasSubstr("blk.1.ffn_gate_shexp.weight"));
}

TEST(GgufExperts, ChecksCountsAndTensors) {
  const auto counted = [](uint32_t experts, uint32_t used) {
    GgufWriter writer = TinyGguf({.experts = true});
    writer.Uint("llama.expert_count", experts).Uint("llama.expert_used_count", used);
    return RefusalOf(writer, StatusCode::kInvalidArgument);
  };
  EXPECT_EQ(counted(4000000000U, 2), "num_experts is 4000000000; it must be between 1 and 2048");
  EXPECT_EQ(counted(4, 5), "num_experts_per_tok is 5; it must be between 1 and 4");
  EXPECT_EQ(counted(128, 65), "num_experts_per_tok is 65; it must be between 1 and 64");
  EXPECT_EQ(counted(4, 0), "num_experts_per_tok is 0; it must be between 1 and 4");
  EXPECT_EQ(RefusalOf(TinyGguf({.arch = "qwen3moe"}), StatusCode::kDataLoss),
            "metadata key qwen3moe.expert_count is missing");
  for (const std::string name : {"blk.1.ffn_gate_inp.weight", "blk.1.ffn_down_exps.weight"}) {
    EXPECT_EQ(RefusalOf(Mixture(Stored::kStacked, "llama", name), StatusCode::kDataLoss),
              "tensor " + name + " is missing; a llama model of this config needs it");
  }
  EXPECT_EQ(
      RefusalOf(Mixture(Stored::kEach, "llama", "blk.1.ffn_up.2.weight"), StatusCode::kDataLoss),
      "tensor blk.1.ffn_up.2.weight is missing; a llama model of this config needs it");
}

// The tensors of a layer's experts, as transformers names them.
std::vector<SafeTensorSpec> FolderTensors(const std::string& architecture, Stored stored) {
  std::vector<SafeTensorSpec> specs;
  for (const SafeTensorSpec& spec : TinyTensors(2, "model.")) {
    if (spec.name.find(".mlp.") == std::string::npos) specs.push_back(spec);
  }
  specs.push_back({"lm_head.weight", {3, 8}});
  const bool mixtral = architecture == "MixtralForCausalLM";
  const std::string each = mixtral ? "block_sparse_moe." : "mlp.";
  for (const std::string at : {"model.layers.0.", "model.layers.1."}) {
    if (!mixtral) {
      specs.push_back({at + "self_attn.q_norm.weight", {4}});
      specs.push_back({at + "self_attn.k_norm.weight", {4}});
    }
    if (stored == Stored::kFused) {
      specs.push_back({at + "mlp.gate.weight", {kExperts, 8}});
      specs.push_back({at + "mlp.experts.gate_up_proj", {kExperts, 12, 8}});
      specs.push_back({at + "mlp.experts.down_proj", {kExperts, 8, 6}});
      continue;
    }
    specs.push_back({at + each + "gate.weight", {kExperts, 8}});
    for (uint32_t e = 0; e < kExperts; ++e) {
      const std::string expert = at + each + "experts." + std::to_string(e) + ".";
      specs.push_back({expert + (mixtral ? "w1" : "gate_proj") + ".weight", {6, 8}});
      specs.push_back({expert + (mixtral ? "w3" : "up_proj") + ".weight", {6, 8}});
      specs.push_back({expert + (mixtral ? "w2" : "down_proj") + ".weight", {8, 6}});
    }
  }
  return specs;
}

Json FolderConfig(const std::string& architecture) {
  Json json = TinyConfig(architecture);
  json["num_local_experts"] = kExperts;
  json["num_experts_per_tok"] = 2;
  json["moe_intermediate_size"] = 6;
  return json;
}

TEST(FolderExperts, OpensBothFamiliesInBothWays) {
  for (const std::string architecture : {"MixtralForCausalLM", "Qwen3MoeForCausalLM"}) {
    for (const Stored stored : {Stored::kEach, Stored::kFused}) {
      const TempFolder folder;
      std::ignore = folder.Write("config.json", FolderConfig(architecture).dump());
      std::ignore =
          folder.Write("model.safetensors", BuildSafetensors(FolderTensors(architecture, stored)));
      const auto opened = OpenCheckpoint(folder.path());
      ASSERT_TRUE(opened.ok()) << opened.status().ToString();
      EXPECT_THAT((*opened)->Weight({kRouter, 0})->shape, ElementsAre(kExperts, 8));
      for (const WeightRole role : kExpertRoles) std::ignore = DataOf(**opened, role, 2);
      if (stored == Stored::kFused) ExpectStacked(**opened, 2 * kMatrixBytes, kMatrixBytes);
      EXPECT_FALSE((*opened)->Weight({kExpertUp, 1, kExperts}).ok());
    }
  }
}

TEST(FolderExperts, ReadsTheConfigsOfBothFamilies) {
  Json mixtral = TinyConfig("MixtralForCausalLM");
  auto config = HfConfig(mixtral);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->family, Family::kMixtral);
  EXPECT_EQ(config->num_experts, 8U);
  EXPECT_EQ(config->experts_per_token, 2U);
  EXPECT_EQ(config->layers[0].rope_theta, 1e6);
  EXPECT_EQ(config->layers[0].window, 0U);
  EXPECT_TRUE(config->norm_topk_prob);
  EXPECT_FALSE(config->qk_norm);
  mixtral["sliding_window"] = 5;
  EXPECT_EQ(HfConfig(mixtral)->layers[1].window, 5U);

  Json qwen = TinyConfig("Qwen3MoeForCausalLM");
  config = HfConfig(qwen);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->num_experts, 128U);
  EXPECT_EQ(config->experts_per_token, 8U);
  EXPECT_EQ(config->ffn_size, 768U);
  EXPECT_FALSE(config->norm_topk_prob);
  EXPECT_TRUE(config->qk_norm);
  EXPECT_EQ(config->layers[0].window, 0U);
  qwen["use_sliding_window"] = true;
  qwen["num_experts"] = 4;
  qwen["num_experts_per_tok"] = 3;
  qwen["norm_topk_prob"] = true;
  config = HfConfig(qwen);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->layers[0].window, 4096U);
  EXPECT_EQ(config->num_experts, 4U);
  EXPECT_TRUE(config->norm_topk_prob);
}

TEST(FolderExperts, RefusesModelsWithDenseLayersToo) {
  const auto refusal = [](const char* key, const Json& value) {
    Json json = FolderConfig("Qwen3MoeForCausalLM");
    json[key] = value;
    const auto config = HfConfig(json);
    EXPECT_FALSE(config.ok());
    return config.status().message();
  };
  EXPECT_EQ(refusal("mlp_only_layers", {0, 3}),
            "config.json: mlp_only_layers [0,3] is not supported, only []: experts in every layer");
  EXPECT_EQ(refusal("decoder_sparse_step", 2),
            "config.json: decoder_sparse_step 2 is not supported, only 1: experts in every layer");
  EXPECT_EQ(refusal("num_experts", 0),
            "config.json: num_experts is 0; it must be between 1 and 2048");
  EXPECT_EQ(refusal("num_experts_per_tok", 4),
            "config.json: num_experts_per_tok is 4; it must be between 1 and 3");
}

}  // namespace
}  // namespace cleave

#include "model/format/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/format/test_models.h"

namespace cleave {
namespace {

using testing::ElementsAre;
using testing_files::TinyConfig;

ModelConfig Read(const Json& json) {
  const auto config = HfConfig(json);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : ModelConfig{};
}

std::string RefusalOf(const Json& json, StatusCode code) {
  const auto config = HfConfig(json);
  EXPECT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), code) << config.status().ToString();
  return config.status().message();
}

Json With(Json json, const char* key, const Json& value) {
  json[key] = value;
  return json;
}

std::vector<uint32_t> WindowsOf(const ModelConfig& config) {
  std::vector<uint32_t> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
  return windows;
}

const Json kLlama = TinyConfig("LlamaForCausalLM");

TEST(HfConfig, ReadsALlama) {
  const ModelConfig config = Read(kLlama);
  EXPECT_EQ(config.family, Family::kLlama);
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.hidden_size, 8U);
  EXPECT_EQ(config.ffn_size, 6U);
  EXPECT_EQ(config.num_kv_heads, 1U);
  EXPECT_EQ(config.max_position, 128U);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.attention_scale, 0.5);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(config.norm_plus_one);
  EXPECT_EQ(config.layers[0].rope_theta, 10000.0);
}

TEST(HfConfig, FillsInWhatTheClassImplies) {
  Json json = kLlama;
  json.erase("head_dim");
  json["num_key_value_heads"] = nullptr;
  json.erase("rms_norm_eps");
  json.erase("max_position_embeddings");
  json.erase("architectures");
  json["model_type"] = "llama";
  ModelConfig config = Read(json);
  EXPECT_EQ(config.head_dim, 4U);
  EXPECT_EQ(config.num_kv_heads, 2U);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.max_position, 2048U);
  EXPECT_TRUE(Read(With(kLlama, "tie_word_embeddings", true)).tied_embeddings);
  // Whole numbers written as floats.
  EXPECT_EQ(Read(With(kLlama, "hidden_size", 8.0)).hidden_size, 8U);
}

TEST(HfConfig, ReadsBothSpellingsOfRope) {
  Json older = With(kLlama, "rope_theta", 500000.0);
  older["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  ModelConfig config = Read(older);
  EXPECT_EQ(config.layers[1].rope_theta, 500000.0);
  EXPECT_EQ(config.layers[1].rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(config.layers[1].rope_scaling.factor, 4.0);

  const Json llama3 = {{"rope_type", "llama3"},   {"rope_theta", 500000.0},
                       {"factor", 32.0},          {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  config = Read(With(kLlama, "rope_parameters", llama3));
  EXPECT_EQ(config.layers[0].rope_theta, 500000.0);
  const RopeScaling& scaling = config.layers[0].rope_scaling;
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(scaling.factor, 32.0);
  EXPECT_EQ(scaling.low_freq_factor, 1.0);
  EXPECT_EQ(scaling.high_freq_factor, 4.0);
  EXPECT_EQ(scaling.original_context, 8192U);
  // The older spelling of the same, with the theta outside.
  Json outside = With(kLlama, "rope_scaling", llama3);
  outside["rope_scaling"].erase("rope_theta");
  outside["rope_theta"] = 500000.0;
  EXPECT_EQ(Read(outside).layers[0].rope_scaling, scaling);
  EXPECT_EQ(Read(With(kLlama, "rope_scaling", nullptr)).layers[0].rope_scaling.kind,
            RopeScaling::Kind::kNone);
  const Json plain = {{"rope_type", "default"}, {"rope_theta", 1000}};
  EXPECT_EQ(Read(With(kLlama, "rope_parameters", plain)).layers[0].rope_theta, 1000.0);
}

TEST(HfConfig, RefusesOtherRopeTypesByName) {
  for (const std::string name : {"yarn", "dynamic", "longrope", "mrope", "su"}) {
    const Json scaling = {{"rope_type", name}, {"factor", 2.0}};
    EXPECT_EQ(RefusalOf(With(kLlama, "rope_scaling", scaling), StatusCode::kUnsupported),
              "config.json: rope_scaling: rope type \"" + name +
                  "\" is not supported; supported are default, linear and llama3");
  }
  EXPECT_EQ(RefusalOf(With(kLlama, "rope_scaling", {{"type", "linear"}}), StatusCode::kDataLoss),
            "config.json: rope_scaling: factor is missing; its rope type needs it");
  const Json part = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(RefusalOf(With(kLlama, "rope_parameters", part), StatusCode::kUnsupported),
            "config.json: rope_parameters: partial_rotary_factor 0.5 is not supported, only 1");
  EXPECT_EQ(RefusalOf(With(kLlama, "rope_scaling", "linear"), StatusCode::kDataLoss),
            "config.json: rope_scaling is \"linear\"; an object is wanted");
}

TEST(HfConfig, MistralWindowsEveryLayer) {
  const Json mistral = TinyConfig("MistralForCausalLM");
  EXPECT_THAT(WindowsOf(Read(mistral)), ElementsAre(4096, 4096));
  EXPECT_THAT(WindowsOf(Read(With(mistral, "sliding_window", nullptr))), ElementsAre(0, 0));
  EXPECT_THAT(WindowsOf(Read(With(mistral, "sliding_window", 16))), ElementsAre(16, 16));
  EXPECT_THAT(WindowsOf(Read(With(kLlama, "sliding_window", 16))), ElementsAre(0, 0));
  EXPECT_EQ(RefusalOf(With(mistral, "sliding_window", 0), StatusCode::kDataLoss),
            "config.json: sliding_window is 0; null means no window");
}

TEST(HfConfig, Qwen2HasBiasesAndWindowsItsUpperLayers) {
  Json json = TinyConfig("Qwen2ForCausalLM");
  json["sliding_window"] = 16;
  json["max_window_layers"] = 1;
  EXPECT_TRUE(Read(json).qkv_bias);
  EXPECT_FALSE(Read(json).qk_norm);
  EXPECT_THAT(WindowsOf(Read(json)), ElementsAre(0, 0));
  json["use_sliding_window"] = true;
  EXPECT_THAT(WindowsOf(Read(json)), ElementsAre(0, 16));
  json["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_THAT(WindowsOf(Read(json)), ElementsAre(16, 0));
  json["layer_types"] = {"sliding_attention"};
  EXPECT_EQ(RefusalOf(json, StatusCode::kDataLoss),
            "config.json: layer_types has 1 entries for 2 layers");
  json["layer_types"] = {"sliding_attention", "linear_attention"};
  EXPECT_EQ(RefusalOf(json, StatusCode::kUnsupported),
            "config.json: layer type \"linear_attention\" is not supported; supported are "
            "full_attention and sliding_attention");
}

TEST(HfConfig, Qwen3NormsHeadsOf128) {
  Json json = TinyConfig("Qwen3ForCausalLM");
  json.erase("head_dim");
  const ModelConfig config = Read(json);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.head_dim, 128U);
}

Json Gemma() {
  Json json = TinyConfig("Gemma3ForCausalLM");
  json.erase("hidden_act");
  json["num_hidden_layers"] = 7;
  json["sliding_window"] = 16;
  json["query_pre_attn_scalar"] = 16;
  return json;
}

TEST(HfConfig, ReadsGemma3) {
  const ModelConfig config = Read(Gemma());
  EXPECT_TRUE(config.norm_plus_one);
  EXPECT_TRUE(config.post_norms);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_EQ(config.attention_scale, 0.25);
  EXPECT_EQ(config.embedding_scale, static_cast<double>(std::sqrt(8.0F)));
  EXPECT_EQ(config.final_logit_softcap, 0.0);
  EXPECT_THAT(WindowsOf(config), ElementsAre(16, 16, 16, 16, 16, 0, 16));
  EXPECT_EQ(config.layers[0].rope_theta, 1e4);
  EXPECT_EQ(config.layers[5].rope_theta, 1e6);
  EXPECT_FALSE(Read(With(Gemma(), "tie_word_embeddings", false)).tied_embeddings);
  EXPECT_EQ(Read(With(Gemma(), "final_logit_softcapping", 30)).final_logit_softcap, 30.0);
}

TEST(HfConfig, ReadsGemmaRopeOfBothSpellings) {
  Json older = With(Gemma(), "rope_theta", 2e6);
  older["rope_local_base_freq"] = 5000.0;
  older["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  older["sliding_window_pattern"] = 2;
  ModelConfig config = Read(older);
  EXPECT_THAT(WindowsOf(config), ElementsAre(16, 0, 16, 0, 16, 0, 16));
  EXPECT_EQ(config.layers[0].rope_theta, 5000.0);
  EXPECT_EQ(config.layers[0].rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(config.layers[1].rope_theta, 2e6);
  EXPECT_EQ(config.layers[1].rope_scaling.factor, 8.0);

  const Json newer = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5000.0}}}};
  Json json = With(Gemma(), "rope_parameters", newer);
  json["layer_types"] = {"sliding_attention", "full_attention",    "sliding_attention",
                         "full_attention",    "sliding_attention", "full_attention",
                         "sliding_attention"};
  const ModelConfig again = Read(json);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(again.layers[i].window, config.layers[i].window);
    EXPECT_EQ(again.layers[i].rope_theta, config.layers[i].rope_theta);
    EXPECT_EQ(again.layers[i].rope_scaling, config.layers[i].rope_scaling);
  }
}

TEST(HfConfig, ReadsTheTextPartOfAMultimodalGemma) {
  const Json json = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                     {"text_config",
                      {{"hidden_size", 2560},
                       {"intermediate_size", 10240},
                       {"num_hidden_layers", 34},
                       {"sliding_window", 1024},
                       {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}}}};
  const ModelConfig config = Read(json);
  EXPECT_EQ(config.hidden_size, 2560U);
  EXPECT_EQ(config.num_heads, 8U);
  EXPECT_EQ(config.num_kv_heads, 4U);
  EXPECT_EQ(config.head_dim, 256U);
  EXPECT_EQ(config.vocab_size, 262208U);
  EXPECT_EQ(config.max_position, 131072U);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.layers[5].rope_scaling.factor, 8.0);
}

TEST(HfConfig, RefusesWhatItDoesNotCompute) {
  EXPECT_EQ(RefusalOf(TinyConfig("MambaForCausalLM"), StatusCode::kUnsupported),
            "config.json: architecture \"MambaForCausalLM\" is not known; known are "
            "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, "
            "MixtralForCausalLM, Qwen3MoeForCausalLM, Gemma3ForCausalLM, Gemma3TextModel, "
            "Gemma3ForConditionalGeneration");
  for (const std::string method : {"awq", "gptq", "fp8", "bitsandbytes"}) {
    const Json quantisation = {{"quant_method", method}, {"bits", 4}};
    EXPECT_EQ(
        RefusalOf(With(kLlama, "quantization_config", quantisation), StatusCode::kUnsupported),
        "config.json: quantization_config with method \"" + method +
            "\" is not supported; take the unquantised weights or a GGUF file");
  }
  EXPECT_EQ(RefusalOf(With(kLlama, "attention_bias", true), StatusCode::kUnsupported),
            "config.json: attention_bias true is not supported");
  EXPECT_EQ(RefusalOf(With(kLlama, "mlp_bias", true), StatusCode::kUnsupported),
            "config.json: mlp_bias true is not supported");
  EXPECT_EQ(RefusalOf(With(Gemma(), "use_bidirectional_attention", true), StatusCode::kUnsupported),
            "config.json: use_bidirectional_attention true is not supported");
  EXPECT_EQ(RefusalOf(With(Gemma(), "attn_logit_softcapping", 50), StatusCode::kUnsupported),
            "config.json: attn_logit_softcapping 50 is not supported, only null");
  EXPECT_EQ(RefusalOf(With(kLlama, "hidden_act", "relu"), StatusCode::kUnsupported),
            "config.json: activation \"relu\" is not supported; supported are silu and "
            "gelu_pytorch_tanh");
}

TEST(HfConfig, NamesFieldsOfTheWrongKind) {
  EXPECT_EQ(RefusalOf(With(kLlama, "hidden_size", "big"), StatusCode::kDataLoss),
            "config.json: hidden_size is \"big\"; a whole number from 0 to 4294967295 is wanted");
  EXPECT_EQ(RefusalOf(With(kLlama, "hidden_size", -1), StatusCode::kDataLoss),
            "config.json: hidden_size is -1; a whole number from 0 to 4294967295 is wanted");
  EXPECT_EQ(RefusalOf(With(kLlama, "hidden_size", 8.5), StatusCode::kDataLoss),
            "config.json: hidden_size is 8.5; a whole number from 0 to 4294967295 is wanted");
  EXPECT_EQ(RefusalOf(With(kLlama, "num_hidden_layers", nullptr), StatusCode::kDataLoss),
            "config.json: num_hidden_layers is missing; a whole number is wanted");
  EXPECT_EQ(RefusalOf(With(kLlama, "num_hidden_layers", 4000000000U), StatusCode::kInvalidArgument),
            "config.json: num_hidden_layers is 4000000000; it must be between 1 and 1024");
  EXPECT_EQ(RefusalOf(With(kLlama, "num_attention_heads", 0), StatusCode::kInvalidArgument),
            "config.json: num_attention_heads is 0; it must be between 1 and 4096");
  EXPECT_EQ(RefusalOf(With(kLlama, "rms_norm_eps", "1e-5"), StatusCode::kDataLoss),
            "config.json: rms_norm_eps is \"1e-5\"; a number is wanted");
}

TEST(HfGeneration, MergesEndsOfSequence) {
  const Json generation = {{"eos_token_id", {2, 1}},
                           {"temperature", 0.6},
                           {"top_p", 0.9},
                           {"top_k", -1},
                           {"min_p", 0.05},
                           {"max_new_tokens", 64},
                           {"repetition_penalty", 1.1}};
  const auto defaults = HfGeneration(generation, {{"eos_token_id", 0}}, 3);
  ASSERT_TRUE(defaults.ok()) << defaults.status().ToString();
  EXPECT_THAT(defaults->eos_token_ids, ElementsAre(2, 1, 0));
  EXPECT_EQ(defaults->temperature, 0.6);
  EXPECT_EQ(defaults->top_p, 0.9);
  EXPECT_EQ(defaults->top_k, -1);
  EXPECT_EQ(defaults->min_p, 0.05);
  EXPECT_EQ(defaults->max_new_tokens, 64);
  EXPECT_EQ(defaults->repetition_penalty, 1.1);
  EXPECT_EQ(HfGeneration({{"eos_token_id", 1}}, {{"eos_token_id", 1}}, 3)->eos_token_ids.size(),
            1U);
  EXPECT_EQ(HfGeneration({{"eos_token_id", 3}}, Json::object(), 3).status().message(),
            "generation_config.json: eos_token_id 3 is outside the vocabulary of 3");
  EXPECT_EQ(HfGeneration(Json::object(), {{"eos_token_id", {-1}}}, 3).status().message(),
            "config.json: eos_token_id -1 is outside the vocabulary of 3");
  EXPECT_EQ(HfGeneration({{"eos_token_id", "x"}}, Json::object(), 3).status().message(),
            "generation_config.json: eos_token_id is not an id or a list of ids");
  EXPECT_EQ(HfGeneration({{"top_p", "x"}}, Json::object(), 3).status().message(),
            "generation_config.json: top_p is \"x\"; a number is wanted");
}

}  // namespace
}  // namespace cleave

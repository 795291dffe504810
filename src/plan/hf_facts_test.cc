#include "plan/hf_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "plan/catalogue.h"

namespace cleave {
namespace {

using testing::HasSubstr;

HfFacts Read(const std::string& json) {
  const auto facts = ReadHfFacts(json, "it");
  EXPECT_TRUE(facts.ok()) << facts.status().message();
  return facts.ok() ? *facts : HfFacts();
}

std::string Refusal(const std::string& json) {
  const auto facts = ReadHfFacts(json, "it");
  EXPECT_FALSE(facts.ok()) << json;
  return facts.ok() ? "" : facts.status().message();
}

// The same layers, parameters and KV as the catalogue has.
void ExpectAs(const std::string& json, const char* name) {
  const ModelFacts model = Read(json).model;
  const Catalogue catalogue = *BuiltInCatalogue();
  const ModelFacts& known = **catalogue.FindModel(name);
  EXPECT_EQ(model.layers, known.layers) << name;
  EXPECT_EQ(model.TotalParameters(), known.TotalParameters()) << name;
  EXPECT_EQ(model.ActiveParameters(), known.ActiveParameters()) << name;
  EXPECT_EQ(SequenceBytes(model, 2, 10000), SequenceBytes(known, 2, 10000)) << name;
  EXPECT_EQ(model.max_context, known.max_context) << name;
}

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 8192,
  "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
  "intermediate_size": 28672, "vocab_size": 128256, "max_position_embeddings": 131072,
  "torch_dtype": "bfloat16"})";

TEST(HfFacts, DenseAsTheCatalogue) {
  ExpectAs(kLlama, "Llama-3.1-70B");
  EXPECT_EQ(Read(kLlama).weights.name, "bf16");
}

TEST(HfFacts, MlaWithDenseFirstLayersAndIndexer) {
  const std::string v3 = R"({"model_type": "deepseek_v3", "hidden_size": 7168,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280, "num_nextn_predict_layers": 1,
    "max_position_embeddings": 163840, "quantization_config": {"quant_method": "fp8",
    "weight_block_size": [128, 128]})";
  ExpectAs(v3 + "}", "DeepSeek-V3");
  EXPECT_EQ(Read(v3 + "}").weights.name, "fp8");
  ExpectAs(v3 + R"(, "index_head_dim": 128})", "DeepSeek-V3.2");
}

// A q_lora_rank of null is one matrix: 15.71 billion, where the catalogue's source has 15.82.
TEST(HfFacts, MlaWithoutAQueryRank) {
  const HfFacts facts = Read(R"({"model_type": "deepseek_v2", "hidden_size": 2048,
    "num_hidden_layers": 27, "num_attention_heads": 16, "intermediate_size": 10944,
    "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
    "num_experts_per_tok": 6, "first_k_dense_replace": 1, "q_lora_rank": null, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 102400,
    "max_position_embeddings": 163840})");
  EXPECT_EQ(InBillions(facts.model.TotalParameters()), 15.71);
}

TEST(HfFacts, ExpertsInEverySecondLayerOfANestedText) {
  ExpectAs(R"({"model_type": "llama4", "text_config": {"model_type": "llama4_text",
    "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192,
    "intermediate_size_mlp": 16384, "num_local_experts": 128, "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2, "attention_chunk_size": 8192, "vocab_size": 202048,
    "max_position_embeddings": 1048576}})",
           "Llama-4-Maverick");
}

TEST(HfFacts, HybridBySharedWidthAndInterval) {
  ExpectAs(R"({"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 512,
    "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512, "decoder_sparse_step": 1,
    "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "vocab_size": 151936, "max_position_embeddings": 262144})",
           "Qwen3-Next-80B-A3B");
}

TEST(HfFacts, WindowsByPatternAndTiedEmbeddings) {
  ExpectAs(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
    "hidden_size": 5376, "num_hidden_layers": 62, "num_attention_heads": 32,
    "num_key_value_heads": 16, "head_dim": 128, "intermediate_size": 21504,
    "sliding_window": 1024, "vocab_size": 262208, "max_position_embeddings": 131072}})",
           "Gemma-3-27B");
}

TEST(HfFacts, QuantisedByGroups) {
  std::string json = kLlama;
  json.insert(1, R"("quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64},)");
  EXPECT_EQ(Read(json).weights.linear_bits, 4 + 20.0 / 64);
  json = kLlama;
  json.insert(1, R"("quantization_config": {"quant_method": "quip"},)");
  EXPECT_THAT(Refusal(json), HasSubstr("known are fp8, mxfp4, awq and gptq"));
}

TEST(HfFacts, Refuses) {
  EXPECT_THAT(Refusal("[]"), HasSubstr("config.json"));
  EXPECT_THAT(Refusal("{"), HasSubstr("config.json"));
  EXPECT_THAT(Refusal("{}"), HasSubstr("hidden_size"));
  std::string json = kLlama;
  const auto with = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_THAT(Refusal(with(json, "\"num_hidden_layers\": 80,", "")),
              HasSubstr("num_hidden_layers"));
  EXPECT_THAT(Refusal(with(json, "80", "0")), HasSubstr("layers is 0"));
  EXPECT_THAT(Refusal(with(json, "80", "4000000000")), HasSubstr("layers is"));
  EXPECT_THAT(Refusal(with(json, "80", "-1")), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(Refusal(with(json, "\"vocab_size\"", "\"layer_types\": [\"mamba\"], \"vocab_size\"")),
              HasSubstr("layer_types has 1 entries for 80"));
  EXPECT_THAT(Refusal(with(json, "64,", "0,")), HasSubstr("heads is 0"));
  EXPECT_THAT(Refusal(with(json, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 7")),
              HasSubstr("must divide"));
}

}  // namespace
}  // namespace cleave

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <string>

#include "model/checkpoint.h"
#include "model/format/gguf_tokenizer.h"
#include "model/format/model_folder.h"
#include "model/format/test_files.h"
#include "model/format/test_gguf.h"
#include "model/format/test_models.h"

namespace cleave {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_files::GgufWriter;
using testing_files::Open;
using testing_files::Raw;
using testing_files::RefusalOf;
using testing_files::TempFolder;
using testing_files::TinyGguf;
using testing_files::TinyOptions;

TEST(GgufModel, OpensALlama) {
  GgufWriter writer = TinyGguf({});
  writer.String("general.name", "Tiny").String("tokenizer.chat_template", "{{ messages }}");
  const auto opened = Open(writer);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const Checkpoint& model = **opened;
  const ModelConfig& config = model.config();
  EXPECT_EQ(config.family, Family::kLlama);
  EXPECT_EQ(config.hidden_size, 8U);
  EXPECT_EQ(config.num_heads, 2U);
  EXPECT_EQ(config.num_kv_heads, 1U);
  EXPECT_EQ(config.head_dim, 4U);
  EXPECT_EQ(config.ffn_size, 6U);
  EXPECT_EQ(config.vocab_size, 3U);
  EXPECT_EQ(config.num_layers(), 2U);
  EXPECT_EQ(config.max_position, 128U);
  EXPECT_EQ(config.attention_scale, 0.5);
  EXPECT_EQ(config.layers[1].rope_theta, 10000.0);
  EXPECT_EQ(config.layers[1].window, 0U);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(model.name(), "Tiny");
  EXPECT_EQ(model.chat_template(), "{{ messages }}");
  EXPECT_EQ(model.main_dtype(), DType::kF32);
  EXPECT_EQ(model.generation_defaults().eos_token_ids, std::vector<int32_t>{2});

  const auto q = model.Weight({WeightRole::kQ, 1});
  ASSERT_TRUE(q.ok());
  EXPECT_THAT(q->shape, ElementsAre(8, 8));
  EXPECT_EQ(model.OrderOf({WeightRole::kQ, 1}), RowOrder::kInterleavedHalves);
  EXPECT_EQ(model.OrderOf({WeightRole::kK, 1}), RowOrder::kInterleavedHalves);
  EXPECT_EQ(model.OrderOf({WeightRole::kV, 1}), RowOrder::kPlain);
  EXPECT_TRUE(model.Has({WeightRole::kEmbedding, 7}));  // the layer is ignored
  EXPECT_FALSE(model.Has({WeightRole::kHead}));
  EXPECT_FALSE(model.Has({WeightRole::kQ, 2}));
  EXPECT_EQ(model.Weight({WeightRole::kQBias, 1}).status().message(),
            "Tiny: the model has no tensor blk.1.attn_q.bias");
  uint64_t floats = 3 * 8 + 8;                               // embedding, final norm
  floats += 2 * (8 + 64 + 32 + 32 + 64 + 8 + 48 + 48 + 48);  // layers
  EXPECT_EQ(model.weight_bytes(), floats * 4);
  model.DropResidentPages();
}

TEST(GgufModel, RowOrderTakesPairsApart) {
  EXPECT_EQ(SourceRow(RowOrder::kPlain, 13, 8), 13U);
  std::vector<uint64_t> rows;
  for (uint64_t r = 8; r < 16; ++r) rows.push_back(SourceRow(RowOrder::kInterleavedHalves, r, 8));
  EXPECT_THAT(rows, ElementsAre(8, 10, 12, 14, 9, 11, 13, 15));
}

TEST(GgufModel, ReadsQwen2WithBiasesAndAHead) {
  const auto opened = Open(TinyGguf({.arch = "qwen2", .biases = true, .head = true}));
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const Checkpoint& model = **opened;
  EXPECT_EQ(model.config().family, Family::kQwen2);
  EXPECT_TRUE(model.config().qkv_bias);
  EXPECT_FALSE(model.config().tied_embeddings);
  EXPECT_THAT(model.Weight({WeightRole::kKBias, 0})->shape, ElementsAre(4));
  EXPECT_THAT(model.Weight({WeightRole::kHead})->shape, ElementsAre(3, 8));
  EXPECT_EQ(model.OrderOf({WeightRole::kQBias, 0}), RowOrder::kPlain);
  EXPECT_EQ(RefusalOf(TinyGguf({.arch = "qwen2"}), StatusCode::kDataLoss),
            "tensor blk.0.attn_q.bias is missing; a qwen2 model of this config needs it");
}

TEST(GgufModel, LlamaBiasesAreInterleavedToo) {
  const auto opened = Open(TinyGguf({.biases = true}));
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_TRUE((*opened)->config().qkv_bias);
  EXPECT_EQ((*opened)->OrderOf({WeightRole::kKBias, 0}), RowOrder::kInterleavedHalves);
}

TEST(GgufModel, ReadsQwen3WithItsOwnHeadSize) {
  const auto opened = Open(TinyGguf({.arch = "qwen3", .head_dim = 6, .qk_norm = true}));
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_TRUE((*opened)->config().qk_norm);
  EXPECT_EQ((*opened)->config().head_dim, 6U);
  EXPECT_EQ((*opened)->config().attention_scale, 1.0 / std::sqrt(6.0));
  EXPECT_THAT((*opened)->Weight({WeightRole::kO, 0})->shape, ElementsAre(8, 12));
}

TinyOptions Gemma() {
  return {.arch = "gemma3",
          .layers = 7,
          .qk_norm = true,
          .post_norms = true,
          .tokens = {"<pad>", "<eos>", "<bos>", "<end_of_turn>"}};
}

TEST(GgufModel, ReadsGemma3AndWhatItsFileLeavesOut) {
  GgufWriter writer = TinyGguf(Gemma());
  writer.Uint("gemma3.attention.sliding_window", 512).Float("gemma3.rope.freq_base", 1e6F);
  const auto opened = Open(writer);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const ModelConfig& config = (*opened)->config();
  EXPECT_TRUE(config.post_norms);
  EXPECT_FALSE(config.norm_plus_one);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_EQ(config.embedding_scale, static_cast<double>(std::sqrt(8.0F)));
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(config.layers[i].window, i == 5 ? 0U : 512U) << i;
    EXPECT_EQ(config.layers[i].rope_theta, i == 5 ? 1e6 : 1e4) << i;
  }
  EXPECT_THAT((*opened)->generation_defaults().eos_token_ids, ElementsAre(2, 3));
  EXPECT_TRUE((*opened)->Has({WeightRole::kFfnPostNorm, 6}));
  EXPECT_EQ((*opened)->OrderOf({WeightRole::kQ, 0}), RowOrder::kPlain);
}

TEST(GgufModel, ReadsNewerGemmaKeysAndScalesGlobalLayersOnly) {
  GgufWriter writer = TinyGguf(Gemma());
  writer.Uint("gemma3.attention.sliding_window", 16).Float("gemma3.rope.freq_base_swa", 5000.0F);
  writer.Uint("gemma3.attention.sliding_window_pattern", 2);
  writer.String("gemma3.rope.scaling.type", "linear").Float("gemma3.rope.scaling.factor", 8.0F);
  const auto opened = Open(writer);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const auto& layers = (*opened)->config().layers;
  EXPECT_EQ(layers[0].window, 16U);
  EXPECT_EQ(layers[0].rope_theta, 5000.0);
  EXPECT_EQ(layers[0].rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(layers[1].window, 0U);
  EXPECT_EQ(layers[1].rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(layers[1].rope_scaling.factor, 8.0);

  GgufWriter listed = TinyGguf(Gemma());
  listed.Uint("gemma3.attention.sliding_window", 16);
  listed.Array("gemma3.attention.sliding_window_pattern", GgufType::kBool, 7,
               std::string("\1\0\1\1\0\1\1", 7));
  EXPECT_EQ((*Open(listed))->config().layers[4].window, 0U);
  GgufWriter short_list = TinyGguf(Gemma());
  short_list.Uint("gemma3.attention.sliding_window", 16);
  short_list.Array("gemma3.attention.sliding_window_pattern", GgufType::kBool, 1, "\1");
  EXPECT_EQ(RefusalOf(short_list, StatusCode::kDataLoss),
            "gemma3.attention.sliding_window_pattern has 1 entries for 7 layers");
  EXPECT_EQ(RefusalOf(TinyGguf(Gemma()), StatusCode::kDataLoss),
            "metadata key gemma3.attention.sliding_window is missing");
}

TEST(GgufModel, ReadsRopeScaling) {
  GgufWriter linear = TinyGguf({});
  linear.String("llama.rope.scaling.type", "linear").Float("llama.rope.scaling.factor", 4.0F);
  EXPECT_EQ((*Open(linear))->config().layers[0].rope_scaling.factor, 4.0);
  GgufWriter older = TinyGguf({});
  older.Float("llama.rope.scale_linear", 2.0F);
  EXPECT_EQ((*Open(older))->config().layers[0].rope_scaling.kind, RopeScaling::Kind::kLinear);
  GgufWriter yarn = TinyGguf({});
  yarn.String("llama.rope.scaling.type", "yarn");
  EXPECT_EQ(RefusalOf(yarn, StatusCode::kUnsupported),
            "rope scaling type \"yarn\" is not supported; supported are none and linear, and the "
            "factors of rope_freqs.weight");

  // Llama 3.1: divisors of each rotary pair's frequency. The writer's bytes are small floats.
  GgufWriter factors = TinyGguf({});
  factors.F32("rope_freqs.weight", {2});
  const float one = 1.0F;
  const float eight = 8.0F;
  factors.data.replace(factors.data.size() - 8, 8, Raw(one) + Raw(eight));
  const auto opened = Open(factors);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ((*opened)->config().layers[1].rope_scaling.kind, RopeScaling::Kind::kFactors);
  EXPECT_THAT((*opened)->config().layers[1].rope_scaling.freq_factors, ElementsAre(1.0F, 8.0F));
  GgufWriter wrong = TinyGguf({});
  wrong.F32("rope_freqs.weight", {3});
  EXPECT_EQ(RefusalOf(wrong, StatusCode::kDataLoss),
            "tensor rope_freqs.weight has 3 elements in 1 dimensions; head size 4 needs 2 in one");
}

TEST(GgufModel, WindowsALlamaWhenTheFileSaysSo) {
  GgufWriter writer = TinyGguf({});
  writer.Uint("llama.attention.sliding_window", 4096);
  EXPECT_EQ((*Open(writer))->config().layers[1].window, 4096U);
}

TEST(GgufModel, RefusesWhatItDoesNotCompute) {
  const auto with = [](const std::function<void(GgufWriter*)>& change) {
    GgufWriter writer = TinyGguf({});
    change(&writer);
    return RefusalOf(writer, StatusCode::kUnsupported);
  };
  EXPECT_EQ(RefusalOf(TinyGguf({.arch = "mamba"}), StatusCode::kUnsupported),
            "architecture \"mamba\" is not known; known are llama, qwen2, qwen3, qwen3moe, "
            "gemma3");
  EXPECT_EQ(with([](auto* w) { w->Uint("llama.rope.dimension_count", 2); }),
            "llama.rope.dimension_count is 2 of a head's 4; rotation of whole heads is supported");
  EXPECT_EQ(with([](auto* w) { w->Uint("llama.attention.value_length", 2); }),
            "llama.attention.value_length is 2 and the key length 4; equal ones are supported");
  EXPECT_EQ(with([](auto* w) { w->Bool("llama.attention.causal", false); }),
            "attention is not causal; decoder-only models are supported");
  EXPECT_EQ(with([](auto* w) { w->Float("llama.attn_logit_softcapping", 50.0F); }),
            "llama.attn_logit_softcapping is 50; capped attention scores are not supported");
  EXPECT_EQ(with([](auto* w) { w->String("general.type", "adapter"); }),
            "general.type is \"adapter\"; a whole model is wanted");
  EXPECT_EQ(with([](auto* w) { w->F32("blk.1.attn_output.bias", {8}); }),
            "tensor blk.1.attn_output.bias has no place in a llama model of 2 layers as it is "
            "computed here, and leaving it out would give other answers");
  EXPECT_THAT(with([](auto* w) { w->F32("blk.7.attn_q.weight", {8}); }),
              HasSubstr("blk.7.attn_q.weight has no place in a llama model of 2 layers"));
  EXPECT_THAT(with([](auto* w) { w->F32("output_norm.bias", {8}); }),
              HasSubstr("output_norm.bias"));
  EXPECT_THAT(with([](auto* w) { w->F32("blk.0.ffn_gate_inp.weight", {8}); }),
              HasSubstr("blk.0.ffn_gate_inp.weight"));
}

TEST(GgufModel, IgnoresTensorsThatChangeNothing) {
  GgufWriter writer = TinyGguf({});
  writer.F32("blk.0.rotary_emb.inv_freq", {2}).F32("extra", {2});
  EXPECT_TRUE(Open(writer).ok());
}

TEST(GgufModel, NamesMissingKeysAndTensorsAndWrongShapes) {
  EXPECT_EQ(RefusalOf(GgufWriter().Uint("x", 1), StatusCode::kDataLoss),
            "metadata key general.architecture is missing");
  EXPECT_EQ(RefusalOf(GgufWriter().String("general.architecture", "llama"), StatusCode::kDataLoss),
            "metadata key llama.embedding_length is missing");
  EXPECT_EQ(RefusalOf(TinyGguf({.without = "blk.1.ffn_down.weight"}), StatusCode::kDataLoss),
            "tensor blk.1.ffn_down.weight is missing; a llama model of this config needs it");
  EXPECT_EQ(RefusalOf(TinyGguf({.without = "token_embd.weight"}), StatusCode::kDataLoss),
            "tensor token_embd.weight is missing");
  GgufWriter other = TinyGguf({.without = "blk.0.attn_k.weight"});
  other.F32("blk.0.attn_k.weight", {8, 8});
  EXPECT_EQ(RefusalOf(other, StatusCode::kDataLoss),
            "tensor blk.0.attn_k.weight has shape [8, 8]; the config implies [4, 8]");
  EXPECT_EQ(RefusalOf(TinyGguf({.layers = 5000}), StatusCode::kInvalidArgument),
            "llama.block_count is 5000; it must be between 1 and 1024");
  EXPECT_EQ(RefusalOf(TinyGguf({.head_dim = 3}), StatusCode::kInvalidArgument),
            "head_dim is 3; it must be even");
}

TEST(GgufModel, ChecksTheVocabulary) {
  const auto with = [](const std::function<void(GgufWriter*)>& change) {
    GgufWriter writer = TinyGguf({.eos = -1});
    change(&writer);
    return RefusalOf(writer, StatusCode::kDataLoss);
  };
  EXPECT_EQ(with([](auto* w) { w->Uint("tokenizer.ggml.bos_token_id", 3); }),
            "tokenizer.ggml.bos_token_id is 3; the vocabulary has 3 tokens");
  EXPECT_EQ(
      with([](auto* w) { w->Array("tokenizer.ggml.scores", GgufType::kFloat32, 1, Raw(0.5F)); }),
      "tokenizer.ggml.scores has 1 entries for 3 tokens");
  EXPECT_EQ(RefusalOf(TinyGguf({.tokens = {}}), StatusCode::kDataLoss),
            "the file has no tokenizer: tokenizer.ggml.model and .tokens are needed");
  EXPECT_EQ(RefusalOf(TinyGguf({.merges = false}), StatusCode::kDataLoss),
            "metadata key tokenizer.ggml.merges is missing; a gpt2 vocabulary needs it");
  GgufWriter many = TinyGguf({.vocab = 2});
  EXPECT_EQ(RefusalOf(many, StatusCode::kDataLoss),
            "the vocabulary has 3 tokens, but token_embd.weight only 2 rows");
  GgufWriter none = TinyGguf({.eos = -1});
  none.Uint("tokenizer.ggml.unknown_token_id", 0xffffffffU)
      .Bool("tokenizer.ggml.add_bos_token", true);
  const auto opened = Open(none);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_FALSE((*opened)->tokenizer_source().unk_id.has_value());
  EXPECT_EQ((*opened)->tokenizer_source().add_bos, true);
  EXPECT_EQ((*opened)->tokenizer_source().gguf_model, "gpt2");
  EXPECT_TRUE((*opened)->generation_defaults().eos_token_ids.empty());
}

TEST(GgufModel, ReadsSamplingDefaultsAndEndsOfTurns) {
  GgufWriter writer = TinyGguf({});
  writer.Float("general.sampling.temp", 0.5F).Float("general.sampling.top_p", 0.75F);
  writer.Entry("general.sampling.top_k", GgufType::kInt32, Raw(40));
  writer.Uint("tokenizer.ggml.eot_token_id", 1).Uint("tokenizer.ggml.eom_token_id", 1);
  const auto opened = Open(writer);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const GenerationDefaults& defaults = (*opened)->generation_defaults();
  EXPECT_EQ(defaults.temperature, 0.5);
  EXPECT_EQ(defaults.top_p, 0.75);
  EXPECT_EQ(defaults.top_k, 40);
  EXPECT_EQ(defaults.min_p, -1.0);
  EXPECT_THAT(defaults.eos_token_ids, ElementsAre(2, 1));
}

TEST(GgufModel, ReadsAVocabularyWithoutAModel) {
  const TempFolder folder;
  GgufWriter writer;
  writer.String("tokenizer.ggml.model", "llama").Strings("tokenizer.ggml.tokens", {"a", "b"});
  const auto source = ReadGgufTokenizer(folder.Write("vocab.gguf", writer.Build()));
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_THAT(source->tokens, ElementsAre("a", "b"));
}

TEST(GgufModel, OpensTheDemoModel) {
  const std::string path = CLEAVE_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!FileExists(path)) GTEST_SKIP() << "make models brings it";
  const auto opened = OpenCheckpoint(path);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const Checkpoint& model = **opened;
  EXPECT_EQ(model.config().num_layers(), 30U);
  EXPECT_EQ(model.config().vocab_size, 49152U);
  EXPECT_EQ(model.config().layers[0].rope_theta, 100000.0);
  EXPECT_EQ(model.config().head_dim, 64U);
  EXPECT_EQ(model.main_dtype(), DType::kQ41);
  EXPECT_EQ(model.chat_template().size(), 368U);
  EXPECT_EQ(model.tokenizer_source().merges.size(), 48900U);
  EXPECT_EQ(model.tokenizer_source().bos_id, 1);
  EXPECT_EQ(model.tokenizer_source().add_bos, false);
  EXPECT_THAT(model.generation_defaults().eos_token_ids, ElementsAre(2));
}

// KiB of mapped files that are resident in this process.
long ResidentFileKib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssFile:")) return std::stol(line.substr(8));
  }
  return -1;
}

TEST(GgufModel, OpensGemmaWithoutReadingItsWeights) {
  const std::string path = CLEAVE_SOURCE_DIR "/models/gemma-3-270m-q4_k_m.gguf";
  if (!FileExists(path)) GTEST_SKIP() << "make models brings it";
  const long before = ResidentFileKib();
  ASSERT_GT(before, 0);
  const auto opened = OpenCheckpoint(path);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  // 250 MB of the file are weights; the rest, mostly the vocabulary, was read.
  EXPECT_LT(ResidentFileKib() - before, 64 * 1024);
  const ModelConfig& config = (*opened)->config();
  EXPECT_EQ(config.head_dim, 256U);
  EXPECT_EQ(config.attention_scale, 0.0625);
  EXPECT_EQ(config.layers[17].window, 0U);
  EXPECT_EQ(config.layers[16].window, 512U);
  EXPECT_EQ((*opened)->tokenizer_source().tokens.size(), 262144U);
  EXPECT_THAT((*opened)->generation_defaults().eos_token_ids, ElementsAre(1, 106));
}

}  // namespace
}  // namespace cleave

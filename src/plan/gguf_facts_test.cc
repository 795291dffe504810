#include "plan/gguf_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "model/format/test_models.h"
#include "plan/holding.h"

namespace cleave {
namespace {

using testing::HasSubstr;
using testing_files::TinyGguf;

Result<GgufFacts> Read(const std::string& file) {
  ASSIGN_OR_RETURN(const GgufContents contents, ParseGguf(std::as_bytes(std::span(file))));
  return ReadGgufFacts(contents, "tiny.gguf");
}

TEST(GgufFacts, ShapeAndBitsOfTheFile) {
  const auto facts = Read(TinyGguf({.head = true}).Build());
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_EQ(facts->model.num_layers(), 2U);
  EXPECT_FALSE(facts->model.tied_embeddings);
  // D 8, H 2, G 1, d 4, F 6, V 3.
  EXPECT_EQ(facts->model.TotalParameters(), 2U * (2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 6) + 2U * 24);
  EXPECT_EQ(facts->weights.linear_bits, 32);
  EXPECT_EQ(facts->weights.embedding_bits, 32);
  // All but its norms.
  EXPECT_EQ(WeightBytes(facts->model, facts->weights),
            static_cast<double>(facts->weight_bytes) - 4 * 8 * (2 * 2 + 1));
  EXPECT_TRUE(Read(TinyGguf({}).Build())->model.tied_embeddings);
}

TEST(GgufFacts, CompressedKvAndExperts) {
  auto writer = TinyGguf({.arch = "deepseek2", .layers = 3});
  writer.Uint("deepseek2.attention.kv_lora_rank", 4).Uint("deepseek2.rope.dimension_count", 2);
  writer.Uint("deepseek2.attention.value_length", 2).Uint("deepseek2.expert_count", 4);
  writer.Uint("deepseek2.expert_used_count", 2).Uint("deepseek2.expert_feed_forward_length", 5);
  writer.Uint("deepseek2.expert_shared_count", 2).Uint("deepseek2.leading_dense_block_count", 1);
  const auto facts = Read(writer.Build());
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  const ModelFacts& model = facts->model;
  EXPECT_EQ(KvBytesPerToken(model, 2), (4 + 2) * 2 * 3);
  EXPECT_EQ(model.mla.nope_dim, 2U);
  EXPECT_EQ(model.shared_ffn_size, 10U);
  EXPECT_FALSE(model.layers[0].experts);
  EXPECT_TRUE(model.layers[2].experts);
}

TEST(GgufFacts, Refuses) {
  EXPECT_THAT(Read(TinyGguf({.without = "token_embd.weight"}).Build()).status().message(),
              HasSubstr("no token_embd.weight"));
  EXPECT_THAT(Read(TinyGguf({.layers = 0}).Build()).status().message(), HasSubstr("layers is 0"));
  EXPECT_THAT(Read(TinyGguf({.layers = 4000000000}).Build()).status().message(),
              HasSubstr("layers is 1025"));
  auto writer = TinyGguf({});
  writer.metadata.erase(writer.metadata.begin() + 2);
  EXPECT_THAT(Read(writer.Build()).status().message(), HasSubstr("embedding_length"));
  EXPECT_FALSE(Read("GGUF").ok());
}

}  // namespace
}  // namespace cleave

#include "engine/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave {
namespace {

using testing::HasSubstr;

ModelConfig Config() {
  ModelConfig c;
  c.hidden_size = 64;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 16;
  c.ffn_size = 128;
  c.vocab_size = 100;
  c.max_position = 1000;
  c.layers.resize(2);
  return c;
}

class SizingTest : public testing::Test {
 protected:
  SizingTest() {
    rank.layers = {0, 2};
    rank.q_heads = {0, 4};
    rank.kv_heads = {0, 2};
    rank.ffn_columns = {0, 128};
    in.config = &config;
    in.rank = &rank;
    in.kv_shape = {.dtype = DType::kF16, .head_dim = 16, .block_tokens = 16};
    in.weight_bytes = 1 << 20;
    in.memory_bytes = 1ULL << 30;
    in.max_num_seqs = 4;
    in.max_num_batched_tokens = 32;
  }
  // 2 layers, 2 heads, keys and values of 16 tokens × 16 × 2 bytes.
  static constexpr uint64_t kBlockBytes = 2 * 2 * 2 * 16 * 16 * 2;
  ModelConfig config = Config();
  RankLayout rank;
  SizingInput in;
};

TEST_F(SizingTest, TakesNoMoreThanTheFlagsCanUse) {
  auto s = ComputeSizing(in);
  ASSERT_TRUE(s.ok()) << s.status().ToString();
  EXPECT_EQ(s->max_model_len, 1000U);
  EXPECT_EQ(s->num_blocks, 4U * 63);
  EXPECT_EQ(s->kv_bytes, s->num_blocks * kBlockBytes);
  EXPECT_THAT(s->Account(16), HasSubstr("4032 tokens, 4.03x of 1000"));
}

TEST_F(SizingTest, OnlyTheCacheGrowsWithTheContext) {
  const auto short_one = ComputeSizing(in);
  config.max_position = 131072;
  const auto long_one = ComputeSizing(in);
  ASSERT_TRUE(short_one.ok() && long_one.ok());
  EXPECT_GT(long_one->kv_bytes, 100 * short_one->kv_bytes);
  EXPECT_EQ(long_one->runtime_bytes, short_one->runtime_bytes);
}

TEST_F(SizingTest, TakesExactlyWhatIsDeclared) {
  in.kv_cache_memory_bytes = 10 * kBlockBytes + 5;
  auto s = ComputeSizing(in);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->num_blocks, 10U);
  EXPECT_EQ(s->max_model_len, 160U);  // auto: what fits
}

TEST_F(SizingTest, ARankPaysForWhatItHolds) {
  in.kv_cache_memory_bytes = 10 * kBlockBytes;
  rank.kv_heads = {1, 2};
  const auto half = ComputeSizing(in);
  rank.layers = {1, 2};
  const auto quarter = ComputeSizing(in);
  ASSERT_TRUE(half.ok() && quarter.ok());
  EXPECT_EQ(half->num_blocks, 20U);
  EXPECT_EQ(quarter->num_blocks, 40U);
  EXPECT_EQ(Smallest(*quarter, *half).num_blocks, 20U);
  EXPECT_EQ(Smallest(*half, *quarter).max_model_len, 320U);
}

TEST_F(SizingTest, ExchangingRanksHoldWhatTheyExchange) {
  const auto alone = ComputeSizing(in);
  in.tp = 2;
  const auto tp = ComputeSizing(in);
  ASSERT_TRUE(alone.ok() && tp.ok());
  // 32 rows of 2 · 64, and logits of 4 rows of 100 twice more.
  EXPECT_EQ(tp->runtime_bytes - alone->runtime_bytes, (32 * 128 + 2 * 4 * 100) * sizeof(float));
}

TEST_F(SizingTest, RefusesWithNumbersAndTheFlagThatHelps) {
  in.max_model_len = 500;
  in.kv_cache_memory_bytes = 10 * kBlockBytes;
  EXPECT_THAT(ComputeSizing(in).status().message(), HasSubstr("at most 160 tokens fit"));
  in.kv_cache_memory_bytes = 10;
  EXPECT_THAT(ComputeSizing(in).status().message(), HasSubstr("holds no KV block"));
  in.kv_cache_memory_bytes = 1ULL << 40U;
  EXPECT_THAT(ComputeSizing(in).status().message(), HasSubstr("lower it to at most"));
  in.kv_cache_memory_bytes.reset();
  in.weight_bytes = 1ULL << 31U;
  const Status s = ComputeSizing(in).status();
  EXPECT_EQ(s.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(s.message(), HasSubstr("weights 2.00"));
  EXPECT_THAT(s.message(), HasSubstr("--gpu-memory-utilization"));
}

}  // namespace
}  // namespace cleave

#include "engine/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/partitions.h"

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
    in.kv_shape = {.type = KvType::kF16, .head_dim = 16, .block_tokens = 16};
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

// A byte an element and four a row of 16, against two bytes an element.
TEST_F(SizingTest, AnInt8CacheHoldsItsScalesToo) {
  constexpr uint64_t kInt8BlockBytes = 2 * 2 * 2 * 16 * (16 + 4);
  in.kv_cache_memory_bytes = 10 * kBlockBytes;
  in.kv_shape.type = KvType::kInt8;
  const auto s = ComputeSizing(in);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->num_blocks, 16U);  // 10 of f16
  EXPECT_EQ(s->kv_bytes, 16 * kInt8BlockBytes);
  EXPECT_EQ(s->max_model_len, 256U);
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

// Of ranks that share a sequence by runs of 512 positions, 32 blocks: each holds as many runs, the
// first a part of one more.
TEST_F(SizingTest, TheContextGrowsWithTheRanksThatShareIt) {
  config.max_position = 100000;
  in.kv_cache_memory_bytes = 70 * kBlockBytes;  // two runs and 6 blocks
  for (const uint32_t partitions : {1U, 2U, 3U, 7U}) {
    in.kv_partitions = partitions;
    const auto s = ComputeSizing(in);
    ASSERT_TRUE(s.ok()) << s.status().ToString();
    EXPECT_EQ(s->max_model_len, 2 * 512 * partitions + 6 * 16);
    EXPECT_EQ(s->num_blocks, 70U);
    EXPECT_EQ(s->kv_partitions, partitions);
    EXPECT_EQ(s->pool_blocks(), 70 * partitions);
    EXPECT_EQ(s->kv_bytes, 70 * kBlockBytes);
  }
  in.kv_partitions = 2;
  in.max_model_len = 1000;  // 512 positions of each are the first rank's
  EXPECT_THAT(ComputeSizing(in)->Account(16), HasSubstr("2240 tokens, 2.19x of 1000"));
  in.max_model_len = 2144;
  EXPECT_THAT(ComputeSizing(in)->Account(16), HasSubstr("2240 tokens, 1.00x of 2144"));
  in.max_model_len = 2145;
  EXPECT_THAT(ComputeSizing(in).status().message(),
              HasSubstr("in the first of 2 ranks that share its positions"));
  EXPECT_THAT(ComputeSizing(in).status().message(), HasSubstr("at most 2144 tokens fit"));
  in.kv_partitions = 3;
  EXPECT_TRUE(ComputeSizing(in).ok());
}

TEST_F(SizingTest, ARankTakesNoMoreThanItsShareOfWhatTheFlagsCanUse) {
  in.kv_partitions = 2;
  EXPECT_EQ(ComputeSizing(in)->num_blocks, 4U * 32);  // of 1000 positions, 512
  in.max_model_len = 512;
  EXPECT_EQ(ComputeSizing(in)->num_blocks, 4U * 32);  // the second rank holds none
  config.max_position = 5000;
  in.max_model_len = 3000;  // runs 0, 2 and 4
  EXPECT_EQ(ComputeSizing(in)->num_blocks, 4U * 3 * 32);
  in.kv_partitions = 3;  // runs 0 and 3
  EXPECT_EQ(ComputeSizing(in)->num_blocks, 4U * 2 * 32);
  in.kv_partitions = 5;  // run 0 and 440 positions of run 5
  EXPECT_EQ(ComputeSizing(in)->num_blocks, 4U * (32 + 28));
}

// Teams have pools of their own; a rank's experts may get the rows of all.
TEST_F(SizingTest, EveryTeamHasAPool) {
  const auto one = ComputeSizing(in);
  in.teams = 3;
  const auto three = ComputeSizing(in);
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ(three->num_blocks, one->num_blocks);
  EXPECT_EQ(three->pool_blocks(), 3 * one->pool_blocks());
  EXPECT_EQ(three->max_model_len, one->max_model_len);
  EXPECT_DOUBLE_EQ(three->MaxConcurrency(16), 3 * one->MaxConcurrency(16));
  EXPECT_GT(three->runtime_bytes, one->runtime_bytes);
  EXPECT_LT(three->runtime_bytes, 3 * one->runtime_bytes);
}

TEST_F(SizingTest, BlockIdsOfAllPartitionsStayPositive) {
  in.kv_partitions = 4096;
  in.kv_shape.head_dim = config.head_dim = 1;
  rank.layers = {0, 1};
  rank.kv_heads = {0, 1};
  in.memory_bytes = 1ULL << 40U;
  in.kv_cache_memory_bytes = 1ULL << 39U;
  config.max_position = UINT32_MAX;
  const auto s = ComputeSizing(in);
  ASSERT_TRUE(s.ok()) << s.status().ToString();
  EXPECT_EQ(s->num_blocks, static_cast<uint32_t>(INT32_MAX) / 4096);
  EXPECT_LE(s->pool_blocks(), static_cast<uint32_t>(INT32_MAX));
  EXPECT_EQ(s->max_model_len, UINT32_MAX);
}

// The pool's partitions are the ranks of split/layout.h.
TEST(KvPartitions, AreWhatRanksHold) {
  const Split split{.tp = 4, .cp = 3, .dcp = 2};
  const KvPartitions positions{.count = 6, .run = kRunPositions};
  const auto blocks = KvPartitions::OfBlocks(6, kRunPositions, 64);
  for (uint32_t tp = 0; tp < split.tp; ++tp) {
    for (uint32_t cp = 0; cp < split.cp; ++cp) {
      const RankCoord coord{.tp = tp, .cp = cp};
      const uint32_t partition = tp % 2 * 3 + cp;
      for (uint32_t n = 0; n < 20 * kRunPositions; n += 37) {
        ASSERT_EQ(positions.Held(n, partition), PositionsHeld(split, coord, n));
        ASSERT_EQ(blocks.Of(n / 64) == partition, HoldsRun(split, coord, n / kRunPositions));
      }
    }
  }
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

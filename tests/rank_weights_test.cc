// Every rank loads what its layout declares, no more: the matrices in memory beside the bytes that
// sizing and the dry run tell.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/model_weights.h"
#include "engine/open_model.h"

namespace cleave {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Matrices in memory round rows up to groups and columns to blocks.
constexpr double kPadding = 1.35;

struct Case {
  const char* model;
  Split split;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " " << c.split.ToString(); }

class RankWeights : public testing::TestWithParam<Case> {};

TEST_P(RankWeights, AreWhatTheLayoutDeclares) {
  auto checkpoint = OpenCheckpoint(std::string(CLEAVE_TINY) + "/" + GetParam().model);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  ModelSettings settings;
  settings.split = GetParam().split;
  const auto plan = PlanModel(**checkpoint, settings);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ThreadPool pool(1, {});
  uint32_t heads = 0;  // ranks that have a part of the vocabulary's
  for (const RankLayout& rank : plan->layout.ranks) {
    const auto weights = LoadWeights(**checkpoint, rank, {}, &pool, nullptr);
    ASSERT_TRUE(weights.ok()) << weights.status().ToString();
    EXPECT_EQ(weights->head.bytes() > 0, rank.has_head()) << rank.rank;
    EXPECT_EQ(weights->final_norm.empty(), !rank.has_head()) << rank.rank;
    heads += rank.has_head() ? 1 : 0;
    // The embedding stays in the file.
    ModelBytes bytes = plan->bytes;
    bytes.embedding = 0;
    const auto declared = static_cast<double>(WeightBytesOf(plan->layout, rank, bytes));
    const auto packed = static_cast<double>(weights->packed_bytes());
    EXPECT_GT(packed, declared * 0.9) << rank.rank;
    EXPECT_LT(packed, declared * kPadding) << rank.rank;
  }
  EXPECT_EQ(heads, settings.split.tp);
}

TEST(RankSizes, TheCachesTypeIsWhatTheFlagSays) {
  auto checkpoint = OpenCheckpoint(std::string(CLEAVE_TINY) + "/llama3");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  ModelSettings settings;
  const auto type_of = [&](const char* flag) {
    settings.kv_cache_dtype = flag;
    const auto plan = PlanModel(**checkpoint, settings);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return plan->executor.kv_shape.type;
  };
  EXPECT_EQ(type_of("float32"), KvType::kF32);
  EXPECT_EQ(type_of("f16"), KvType::kF16);
  EXPECT_EQ(type_of("bf16"), KvType::kBF16);
  EXPECT_EQ(type_of("int8"), KvType::kInt8);
  EXPECT_EQ(type_of("int8_per_token_head"), KvType::kInt8);
  settings.dtype = "float32";
  EXPECT_EQ(type_of("auto"), KvType::kF32);
  settings.dtype = "bfloat16";
  EXPECT_EQ(type_of("auto"), KvType::kBF16);
  settings.dtype = "float16";
  EXPECT_EQ(type_of("auto"), KvType::kF16);
  settings.kv_cache_dtype = "int4";
  EXPECT_THAT(PlanModel(**checkpoint, settings).status().message(),
              HasSubstr("--kv-cache-dtype int4: expected auto, float32, float16 or bfloat16, or "
                        "int8"));
}

// Each replica holds the whole model: so many are too many for a share of any host.
TEST(RankSizes, TooManyRanksForTheMemoryAreToldHowManyFit) {
  auto checkpoint = OpenCheckpoint(std::string(CLEAVE_TINY) + "/llama3");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  ModelSettings settings;
  settings.memory_utilization = 0.01;
  settings.split = {.dp = 2000, .cp = 2};
  const auto refused = PlanModel(**checkpoint, settings);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  const std::string message = refused.status().message();
  EXPECT_THAT(message, StartsWith("rank 0 of 4000, which share "));
  const std::string before = "; layouts that fit: dp=";
  ASSERT_THAT(message, HasSubstr(before));
  settings.split.dp =
      static_cast<uint32_t>(std::stoul(message.substr(message.find(before) + before.size())));
  EXPECT_TRUE(PlanModel(**checkpoint, settings).ok()) << message;
  ++settings.split.dp;
  EXPECT_FALSE(PlanModel(**checkpoint, settings).ok()) << message;
  // Fewer ranks do not make a pool larger.
  settings.split = {.cp = 2};
  settings.memory_utilization = 0.9;
  settings.kv_cache_memory_bytes = 1 << 16;
  settings.max_model_len = 512;
  const auto small = PlanModel(**checkpoint, settings);
  ASSERT_FALSE(small.ok());
  EXPECT_THAT(small.status().message(), Not(HasSubstr("layouts that fit")));
}

// Teams share one copy of the experts, whose ranks become fewer with them.
TEST(RankSizes, TooManyTeamsAreToldHowManyFit) {
  auto checkpoint = OpenCheckpoint(std::string(CLEAVE_TINY) + "/qwen3_moe");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  ModelSettings settings;
  settings.split = {.teams = 4, .ep = 4};
  settings.memory_utilization = 0.5;
  auto refused = PlanModel(**checkpoint, settings);
  for (; refused.ok(); refused = PlanModel(**checkpoint, settings)) {
    settings.memory_utilization *= 0.8;
  }
  const std::string message = refused.status().message();
  const std::string before = "layouts that fit: teams=";
  ASSERT_THAT(message, HasSubstr(before));
  const auto fit =
      static_cast<uint32_t>(std::stoul(message.substr(message.find(before) + before.size())));
  settings.split = {.teams = fit, .ep = fit};
  EXPECT_TRUE(PlanModel(**checkpoint, settings).ok()) << message;
}

INSTANTIATE_TEST_SUITE_P(Cuts, RankWeights,
                         testing::Values(Case{"llama3", {}}, Case{"llama3", {.cp = 3}},
                                         Case{"llama3", {.pp = 2, .tp = 2, .cp = 2}},
                                         Case{"llama3.gguf", {.tp = 2, .cp = 2, .dcp = 2}},
                                         Case{"gemma3", {.pp = 3, .cp = 2}},
                                         Case{"qwen3_moe", {.tp = 2, .ep = 4, .cp = 2}}));

}  // namespace
}  // namespace cleave

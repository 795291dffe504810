#include "cli/bench_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

BenchFlags Parsed(const std::vector<std::string>& args) {
  BenchFlags flags;
  OptionTable table("bench engine", "test");
  flags.AddTo(&table);
  const auto parsed = table.Parse(args);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return flags;
}

TEST(BenchFlags, BatchesAreAListOfSizes) {
  EXPECT_THAT(Parsed({"m"}).Batches().value(), ElementsAre(1, 32));
  EXPECT_THAT(Parsed({"m", "--batch", "7"}).Batches().value(), ElementsAre(7));
  EXPECT_THAT(Parsed({"m", "--batch=4,1,4"}).Batches().value(), ElementsAre(4, 1, 4));
  for (const char* bad : {"", ",", "1,", ",1", "0", "-1", "4097", "1;2", "two", "1,,2", "1 2"}) {
    const auto batches = Parsed({"m", "--batch=" + std::string(bad)}).Batches();
    ASSERT_FALSE(batches.ok()) << bad;
    EXPECT_EQ(batches.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(batches.status().message(), HasSubstr("--batch " + std::string(bad)));
  }
}

TEST(BenchFlags, TheCachesTypeIsOneOfAList) {
  EXPECT_EQ(Parsed({"m"}).model.Settings().kv_cache_dtype, "auto");
  for (const char* type : {"auto", "f32", "bfloat16", "int8", "int8_per_token_head"}) {
    EXPECT_EQ(Parsed({"m", "--kv-cache-dtype", type}).model.Settings().kv_cache_dtype, type);
  }
  BenchFlags flags;
  OptionTable table("bench engine", "test");
  flags.AddTo(&table);
  const auto refused = table.Parse({"m", "--kv-cache-dtype", "fp8"});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(),
              HasSubstr("'fp8' is not one of auto, f32, f16, bf16, int8"));
}

TEST(BenchFlags, ABatchLeavesRoomInAStepForPrefill) {
  EXPECT_TRUE(Parsed({"m", "--batch", "256"}).Batches().ok());
  EXPECT_TRUE(Parsed({"m", "--batch", "1", "--max-num-batched-tokens", "1"}).Batches().ok());
  const auto refused = Parsed({"m", "--batch", "1,257"}).Batches();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("--max-num-batched-tokens 514"));
}

TEST(BenchFlags, TheSecondLayoutStartsWithoutACutAndWithTheSameThreads) {
  EXPECT_EQ(Parsed({"m", "-tp", "2"}).Layouts().value().size(), 1);
  const auto layouts =
      Parsed({"m", "-tp", "2", "--threads", "3", "--against=-pp 2  --tensor_parallel_size=1"})
          .Layouts()
          .value();
  ASSERT_EQ(layouts.size(), 2);
  EXPECT_EQ(layouts[0].split, (Split{.tp = 2}));
  EXPECT_EQ(layouts[0].threads, 3);
  EXPECT_EQ(layouts[1].split, (Split{.pp = 2}));
  EXPECT_EQ(layouts[1].threads, 3);
  const auto wide = Parsed({"m", "--against=-tp 1 --threads 2"}).Layouts().value();
  EXPECT_EQ(wide[1].split, Split{});
  EXPECT_EQ(wide[1].threads, 2);
  const auto loads = Parsed({"m", "--expert-load", "a", "--against=--ep 2 --expert-load b"});
  EXPECT_EQ(loads.Layouts().value()[0].expert_load, "a");
  EXPECT_EQ(loads.Layouts().value()[1].expert_load, "b");
}

TEST(BenchFlags, ASecondLayoutThatIsNoneIsRefused) {
  for (const char* bad : {"-tp 0", "-tp", "two", "--batch 3", "--tp-shares x", "-tp 5000"}) {
    const auto layouts = Parsed({"m", "--against=" + std::string(bad)}).Layouts();
    ASSERT_FALSE(layouts.ok()) << bad;
    EXPECT_EQ(layouts.status().code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(layouts.status().message(), HasSubstr("--against '" + std::string(bad) + "': "));
  }
}

}  // namespace
}  // namespace cleave

#include "cli/split_flags.h"

#include <gtest/gtest.h>

namespace cleave {
namespace {

Split SplitOf(const std::vector<std::string>& args) {
  SplitFlags flags;
  OptionTable table("serve", "test");
  flags.AddTo(&table);
  const auto parsed = table.Parse(args);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return flags.ToSplit().value();
}

TEST(SplitFlags, ExpertParallelTakesAllRanksOfAStage) {
  EXPECT_EQ(SplitOf({"-tp", "3", "--enable-expert-parallel", "--cp", "2"}),
            (Split{.tp = 3, .ep = 6, .cp = 2}));
  EXPECT_EQ(SplitOf({"-ep"}), Split());
  EXPECT_EQ(SplitOf({"-tp", "4", "--ep", "2"}), (Split{.tp = 4, .ep = 2}));
  EXPECT_EQ(SplitOf({"-tp", "4", "--ep", "2", "-ep"}), (Split{.tp = 4, .ep = 2}));
}

TEST(SplitFlags, DataParallelRanksAreTeamsUnderExpertParallel) {
  EXPECT_EQ(SplitOf({"-dp", "2", "-ep"}), (Split{.teams = 2, .ep = 2}));
  EXPECT_EQ(SplitOf({"-dp", "2", "-pp", "2", "-tp", "2", "--enable-expert-parallel"}),
            (Split{.pp = 2, .teams = 2, .tp = 2, .ep = 4}));
  EXPECT_EQ(SplitOf({"-dp", "4", "-tp", "2", "--ep", "2", "-ep"}),
            (Split{.teams = 4, .tp = 2, .ep = 2}));
  // A size of ep alone says nothing of dp.
  EXPECT_EQ(SplitOf({"-dp", "2", "-tp", "2", "--ep", "2"}), (Split{.dp = 2, .tp = 2, .ep = 2}));
  // Sizes that no model has are MakeLayout's to refuse, not a number that came round to a small
  // one.
  EXPECT_EQ(SplitOf({"-dp", "4096", "-tp", "4096", "--cp", "4096", "-ep"}).ep, UINT32_MAX);
}

TEST(SplitFlags, WithoutExpertsTeamsAreReplicas) {
  ModelConfig dense;
  Split split = SplitOf({"-dp", "2", "-ep"});
  FitToModel(dense, &split);
  EXPECT_EQ(split, (Split{.dp = 2}));
  ModelConfig mixture;
  mixture.num_experts = 4;
  split = SplitOf({"-dp", "2", "-ep"});
  FitToModel(mixture, &split);
  EXPECT_EQ(split, (Split{.teams = 2, .ep = 2}));
}

}  // namespace
}  // namespace cleave

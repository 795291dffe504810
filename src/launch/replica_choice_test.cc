#include "launch/replica_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace cleave {
namespace {

using testing::ElementsAre;

constexpr uint32_t kBlock = 4;

std::vector<int32_t> Prompt(int32_t first, size_t tokens) {
  std::vector<int32_t> prompt(tokens);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

TEST(ReplicaChoice, TiesGoToTheLowerIndex) {
  const ReplicaChoice choice(3, kBlock, 100);
  const std::vector<ReplicaLoad> idle(3);
  EXPECT_EQ(choice.Choose(Prompt(0, 10), "", idle), 0U);
  const std::vector<ReplicaLoad> loads = {{true, 5}, {true, 4}, {true, 4}};
  EXPECT_EQ(choice.Choose(Prompt(0, 10), "", loads), 1U);
}

TEST(ReplicaChoice, TheDeadTakeNothing) {
  const ReplicaChoice choice(2, kBlock, 100);
  const std::vector<ReplicaLoad> one = {{false, 0}, {true, 1000}};
  EXPECT_EQ(choice.Choose(Prompt(0, 10), "", one), 1U);
  const std::vector<ReplicaLoad> none = {{false, 0}, {false, 0}};
  EXPECT_EQ(choice.Choose(Prompt(0, 10), "", none), std::nullopt);
}

TEST(ReplicaChoice, MatchesWholeBlocksFromTheStart) {
  ReplicaChoice choice(2, kBlock, 100);
  choice.Sent(Prompt(0, 11), "", 1);
  EXPECT_THAT(choice.Matched(Prompt(0, 11), ""), ElementsAre(0, 8));
  EXPECT_THAT(choice.Matched(Prompt(0, 7), ""), ElementsAre(0, 4));
  EXPECT_THAT(choice.Matched(Prompt(1, 11), ""), ElementsAre(0, 0));
  EXPECT_THAT(choice.Matched(Prompt(0, 11), "other salt"), ElementsAre(0, 0));
  // The second block under another first one is another block.
  std::vector<int32_t> other = Prompt(0, 8);
  other[0] = 99;
  EXPECT_THAT(choice.Matched(other, ""), ElementsAre(0, 0));
}

TEST(ReplicaChoice, AMatchOutweighsAsManyTokensOfLoad) {
  ReplicaChoice choice(2, kBlock, 100);
  choice.Sent(Prompt(0, 80), "", 1);
  const auto with_load = [&](uint64_t tokens) {
    const std::vector<ReplicaLoad> loads = {{true, 0}, {true, tokens}};
    return choice.Choose(Prompt(0, 100), "", loads);
  };
  EXPECT_EQ(with_load(79), 1U);
  EXPECT_EQ(with_load(80), 0U);
  EXPECT_EQ(with_load(81), 0U);
}

TEST(ReplicaChoice, StreamsWithOnePromptSpreadEvenly) {
  ReplicaChoice choice(2, kBlock, 1000);
  std::vector<ReplicaLoad> loads(2);
  std::vector<uint32_t> streams(2, 0);
  for (int32_t i = 0; i < 64; ++i) {
    std::vector<int32_t> prompt = Prompt(0, 200);  // a system prompt, then a question
    prompt.push_back(1000 + i);
    const uint32_t chosen = choice.Choose(prompt, "", loads).value();
    choice.Sent(prompt, "", chosen);
    loads[chosen].tokens += prompt.size();
    ++streams[chosen];
  }
  EXPECT_THAT(streams, ElementsAre(32, 32));
}

TEST(ReplicaChoice, ConversationsReturnToTheirReplicas) {
  ReplicaChoice choice(4, kBlock, 10000);
  const std::vector<ReplicaLoad> idle(4);
  for (uint32_t r = 0; r < 4; ++r) choice.Sent(Prompt(static_cast<int32_t>(1000 * r), 40), "", r);
  for (uint32_t r = 0; r < 4; ++r) {
    EXPECT_EQ(choice.Choose(Prompt(static_cast<int32_t>(1000 * r), 90), "", idle), r);
  }
}

TEST(ReplicaChoice, ForgetsTheLeastRecentlySentAndTheDead) {
  ReplicaChoice choice(2, kBlock, 4);
  choice.Sent(Prompt(0, 8), "", 0);
  choice.Sent(Prompt(100, 8), "", 1);
  choice.Sent(Prompt(0, 8), "", 0);  // used again: younger now
  choice.Sent(Prompt(200, 4), "", 0);
  EXPECT_EQ(choice.blocks(), 4U);
  EXPECT_THAT(choice.Matched(Prompt(0, 8), ""), ElementsAre(8, 0));
  EXPECT_THAT(choice.Matched(Prompt(100, 8), ""), ElementsAre(0, 0));  // its first block is gone
  choice.Sent(Prompt(0, 8), "", 1);
  choice.Forget(0);
  EXPECT_THAT(choice.Matched(Prompt(0, 8), ""), ElementsAre(0, 8));
  choice.Forget(1);
  EXPECT_EQ(choice.blocks(), 0U);
}

TEST(ReplicaChoice, MoreReplicasThanItTracksAreChosenByLoad) {
  ReplicaChoice choice(70, kBlock, 100);
  choice.Sent(Prompt(0, 8), "", 69);
  EXPECT_EQ(choice.blocks(), 0U);
  std::vector<ReplicaLoad> loads(70, {true, 1});
  loads[69].tokens = 0;
  EXPECT_EQ(choice.Choose(Prompt(0, 8), "", loads), 69U);
}

}  // namespace
}  // namespace cleave

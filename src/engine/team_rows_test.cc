// Rows of a batch by teams: every row is one team's, and what is out of order is refused.

#include "engine/team_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cleave {
namespace {

using ::testing::HasSubstr;

struct Batch {
  // Sequences of so many tokens, each of a team.
  explicit Batch(const std::vector<std::pair<uint32_t, uint32_t>>& team_and_tokens) {
    for (const auto& [team, tokens] : team_and_tokens) {
      sequences.push_back({.tokens = tokens, .block_table = {}, .team = team});
      for (uint32_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>(ids.size()));
    }
  }
  [[nodiscard]] ForwardBatch view() const { return {ids, sequences, {}}; }

  std::vector<int32_t> ids;
  std::vector<BatchSequence> sequences;
};

TEST(TeamRows, AreOneStretchEachAndMaybeNone) {
  TeamRows teams(4);
  const Batch batch({{0, 3}, {2, 1}, {2, 2}});
  ASSERT_TRUE(teams.Assign(batch.view()).ok());
  EXPECT_EQ(std::vector<Range>(teams.all().begin(), teams.all().end()),
            (std::vector<Range>{{0, 3}, {3, 3}, {3, 6}, {6, 6}}));
  const std::vector<uint32_t> expected{0, 0, 0, 2, 2, 2};
  for (uint32_t row = 0; row < 6; ++row) EXPECT_EQ(teams.TeamOf(row), expected[row]);
  EXPECT_EQ(teams.PartOf(0, batch.view()).sequences.size(), 1U);
  EXPECT_TRUE(teams.PartOf(1, batch.view()).token_ids.empty());
  const ForwardBatch part = teams.PartOf(2, batch.view());
  EXPECT_EQ(part.token_ids[0], 3);
  EXPECT_EQ(part.token_ids.size(), 3U);
  EXPECT_EQ(part.sequences.size(), 2U);
  // Nothing is left of the batch before.
  const Batch last({{3, 2}});
  ASSERT_TRUE(teams.Assign(last.view()).ok());
  EXPECT_EQ(teams.of(0), (Range{0, 0}));
  EXPECT_EQ(teams.of(3), (Range{0, 2}));
  EXPECT_EQ(teams.TeamOf(0), 3U);
}

TEST(TeamRows, RefusesWhatIsNoBatch) {
  TeamRows teams(2);
  const auto message = [&](const Batch& batch) {
    const Status status = teams.Assign(batch.view());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message(Batch({{1, 2}, {0, 2}})),
              HasSubstr("sequence 1 of a batch is of team 0: out of order, or not one of 2"));
  EXPECT_THAT(message(Batch({{0, 2}, {2, 2}})), HasSubstr("sequence 1 of a batch is of team 2"));
  Batch few({{0, 2}, {1, 3}});
  few.ids.pop_back();
  EXPECT_THAT(message(few), HasSubstr("4 token ids for sequences of 5"));
  Batch many({{0, 2}, {1, 3}});
  many.ids.push_back(7);
  EXPECT_THAT(message(many), HasSubstr("6 token ids for sequences of 5 tokens"));
  Batch huge({{0, 1}, {1, 1}});
  huge.sequences[0].tokens = huge.sequences[1].tokens = UINT32_MAX;
  EXPECT_THAT(message(huge), HasSubstr("2 token ids for sequences of 4294967295 or more tokens"));
}

}  // namespace
}  // namespace cleave

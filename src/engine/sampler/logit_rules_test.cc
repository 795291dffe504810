#include "engine/sampler/logit_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace cleave {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
using Ids = std::vector<int32_t>;
using Row = std::vector<float>;

// The rules on logits {1, 2, …, 8} with EOS 7; `tokens` are prompt then output.
Row Apply(const SamplingParams& params, const Ids& tokens = {0}, uint32_t prompt_tokens = 1) {
  LogitRules rules(8, {7});
  Row logits = {1, 2, 3, 4, 5, 6, 7, 8};
  const SampleContext context{&params, tokens, prompt_tokens};
  Row again = logits;
  rules.Apply(context, logits.data());
  rules.Apply(context, again.data());  // nothing is kept from call to call
  EXPECT_EQ(again, logits);
  return logits;
}

TEST(LogitRules, NothingAskedNothingChanged) {
  EXPECT_EQ(Apply({}), (Row{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(LogitRules, BiasIsAddedAndUnknownIdsAreIgnored) {
  SamplingParams p;
  p.logit_bias = {{1, 10.0F}, {2, -1.5F}, {99, 5.0F}, {-1, 5.0F}};
  EXPECT_EQ(Apply(p), (Row{1, 12, 1.5, 4, 5, 6, 7, 8}));
}

TEST(LogitRules, OnlyAllowedIdsStay) {
  SamplingParams p;
  p.allowed_token_ids = {3, 0, 3, 42, -7};
  EXPECT_EQ(Apply(p), (Row{1, kMasked, kMasked, 4, kMasked, kMasked, kMasked, kMasked}));
}

TEST(LogitRules, BadWordsMatchTheEndOfTheOutputOnly) {
  SamplingParams p;
  p.bad_words = {{5}, {1, 2, 3}, {6, 2, 4}, {}, {99}};
  const Row first = Apply(p, {1, 2}, 2);  // the same ids in the prompt do not count
  EXPECT_EQ(first, (Row{1, 2, 3, 4, 5, kMasked, 7, 8}));
  const Row later = Apply(p, {0, 1, 2}, 1);
  EXPECT_EQ(later, (Row{1, 2, 3, kMasked, 5, kMasked, 7, 8}));
}

TEST(LogitRules, MinTokensMasksEosAndStopIdsBeforeThatMany) {
  SamplingParams p;
  p.min_tokens = 2;
  p.stop_token_ids = {4};
  EXPECT_EQ(Apply(p, {0}, 1), (Row{1, 2, 3, 4, kMasked, 6, 7, kMasked}));
  EXPECT_EQ(Apply(p, {0, 1}, 1), (Row{1, 2, 3, 4, kMasked, 6, 7, kMasked}));
  EXPECT_EQ(Apply(p, {0, 1, 1}, 1), (Row{1, 2, 3, 4, 5, 6, 7, 8}));
  p.ignore_eos = true;
  EXPECT_EQ(Apply(p, {0}, 1), (Row{1, 2, 3, 4, kMasked, 6, 7, 8}));
}

TEST(LogitRules, RepetitionCountsPromptAndOutputOnce) {
  SamplingParams p;
  p.repetition_penalty = 2;
  p.logit_bias = {{1, -4.0F}};  // logit -2
  EXPECT_EQ(Apply(p, {0, 1, 5, 5, 99}, 2), (Row{0.5, -4, 3, 4, 5, 3, 7, 8}));
}

TEST(LogitRules, FrequencyAndPresenceCountTheOutput) {
  SamplingParams p;
  p.frequency_penalty = 0.5;
  p.presence_penalty = 0.25;
  EXPECT_EQ(Apply(p, {0, 1, 5, 5, 5, 2}, 2), (Row{1, 2, 2.25, 4, 5, 4.25, 7, 8}));
  p.frequency_penalty = 0;
  EXPECT_EQ(Apply(p, {0, 1, 5, 5, 5, 2}, 2), (Row{1, 2, 2.75, 4, 5, 5.75, 7, 8}));
}

TEST(LogitRules, PenaltiesKeepMaskedTokensMasked) {
  SamplingParams p;
  p.allowed_token_ids = {2};
  p.repetition_penalty = 1.5;
  p.frequency_penalty = -2;
  const Row row = Apply(p, {1, 1, 2}, 1);
  EXPECT_EQ(row[1], kMasked);
  EXPECT_EQ(row[2], 3 / 1.5F + 2);
}

}  // namespace
}  // namespace cleave

#include "http/openai/choice.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "http/testing/fake_engine.h"
#include "http/testing/fake_text.h"

namespace cleave::openai {
namespace {

using testing::FakeTokenizer;
using testing::kEos;
using testing::Step;

using Look = StopScan::Look;

TEST(StopScanTest, HoldsBackWhatMayBecomeAStop) {
  StopScan scan({"STOP", "ST!"}, false);
  EXPECT_EQ(scan.Push("a S", Look::kYes), "a ");
  EXPECT_EQ(scan.Push("T", Look::kYes), "");
  EXPECT_EQ(scan.Push("S", Look::kYes), "ST");
  EXPECT_EQ(scan.Push("TO", Look::kYes), "");
  EXPECT_EQ(scan.Push("x", Look::kYes), "STOx");
  EXPECT_EQ(scan.Push(" ST", Look::kYes), " ");
  EXPECT_EQ(scan.Push("OP and more", Look::kYes), "");
  EXPECT_TRUE(scan.hit());
  EXPECT_EQ(scan.stop(), "STOP");
}

TEST(StopScanTest, TheStopThatCompletesFirstWins) {
  StopScan later_in_list({"long stop", "ng"}, false);
  EXPECT_EQ(later_in_list.Push("a long stop", Look::kYes), "a lo");
  EXPECT_EQ(later_in_list.stop(), "ng");
  StopScan same_end({"b", "ab"}, false);
  EXPECT_EQ(same_end.Push("xab", Look::kYes), "x");
  EXPECT_EQ(same_end.stop(), "ab");
  StopScan included({"op"}, true);
  EXPECT_EQ(included.Push("a stop, more", Look::kYes), "a stop");
}

TEST(StopScanTest, RestIsWhatWasHeld) {
  StopScan scan({"STOP"}, false);
  EXPECT_EQ(scan.Push("x STO", Look::kYes), "x ");
  EXPECT_EQ(scan.Rest(), "STO");
  EXPECT_EQ(scan.Rest(), "");
}

TEST(StopScanTest, StopsCompletedBeforeItLooksDoNotCount) {
  StopScan scan({"ab", "abc"}, false);
  EXPECT_EQ(scan.Push("ab", Look::kNot), "");
  EXPECT_EQ(scan.Push("x", Look::kYes), "abx");
  EXPECT_EQ(scan.Push("ab", Look::kNot), "");
  EXPECT_EQ(scan.Push("c", Look::kYes), "");
  EXPECT_EQ(scan.stop(), "abc");
}

// Against the whole text searched at once, over random cuts.
TEST(StopScanTest, AgreesWithSearchingTheWholeText) {
  RngStream rng(3);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](size_t least, size_t most) {
      std::string out;
      for (size_t n = least + rng.Below(most - least + 1); n > 0; --n) {
        out.push_back(static_cast<char>('a' + rng.Below(2)));
      }
      return out;
    };
    std::vector<std::string> stops;
    for (size_t n = 1 + rng.Below(3); n > 0; --n) stops.push_back(word(2, 5));
    const std::string text = word(0, 30);
    size_t end = std::string::npos;
    size_t begin = text.size();
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == std::string::npos) continue;
      const size_t stop_end = at + stop.size();
      if (stop_end < end || (stop_end == end && at < begin)) {
        end = stop_end;
        begin = at;
      }
    }
    StopScan scan(stops, false);
    std::string shown;
    for (size_t i = 0; i < text.size() && !scan.hit();) {
      const size_t n = std::min<size_t>(1 + rng.Below(4), text.size() - i);
      shown += scan.Push(text.substr(i, n), Look::kYes);
      i += n;
    }
    if (!scan.hit()) shown += scan.Rest();
    ASSERT_EQ(shown, text.substr(0, begin)) << text << " / " << stops[0];
    ASSERT_EQ(scan.hit(), end != std::string::npos);
  }
}

class ChoiceTest : public ::testing::Test {
 protected:
  FakeTokenizer tokenizer_;
  Generation g_;
};

TEST_F(ChoiceTest, NeverShowsHalfACharacter) {
  Choice choice(&tokenizer_, g_);
  EXPECT_EQ(choice.Push(Step(1, {261})).text, "");
  EXPECT_EQ(choice.Push(Step(1, {262})).text, "\xF0\x9F\x98\x80");
  EXPECT_EQ(choice.Push(Step(1, {0xE2, 0x82})).text, "");
  // The character that max_tokens cut is left out, as vLLM leaves it out; its tokens are counted.
  const ChoiceDelta last = choice.Push(Step(1, {0xAC, 261}, FinishReason::kLength));
  EXPECT_EQ(last.text, "\xE2\x82\xAC");
  EXPECT_EQ(last.ending, Ending::kLength);
  EXPECT_EQ(choice.token_count(), 6U);
}

TEST_F(ChoiceTest, AStopStringAcrossTokensEndsItAndCountsItsTokens) {
  g_.stop = {"lo wor"};
  Choice choice(&tokenizer_, g_);
  EXPECT_EQ(choice.Push(Step(1, {256})).text, "hel");
  const ChoiceDelta end = choice.Push(Step(1, {257, 256}));
  EXPECT_EQ(end.text, "");
  EXPECT_EQ(end.ending, Ending::kStop);
  EXPECT_TRUE(end.abort);
  EXPECT_EQ(end.stop_string, "lo wor");
  EXPECT_EQ(end.tokens, std::vector<int32_t>{257});
  EXPECT_EQ(choice.token_count(), 2U);
  EXPECT_TRUE(choice.Push(Step(1, {256})).tokens.empty());
  EXPECT_EQ(choice.token_count(), 2U);
}

TEST_F(ChoiceTest, AStopStringOnTheLastTokenNeedsNoAbort) {
  g_.stop = {"ab"};
  g_.include_stop = true;
  Choice choice(&tokenizer_, g_);
  const ChoiceDelta end = choice.Push(Step(1, {259}, FinishReason::kLength));
  EXPECT_EQ(end.text, "ab");
  EXPECT_EQ(end.ending, Ending::kStop);
  EXPECT_FALSE(end.abort);
}

TEST_F(ChoiceTest, StopsCountOnlyAfterMinTokens) {
  g_.stop = {"ab"};
  g_.sampling.min_tokens = 1;
  Choice choice(&tokenizer_, g_);
  EXPECT_EQ(choice.Push(Step(1, {259})).text, "ab");
  EXPECT_TRUE(choice.Push(Step(1, {259})).abort);
}

TEST_F(ChoiceTest, TheIdThatStoppedItIsCountedButNotShown) {
  g_.skip_special = false;
  Choice hidden(&tokenizer_, g_);
  SequenceOutput output = Step(1, {256, kEos}, FinishReason::kStop);
  ChoiceDelta end = hidden.Push(std::move(output));
  EXPECT_EQ(end.text, "hello");
  EXPECT_EQ(end.stop_token_id, -1);
  EXPECT_EQ(end.tokens.size(), 2U);
  g_.include_stop = true;
  Choice shown(&tokenizer_, g_);
  output = Step(1, {256, 257}, FinishReason::kStop);
  output.stop_token_id = 257;
  end = shown.Push(std::move(output));
  EXPECT_EQ(end.text, "hello world");
  EXPECT_EQ(end.stop_token_id, 257);
}

TEST_F(ChoiceTest, HeldTextIsShownWhenNoStopCame) {
  g_.stop = {"STOPPED"};
  Choice choice(&tokenizer_, g_);
  EXPECT_EQ(choice.Push(Step(1, {258})).text, "");
  EXPECT_EQ(choice.Push(Step(1, {kEos}, FinishReason::kStop)).text, "STOP");
}

TEST_F(ChoiceTest, AbortsAndErrorsAreErrors) {
  Choice aborted(&tokenizer_, g_);
  const ChoiceDelta abort = aborted.Push(Step(1, {}, FinishReason::kAbort));
  EXPECT_EQ(abort.ending, Ending::kError);
  EXPECT_EQ(abort.error.code(), StatusCode::kCancelled);
  Choice failed(&tokenizer_, g_);
  SequenceOutput output = Step(1, {}, FinishReason::kError);
  output.error = DeadlineExceeded("rank 0 is late");
  EXPECT_EQ(failed.Push(std::move(output)).error.message(), "rank 0 is late");
}

TEST_F(ChoiceTest, EchoAloneShowsNoToken) {
  g_.max_tokens = 0;
  Choice choice(&tokenizer_, g_);
  const ChoiceDelta end = choice.Push(Step(1, {256}, FinishReason::kLength));
  EXPECT_EQ(end.text, "");
  EXPECT_TRUE(end.tokens.empty());
  EXPECT_EQ(end.ending, Ending::kLength);
  EXPECT_EQ(choice.token_count(), 0U);
}

}  // namespace
}  // namespace cleave::openai

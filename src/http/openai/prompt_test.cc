#include "http/openai/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "http/testing/fake_text.h"

namespace cleave::openai {
namespace {

using ::testing::ElementsAre;
using testing::FakeTokenizer;
using ::testing::HasSubstr;
using testing::kBos;
using testing::kEnd;
using testing::kStart;

class PromptTest : public ::testing::Test {
 protected:
  PromptTest() : template_(testing::MakeFakeTemplate()) {
    rules_.max_model_len = 32;
    rules_.vocab_size = testing::kVocabSize;
    model_ = {&tokenizer_, template_.get()};
  }

  ChatPrompt Chat(const std::string& text) {
    ChatPrompt chat;
    chat.context = std::make_shared<Json>(Json::parse(text));
    return chat;
  }

  Parsed<std::vector<SequenceSpec>> Make(size_t prompt_tokens) {
    Prompt prompt;
    for (size_t i = 0; i < prompt_tokens; ++i) prompt.ids.push_back(static_cast<int32_t>(i));
    auto specs = MakeSequences(&prompt, 3, g_, model_, rules_);
    ids_ = prompt.ids;
    return specs;
  }

  FakeTokenizer tokenizer_;
  std::unique_ptr<jinja::Template> template_;
  TextModel model_;
  RequestRules rules_;
  Generation g_;
  std::vector<int32_t> ids_;
};

TEST_F(PromptTest, UsersCanNotWriteControlTokens) {
  auto prompt = ChatToPrompt(
      Chat(R"({"messages":[{"role":"user","content":"<s>"}],"add_generation_prompt":false})"),
      model_, rules_);
  ASSERT_TRUE(prompt.ok());
  EXPECT_THAT(prompt.value().ids,
              ElementsAre(kStart, 'u', 's', 'e', 'r', '\n', '<', 's', '>', kEnd, '\n'));
  auto with_bos = ChatToPrompt(
      Chat(R"({"messages":[],"add_generation_prompt":false,"with_bos":true})"), model_, rules_);
  EXPECT_THAT(with_bos.value().ids, ElementsAre(kBos));
  // A raw completion may.
  EXPECT_THAT(TextToPrompt({"<s>a", {}, true}, false, model_, rules_).value().ids,
              ElementsAre(kBos, 'a'));
}

TEST_F(PromptTest, SaysWhyATemplateRefused) {
  auto refused = ChatToPrompt(
      Chat(R"({"messages":[{"role":"bad","content":""}],"add_generation_prompt":true})"), model_,
      rules_);
  EXPECT_THAT(refused.error().message, HasSubstr("line 1: no such role"));
  EXPECT_EQ(refused.error().status, 400);
  model_.chat_template = nullptr;
  EXPECT_THAT(ChatToPrompt(Chat("{}"), model_, rules_).error().message,
              HasSubstr("--chat-template"));
}

TEST_F(PromptTest, ContinuesTheFinalMessage) {
  ChatPrompt chat =
      Chat(R"({"messages":[{"role":"user","content":"b"},{"role":"assistant","content":" ab "}],)"
           R"("add_generation_prompt":false})");
  chat.continue_final_message = true;
  chat.final_content = " ab ";
  EXPECT_EQ(ChatToPrompt(chat, model_, rules_).value().text,
            "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n ab ");
  chat.final_content = "  ab\n";  // a template that trims
  EXPECT_EQ(ChatToPrompt(chat, model_, rules_).value().text,
            "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n ab");
  chat.final_content = "not there";
  EXPECT_EQ(ChatToPrompt(chat, model_, rules_).error().param, "continue_final_message");
}

TEST_F(PromptTest, RefusesTextThatCanNotFitBeforeTokenising) {
  const std::string longest(12 * 32, 'x');
  EXPECT_TRUE(TextToPrompt({longest, {}, true}, false, model_, rules_).ok());
  auto longer = TextToPrompt({longest + "x", {}, true}, false, model_, rules_);
  EXPECT_THAT(longer.error().message, HasSubstr("maximum context length is 32 tokens"));
  EXPECT_EQ(longer.error().param, "input_tokens");
}

TEST_F(PromptTest, ChecksTheContext) {
  g_.max_tokens = 12;
  EXPECT_EQ(Make(20).value()[0].sampling.max_tokens, 12U);
  auto over = Make(21);
  EXPECT_EQ(over.error().message,
            "This model's maximum context length is 32 tokens. However, you requested 12 output "
            "tokens and your prompt contains 21 input tokens, for a total of 33 tokens. Please "
            "reduce the length of the input prompt or the number of requested output tokens.");
  EXPECT_EQ(over.error().param, "input_tokens");
  g_.max_tokens = 33;
  EXPECT_EQ(Make(1).error().param, "max_tokens");
  g_.max_tokens = 2'147'483'647;
  EXPECT_FALSE(Make(1).ok());
  g_.max_tokens.reset();
  EXPECT_EQ(Make(0).error().message, "the prompt holds no tokens");
  EXPECT_THAT(Make(32).error().message, HasSubstr("32 input tokens, which leaves no room"));
}

TEST_F(PromptTest, DefaultLengthIsWhatIsLeftOrTheModelsOwn) {
  g_.sampling.max_tokens = 16;  // a completion's default
  EXPECT_EQ(Make(10).value()[0].sampling.max_tokens, 16U);
  EXPECT_EQ(Make(25).value()[0].sampling.max_tokens, 7U);
  rules_.defaults.max_new_tokens = 5;
  EXPECT_EQ(Make(10).value()[0].sampling.max_tokens, 5U);
  g_.max_tokens = 12;
  EXPECT_EQ(Make(10).value()[0].sampling.max_tokens, 5U);
  g_.sampling.min_tokens = 6;
  EXPECT_EQ(Make(10).error().param, "min_tokens");
}

TEST_F(PromptTest, RefusesTokensTheModelHasNoRowFor) {
  rules_.vocab_size = 5;
  EXPECT_TRUE(Make(5).ok());
  EXPECT_EQ(Make(6).error().message, "the prompt holds token 5; the model has 5");
}

TEST_F(PromptTest, TruncatesWhereAsked) {
  g_.truncate_prompt_tokens = 4;
  ASSERT_TRUE(Make(10).ok());
  EXPECT_THAT(ids_, ElementsAre(6, 7, 8, 9));
  g_.truncation_side = TruncationSide::kRight;
  ASSERT_TRUE(Make(10).ok());
  EXPECT_THAT(ids_, ElementsAre(0, 1, 2, 3));
  g_.truncate_prompt_tokens = -1;
  g_.max_tokens = 30;
  ASSERT_TRUE(Make(10).ok());
  EXPECT_THAT(ids_, ElementsAre(0, 1));
}

TEST_F(PromptTest, MakesOneSequenceAChoice) {
  g_.n = 3;
  g_.max_tokens = 4;
  g_.sampling.prompt_logprobs = 2;
  g_.priority = 7;
  g_.cache_salt = "salt";
  const auto specs = Make(2).value();
  ASSERT_EQ(specs.size(), 3U);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(specs[i].sampling.choice_index, i);
    EXPECT_EQ(specs[i].sampling.prompt_index, 3U);
    EXPECT_EQ(specs[i].sampling.prompt_logprobs, i == 0 ? 2 : -1);
    EXPECT_EQ(specs[i].priority, 7);
    EXPECT_EQ(specs[i].cache_salt, "salt");
    EXPECT_THAT(specs[i].prompt, ElementsAre(0, 1));
  }
}

TEST_F(PromptTest, BadWordsAreRefusedAloneAndAfterASpace) {
  g_.bad_words = {"world", "  ab"};
  const auto specs = Make(1).value();
  // " world" is one token where "world" is five: another length, so only the word itself.
  EXPECT_THAT(specs[0].sampling.bad_words,
              ElementsAre(ElementsAre('w', 'o', 'r', 'l', 'd'), ElementsAre(259)));
}

}  // namespace
}  // namespace cleave::openai

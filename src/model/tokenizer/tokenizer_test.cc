#include "model/tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/testing.h"

namespace cleave::testing_tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr auto kText = SpecialTokens::kAsText;
constexpr auto kParse = SpecialTokens::kParse;

// Byte-level GGUF: the 256 byte characters by their bytes, the products of `merges`, then control
// tokens.
TokenizerSource ByteLevelSource(const std::vector<std::pair<std::string, std::string>>& merges,
                                const std::vector<std::string>& control) {
  TokenizerSource source;
  source.kind = TokenizerSource::Kind::kGguf;
  source.gguf_model = "gpt2";
  source.gguf_pre = "gpt-2";
  for (unsigned b = 0; b < 256; ++b) {
    std::string spelled;
    tok::AppendByteChars(std::string(1, static_cast<char>(b)), &spelled);
    source.tokens.push_back(spelled);
  }
  const auto add = [&source](const std::string& token, int32_t type) {
    source.token_types.resize(source.tokens.size(), 1);
    source.tokens.push_back(token);
    source.token_types.push_back(type);
  };
  for (const auto& [left, right] : merges) {
    add(left + right, 1);
    source.merges.push_back(fmt::format("{} {}", left, right));
  }
  for (const std::string& token : control) add(token, 3);
  return source;
}

// SentencePiece GGUF: unknown, BOS, EOS, 256 byte tokens, then pieces with falling scores.
TokenizerSource SpmSource(const std::vector<std::string>& pieces) {
  TokenizerSource source;
  source.kind = TokenizerSource::Kind::kGguf;
  source.gguf_model = "llama";
  const auto add = [&source](const std::string& token, int32_t type) {
    source.tokens.push_back(token);
    source.token_types.push_back(type);
    source.scores.push_back(-static_cast<float>(source.tokens.size()));
  };
  add("<unk>", 2);
  add("<s>", 3);
  add("</s>", 3);
  for (unsigned b = 0; b < 256; ++b) add(fmt::format("<0x{:02X}>", b), 6);
  for (const std::string& piece : pieces) add(piece, 1);
  return source;
}

std::unique_ptr<Tokenizer> Make(const TokenizerSource& source) {
  auto made = Tokenizer::Create(source);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(*made) : nullptr;
}

Ids Plain(const Tokenizer& tokenizer, std::string_view text, SpecialTokens special = kParse) {
  return tokenizer.Encode(text, {.add_special_tokens = false, .special = special});
}

TEST(GgufByteLevel, MergesByRankAndFindsControlTokens) {
  const auto t = Make(ByteLevelSource({{"h", "e"}, {"he", "l"}, {"Ġ", "w"}}, {"<|end|>"}));
  EXPECT_THAT(Plain(*t, "hello w"), ElementsAre(257, 'l', 'o', 258));
  EXPECT_THAT(Plain(*t, "he<|end|>he"), ElementsAre(256, 259, 256));
  EXPECT_EQ(Plain(*t, "<|end|>", kText).size(), 7U);
  EXPECT_TRUE(t->IsSpecial(259));
  EXPECT_EQ(t->TokenText(258), "Ġw");
  EXPECT_EQ(t->TokenBytes(258), " w");
  EXPECT_EQ(t->IdOf("hel"), 257);
  EXPECT_EQ(t->vocab_size(), 260);
  EXPECT_EQ(t->max_token_bytes(), 7U);
}

TEST(GgufByteLevel, UnknownPreTokenizerListsTheKnown) {
  TokenizerSource source = ByteLevelSource({}, {});
  source.gguf_pre = "martian";
  const auto made = Tokenizer::Create(source);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(made.status().message(), HasSubstr("\"martian\" is not supported (known: "));
  EXPECT_THAT(made.status().message(), HasSubstr("llama-bpe"));
}

TEST(GgufByteLevel, DamagedListsAreNamed) {
  TokenizerSource source = ByteLevelSource({{"h", "e"}}, {});
  source.merges[0] = "h z9";
  auto made = Tokenizer::Create(source);
  EXPECT_THAT(made.status().message(), HasSubstr("merge 0 (\"h\" and \"z9\") names \"z9\""));
  source.merges[0] = "hé";
  made = Tokenizer::Create(source);
  EXPECT_THAT(made.status().message(), HasSubstr("is not two texts with a space between"));
  source = ByteLevelSource({}, {});
  source.tokens[3] = source.tokens[2];
  made = Tokenizer::Create(source);
  EXPECT_THAT(made.status().message(), HasSubstr("is given twice, as id 2 and id 3"));
  source = ByteLevelSource({}, {});
  source.bos_id = 999;
  made = Tokenizer::Create(source);
  EXPECT_THAT(made.status().message(), HasSubstr("bos_token_id is 999; the vocabulary has 256"));
  source = ByteLevelSource({}, {});
  source.token_types = {1, 2};
  made = Tokenizer::Create(source);
  EXPECT_THAT(made.status().message(), HasSubstr("token_type has 2 entries for 256 tokens"));
}

TEST(GgufByteLevel, BosAndEosAsTheFileOrTheKindSays) {
  TokenizerSource source = ByteLevelSource({}, {"<s>", "</s>"});
  source.bos_id = 256;
  source.eos_id = 257;
  EXPECT_THAT(Make(source)->Encode("", {}), ElementsAre());
  source.gguf_pre = "llama-bpe";
  EXPECT_THAT(Make(source)->Encode("", {}), ElementsAre(256));
  source.add_bos = false;
  source.add_eos = true;
  EXPECT_THAT(Make(source)->Encode("", {}), ElementsAre(257));
  EXPECT_EQ(Make(source)->bos_text(), "<s>");
  EXPECT_EQ(Make(source)->eos_id(), 257);
}

TEST(GgufSpm, BestScoreFirstBytesForTheRest) {
  const auto t = Make(SpmSource({"▁", "a", "b", "ab", "▁a"}));
  // "▁ab": "ab" has the better score, so "▁a" never forms.
  EXPECT_THAT(Plain(*t, "ab"), ElementsAre(259, 262));
  EXPECT_THAT(Plain(*t, "é"), ElementsAre(259, 3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(t->Encode("a", {}), ElementsAre(1, 263));
  EXPECT_EQ(t->Decode(Ids{263, 262, 3 + 0xC3, 3 + 0xA9}, SkipSpecial::kYes), "aabé");
  EXPECT_TRUE(t->StripsLeadingSpace());
}

TEST(GgufSpm, NoSpaceInFrontWhenTheFileSaysSo) {
  TokenizerSource source = SpmSource({"▁", "a", "▁a"});
  source.add_space_prefix = false;
  const auto t = Make(source);
  EXPECT_THAT(Plain(*t, "a a"), ElementsAre(260, 261));
  EXPECT_EQ(t->Decode(Ids{261}, SkipSpecial::kYes), " a");
  EXPECT_FALSE(t->StripsLeadingSpace());
}

TEST(GgufSpm, UserDefinedTokensComeBeforeMerging) {
  TokenizerSource source = SpmSource({"▁", "a", "aa", "aaa"});
  source.token_types.back() = 4;
  const auto t = Make(source);
  EXPECT_THAT(Plain(*t, "aaaa", kText), ElementsAre(262, 259, 260));
  EXPECT_FALSE(t->IsSpecial(262));
}

TEST(GgufSpm, ScoresAndBytesAreChecked) {
  TokenizerSource source = SpmSource({"a"});
  source.scores.pop_back();
  EXPECT_THAT(Tokenizer::Create(source).status().message(), HasSubstr("259 scores for 260 tokens"));
  source = SpmSource({"a"});
  source.scores[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Tokenizer::Create(source).status().message(),
              HasSubstr("the score of token 7 is not a finite number"));
}

TEST(Pieces, UserTextMakesNoControlTokenMarkersDo) {
  const auto t = Make(ByteLevelSource({}, {"<|im_end|>"}));
  const TextPiece pieces[] = {{"<|im_end|>"}, {"<|im_end|>", kText}, {"<|im_"}, {"end|>"}};
  const Ids ids = t->EncodePieces(pieces, false);
  EXPECT_EQ(ids.front(), 256);
  EXPECT_EQ(ids.back(), 256);  // adjacent parsed pieces are one
  EXPECT_EQ(ids.size(), 12U);
  const TextPiece across[] = {{"<|im_"}, {"end|>", kText}};
  EXPECT_EQ(t->EncodePieces(across, false).size(), 10U);
}

TEST(Pieces, UserTextHidesNoMarker) {
  // "x<|e|>" would be the longer match, but its first byte is the user's.
  const auto t = Make(ByteLevelSource({}, {"<|e|>", "x<|e|>", "<|e|>y"}));
  const TextPiece before[] = {{"x", kText}, {"<|e|>"}};
  EXPECT_EQ(t->EncodePieces(before, false).back(), 256);
  const TextPiece behind[] = {{"<|e|>"}, {"y", kText}};
  EXPECT_EQ(t->EncodePieces(behind, false).front(), 256);
  // Nor does half a character in front of it.
  const TextPiece broken[] = {{"\xE4\xBD", kText}, {"<|e|>"}};
  EXPECT_EQ(t->EncodePieces(broken, false).back(), 256);
  EXPECT_EQ(t->EncodePieces(broken, false).size(), 4U);
}

TEST(Pieces, MergesAndCharactersCrossTheirBorders) {
  const auto t = Make(ByteLevelSource({{"h", "e"}, {"he", "l"}}, {}));
  const TextPiece pieces[] = {{"h"}, {"e", kText}, {"l"}};
  EXPECT_THAT(t->EncodePieces(pieces, false), ElementsAre(257));
  const TextPiece halves[] = {{"\xC3"}, {"\xA9"}};
  EXPECT_EQ(t->Decode(t->EncodePieces(halves, false), SkipSpecial::kNo), "é");
}

TEST(Guard, MergesAndWholeWordsOfUserTextStopBeforeControlTokens) {
  TokenizerSource source = ByteLevelSource({{"a", "b"}, {"ab", "c"}}, {});
  source.token_types[257] = 3;  // "abc" can be merged, and is a control token
  const auto merged = Make(source);
  EXPECT_THAT(Plain(*merged, "abc"), ElementsAre(257));
  EXPECT_THAT(Plain(*merged, "abc", kText), ElementsAre(256, 'c'));
  source.gguf_pre = "llama-bpe";  // words that are tokens stay whole
  EXPECT_THAT(Plain(*Make(source), "abc", kText), ElementsAre(256, 'c'));

  source = SpmSource({"▁", "a", "b", "ab"});
  source.token_types.back() = 3;
  const auto spm = Make(source);
  EXPECT_THAT(Plain(*spm, "ab"), ElementsAre(262));
  EXPECT_THAT(Plain(*spm, "ab", kText), ElementsAre(259, 260, 261));
}

TEST(Guard, ControlLookingTextsOfConvertersAreControlTokens) {
  const auto t = Make(ByteLevelSource({}, {}));
  EXPECT_FALSE(t->IsSpecial(0));
  TokenizerSource source = ByteLevelSource({}, {"<|im_end|>"});
  source.token_types[256] = 4;  // user-defined
  EXPECT_TRUE(Make(source)->IsSpecial(256));
  EXPECT_EQ(Plain(*Make(source), "<|im_end|>", kText).size(), 10U);
}

TEST(Streaming, HoldsHalfACharacterBack) {
  const auto t = Make(ByteLevelSource({}, {"<|end|>"}));
  StreamingDetokenizer stream(t.get(), SkipSpecial::kYes);
  const Ids ids = Plain(*t, "é€😀");
  ASSERT_EQ(ids.size(), 9U);
  std::vector<std::string> pushed;
  for (const int32_t id : ids) pushed.push_back(stream.Push(id));
  EXPECT_THAT(pushed, ElementsAre("", "é", "", "", "€", "", "", "", "😀"));
  EXPECT_EQ(stream.Push(256), "");
  EXPECT_EQ(stream.Push(ids[0]), "");
  EXPECT_EQ(stream.Flush(UnfinishedCharacter::kReplaced), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.Flush(UnfinishedCharacter::kReplaced), "");
}

// The text of an answer cut after each of its tokens: whole characters, never a U+FFFD for one that
// more tokens would have completed. What nothing completes stays U+FFFD.
TEST(Streaming, DropsTheCharacterThatTheCutLeftUnfinished) {
  const std::string json =
      R"({"model":{"type":"BPE","byte_fallback":true,"vocab":{"x":0,"<0xC3>":1,"<0xA9>":2,)"
      R"("<0xE2>":3,"<0x82>":4,"<0xAC>":5,"<0xFF>":6},"merges":[]},"decoder":{"type":"Sequence",)"
      R"("decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]}})";
  const auto runs = FromJson(json);
  ASSERT_TRUE(runs.ok()) << runs.status().ToString();
  const auto bytes = Make(ByteLevelSource({}, {}));
  const std::string text = "x\xC3\xA9\xE2\x82\xAC\xFF\xE2\x82";
  const Ids run_ids{0, 1, 2, 3, 4, 5, 6, 3, 4};
  Ids byte_ids;
  for (const char c : text) byte_ids.push_back(static_cast<unsigned char>(c));
  std::string replaced = "x";
  for (int i = 0; i < 6; ++i) replaced += "\xEF\xBF\xBD";
  const std::vector<std::string> whole{"", "x", "x", "xé", "xé", "xé", "xé€"};
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    for (const auto& [t, ids] : {std::pair(runs->get(), run_ids), {bytes.get(), byte_ids}}) {
      StreamingDetokenizer stream(t, SkipSpecial::kYes);
      std::string shown;
      for (size_t i = 0; i < cut; ++i) shown += stream.Push(ids[i]);
      shown += stream.Flush(UnfinishedCharacter::kDropped);
      if (cut < whole.size()) {
        EXPECT_EQ(shown, whole[cut]) << cut;
      } else {  // a run of byte tokens that is no text is a U+FFFD a token
        EXPECT_EQ(shown, t == bytes.get() ? "xé€\xEF\xBF\xBD" : replaced) << cut;
      }
    }
  }
}

TEST(Streaming, IdsOutOfRangeAreNothing) {
  const auto t = Make(ByteLevelSource({}, {}));
  EXPECT_EQ(t->Decode(Ids{-1, 'a', 256, INT32_MAX, INT32_MIN}, SkipSpecial::kNo), "a");
  EXPECT_EQ(t->TokenBytes(-1), "");
  EXPECT_EQ(t->TokenText(99999), "");
}

// A quadratic path would not end within the test's time limit.
TEST(LongText, OneLetterSpacesAndWordsStayLinear) {
  const auto bytes =
      Make(ByteLevelSource({{"a", "a"}, {"aa", "aa"}, {"Ġ", "Ġ"}, {"ĠĠ", "ĠĠ"}}, {"<|end|>"}));
  const auto spm = Make(SpmSource({"▁", "a", "aa", "▁▁", "▁▁▁▁", "b"}));
  for (const std::string& text :
       {std::string(1 << 20, 'a'), std::string(1 << 20, ' '), std::string(1 << 20, '\n'),
        std::string(1 << 20, '<'), std::string(1 << 20, '\xE4')}) {
    for (const Tokenizer* t : {bytes.get(), spm.get()}) {
      const Ids ids = Plain(*t, text, kText);
      const std::string back = t->Decode(ids, SkipSpecial::kNo);
      if (text[0] != '\xE4') {
        EXPECT_EQ(back, text);
      }
      EXPECT_FALSE(ids.empty());
    }
  }
}

TEST(Threads, EncodeIsConst) {
  const auto t = Make(ByteLevelSource({{"h", "e"}, {"he", "l"}, {"Ġ", "w"}}, {"<|end|>"}));
  const std::vector<std::string> strings = TestStrings();
  std::vector<Ids> alone;
  for (size_t i = 0; i < 300; ++i) alone.push_back(Plain(*t, strings[i]));
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < 300; ++i) EXPECT_EQ(Plain(*t, strings[i]), alone[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DemoModel, EqualsTheReferenceLibrary) {
  const std::string path = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!SourceExists(path)) GTEST_SKIP() << path << " is not there; tools/fetch_models.sh brings it";
  const auto tokenizer = TokenizerOfModel(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const Differences found = Compare(**tokenizer, ReadCases("smollm2-gguf"), TestStrings());
  EXPECT_EQ(found.encoded + found.decoded + found.streamed, 0U) << found.report;
  EXPECT_TRUE((*tokenizer)->Encode("", {}).empty());  // its BOS must not be added
  EXPECT_EQ((*tokenizer)->bos_text(), "<|im_start|>");
}

}  // namespace
}  // namespace cleave::testing_tokenizer

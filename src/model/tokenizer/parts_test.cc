// The parts below the tokenizers: UTF-8, patterns, the merge loop, added tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/merge.h"
#include "model/tokenizer/newer_unicode.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/unicode_class.h"
#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kReplaced[] = "\xEF\xBF\xBD";

std::string Times(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += kReplaced;
  return out;
}

TEST(Utf8, IllFormedPartsAreMaximalSubparts) {
  EXPECT_EQ(LossyUtf8("aé€😀"), "aé€😀");
  EXPECT_EQ(LossyUtf8("\xC0\xAF"), Times(2));
  EXPECT_EQ(LossyUtf8("\xE4\xBDz"), Times(1) + "z");
  EXPECT_EQ(LossyUtf8("\xED\xA0\x80"), Times(3));
  EXPECT_EQ(LossyUtf8("\xF0\x9F\x98"), Times(1));
  EXPECT_EQ(LossyUtf8("\xF4\x90\x80\x80"), Times(4));
  EXPECT_EQ(LossyUtf8("\xF1\x80\xE1\x80\xC2"), Times(3));
  EXPECT_TRUE(IsValidUtf8("12345678é"));
  EXPECT_FALSE(IsValidUtf8("12345678\xC3"));
}

TEST(Utf8, CodePointsGoThereAndBack) {
  for (uint32_t cp = 0; cp < 0x110000; cp += 7) {
    if (cp >= 0xD800 && cp < 0xE000) continue;
    std::string text;
    AppendCodePoint(cp, &text);
    size_t pos = 0;
    ASSERT_EQ(NextCodePoint(text, &pos), cp);
    ASSERT_EQ(pos, text.size());
    ASSERT_TRUE(IsValidUtf8(text));
  }
}

TEST(ByteLevel, EveryByteGoesThereAndBack) {
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(static_cast<char>(b));
  std::string spelled;
  AppendByteChars(bytes, &spelled);
  EXPECT_THAT(spelled, HasSubstr("Ġ!"));
  EXPECT_EQ(BytesOfByteChars(spelled), bytes);
  EXPECT_EQ(BytesOfByteChars("中"), std::nullopt);
  EXPECT_EQ(BytesOfByteChars("\xff"), std::nullopt);
}

std::string Found(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern);
  if (!regex.ok()) return regex.status().message();
  RegexScratch scratch;
  std::vector<Span> matches;
  std::string buffer;
  regex->FindAll(ForMatching(text, &buffer), &scratch, &matches);
  std::string out;
  for (const Span& m : matches) out += "<" + text.substr(m.begin, m.end - m.begin) + ">";
  return out;
}

TEST(Regex, SpeaksOniguruma) {
  EXPECT_EQ(Found(R"(\w+)", "aé_1\u0301 b²"), "<aé_1\u0301><b²>");
  EXPECT_EQ(Found(R"(\h+)", "xFa9 g"), "<Fa9>");
  EXPECT_EQ(Found(R"([^\h]+)", "xFa9 g"), "<x>< g>");
  EXPECT_EQ(Found(R"(\u0041)", "AB"), "<A>");
  EXPECT_EQ(Found(R"(a{,2}b)", "aaab"), "<aab>");
  EXPECT_EQ(Found(R"(\d{1,3}+x?)", "1234567x"), "<1234567x>");
  EXPECT_EQ(Found(R"((?:ab){2}+)", "ababababab"), "<abababab>");
  EXPECT_EQ(Found(R"([a[bc]]+)", "abcd"), "<abc>");
  EXPECT_EQ(Found(R"([a-z&&[^c]]+)", "abcd"), "<ab><d>");
  EXPECT_EQ(Found(R"(^b$)", "a\nb\nc"), "<b>");
  EXPECT_EQ(Found(R"((?m:a.b))", "a\nb"), "<a\nb>");
  EXPECT_EQ(Found(R"((?i:'s))", "'S'ſ's"), "<'S><'ſ><'s>");
  EXPECT_EQ(Found(R"(\s+$)", "a  \n  b  c  "), "<  ><  >");
  EXPECT_EQ(Found(R"(x*)", "axb"), "<><x><>");
  EXPECT_THAT(Found(R"([\W])", "a"), HasSubstr(R"(\W inside a class at byte 1)"));
}

TEST(Regex, ClassesAreThoseOfUnicode16) {
  EXPECT_EQ(Found(R"(\s)", "\u180e\u3000\u0085"), "<\u3000><\u0085>");
  EXPECT_EQ(Found(R"(\p{L}+)", "\U00031350\u1c89"), "<\U00031350\u1c89>");
  EXPECT_EQ(Found(R"(\p{Han})", "\U00031350\U00016d40"), "<\U00031350>");
  EXPECT_EQ(Found(R"(\p{N})", "\U00011f50\U0001ccf0"), "<\U00011f50><\U0001ccf0>");
}

TEST(Regex, RunawayPatternsEnd) {
  EXPECT_EQ(Found(R"((a+)+$)", std::string(2000, 'a') + "b"), "");
  EXPECT_EQ(Found(R"(\s+$)", std::string(1 << 20, ' ') + "b"), "");
}

TEST(UnicodeClass, BlanksAndForms) {
  EXPECT_EQ(LeadingBlanks("\u3000 \u0085x "), 6U);
  EXPECT_EQ(TrailingBlanks("x \u3000\n"), 5U);
  EXPECT_EQ(Normalize(NormalForm::kNfc, "e\u0301\ufb01"), "é\ufb01");
  EXPECT_EQ(Normalize(NormalForm::kNfkc, "e\u0301\ufb01"), "éfi");
  EXPECT_EQ(Normalize(NormalForm::kNfkc, "\u32fe\u32ff"), "ヲ\u32ff");  // 32FF came later
  EXPECT_EQ(LowerCase("ÀİΣ\u1c89"), "ài\u0307σ\u1c8a");
}

TEST(Merge, HeapAndScanAgree) {
  RngStream random(3);
  for (int round = 0; round < 300; ++round) {
    const uint64_t letters = 2 + random.Below(3);
    // Merging i and j gives a symbol of its own while that is below 40.
    const auto pair_of = [&](const Symbol& l, const Symbol& r) {
      const auto id = static_cast<int32_t>(l.id * 3 + r.id + 2);
      if (id >= 40) return Candidate{};
      return Candidate{static_cast<uint32_t>(MixBits(static_cast<uint64_t>(id)) % 11), id};
    };
    MergeScratch scanned;
    for (uint64_t i = 0; i < 5 + random.Below(60); ++i) {
      scanned.symbols.push_back(
          {.id = static_cast<int32_t>(random.Below(letters)), .size = 1, .pair = {}});
    }
    MergeScratch heaped = scanned;
    MergeByScan(&scanned.symbols, pair_of);
    HeapMerger(&heaped, pair_of).Run();
    ASSERT_EQ(scanned.symbols.size(), heaped.symbols.size());
    for (size_t i = 0; i < scanned.symbols.size(); ++i) {
      EXPECT_EQ(scanned.symbols[i].id, heaped.symbols[i].id);
      EXPECT_EQ(scanned.symbols[i].size, heaped.symbols[i].size);
    }
  }
}

std::vector<int32_t> IdsIn(const AddedTokens& tokens, std::string_view text,
                           AddedTokens::Stretch stretch) {
  std::vector<int32_t> ids;
  for (const auto& found : tokens.FindAll(text, [&](Span) { return stretch; })) {
    ids.push_back(found.id);
  }
  return ids;
}

TEST(AddedTokens, LeftmostLongestAndWhatUserTextMayHold) {
  using Stretch = AddedTokens::Stretch;
  const std::vector<AddedToken> list{{.text = "<s>", .id = 1, .special = true},
                                     {.text = "<s>>", .id = 2, .special = true},
                                     {.text = "s>", .id = 3}};
  const auto consumes = AddedTokens::Create(list, Disallowed::kConsume);
  const auto ignores = AddedTokens::Create(list, Disallowed::kIgnore);
  ASSERT_TRUE(consumes.ok() && ignores.ok());
  EXPECT_THAT(IdsIn(*consumes, "<s>><s>", Stretch::kParsed), ElementsAre(2, 1));
  EXPECT_THAT(IdsIn(*consumes, "<s>s>", Stretch::kAsText), ElementsAre(3));
  EXPECT_THAT(IdsIn(*ignores, "<s>s>", Stretch::kAsText), ElementsAre(3, 3));
  EXPECT_THAT(IdsIn(*consumes, "<s>", Stretch::kBoth), ElementsAre(3));
  EXPECT_FALSE(AddedTokens::Create({{.text = ""}}, Disallowed::kIgnore).ok());
}

}  // namespace
}  // namespace cleave::tok

// tokenizer.json: what is read from it, and what is refused, with what words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "model/tokenizer/testing.h"

namespace cleave::testing_tokenizer {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json Small() {
  return json::parse(R"json({
    "version": "1.0",
    "added_tokens": [{"id": 4, "content": "<s>", "special": true, "normalized": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3},
              "merges": ["a b"]}})json");
}

std::string ErrorOf(const std::string& text, const std::string& config = "") {
  const auto made = FromJson(text, config);
  EXPECT_FALSE(made.ok()) << text.substr(0, 200);
  return made.status().ToString();
}
std::string ErrorWith(const std::string& pointer, const json& value) {
  json document = Small();
  document[json::json_pointer(pointer)] = value;
  return ErrorOf(document.dump());
}

std::vector<int32_t> IdsWith(const json& document, std::string_view text, std::string config = "") {
  const auto made = FromJson(document.dump(), std::move(config));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? (*made)->Encode(text, {}) : std::vector<int32_t>();
}

TEST(JsonSource, ReadsMergesOfBothSpellings) {
  json document = Small();
  EXPECT_THAT(IdsWith(document, "abba<s>"), ElementsAre(3, 2, 1, 4));
  document["model"]["merges"] = json::parse(R"([["a", "b"]])");
  EXPECT_THAT(IdsWith(document, "abba<s>"), ElementsAre(3, 2, 1, 4));
  document["model"].erase("type");
  EXPECT_THAT(IdsWith(document, "abxx"), ElementsAre(3, 0, 0));
  document["model"]["fuse_unk"] = true;
  EXPECT_THAT(IdsWith(document, "abxx"), ElementsAre(3, 0));
}

TEST(JsonSource, NumbersAddedTokensAsTheReferenceDoes) {
  json document = Small();
  document["added_tokens"][0]["id"] = 77;  // the reference goes on from the vocabulary's end
  EXPECT_THAT(IdsWith(document, "<s>"), ElementsAre(4));
  document["added_tokens"][0]["content"] = "ab";
  EXPECT_THAT(IdsWith(document, "ab"), ElementsAre(3));
  document["added_tokens"].push_back(document["added_tokens"][0]);
  EXPECT_THAT(IdsWith(document, "ab"), ElementsAre(3));
}

TEST(JsonSource, ConfigSaysWhatIsAdded) {
  const std::string names = R"("bos_token": {"content": "<s>"}, "eos_token": "b")";
  EXPECT_THAT(IdsWith(Small(), "a", "{" + names + "}"), ElementsAre(1));
  const std::string both = "{" + names + R"(, "add_bos_token": true, "add_eos_token": true})";
  EXPECT_THAT(IdsWith(Small(), "a", both), ElementsAre(4, 1, 2));
  json document = Small();
  document["post_processor"] = json::parse(R"json({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "S", "type_id": 0}}, {"Sequence": {"id": "A"}}],
    "special_tokens": {"S": {"id": "S", "ids": [4], "tokens": ["<s>"]}}})json");
  EXPECT_THAT(IdsWith(document, "a"), ElementsAre(4, 1));
  EXPECT_THAT(IdsWith(document, "a", both), ElementsAre(4, 1, 2));
  EXPECT_THAT(IdsWith(document, "a", "{" + names + R"(, "add_bos_token": false})"), ElementsAre(1));
  const auto made = FromJson(Small().dump(), both);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)->bos_text(), "<s>");
  EXPECT_EQ((*made)->eos_id(), 2);
}

TEST(JsonSource, ConfigNamesSpecialTokens) {
  const auto made = FromJson(Small().dump(), R"({"eos_token": "ab", "pad_token": "absent",
      "additional_special_tokens": ["b"], "added_tokens_decoder": {
        "4": {"content": "<s>"}, "5": {"content": "new", "special": true},
        "9": {"content": "beyond"}}})");
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const Tokenizer& t = **made;
  EXPECT_TRUE(t.IsSpecial(3) && t.IsSpecial(2) && t.IsSpecial(4) && !t.IsSpecial(1));
  EXPECT_EQ(t.IdOf("new"), 5);
  EXPECT_EQ(t.vocab_size(), 6);  // nothing that the model has no row for
  EXPECT_THAT(t.Encode("ab", {.special = SpecialTokens::kAsText}), ElementsAre(1, 0));
  EXPECT_THAT(ErrorOf(Small().dump(), R"({"added_tokens_decoder": {"x": {"content": "y"}}})"),
              HasSubstr("tokenizer_config.json: added_tokens_decoder is not keyed by token ids"));
}

TEST(JsonSource, NormalizedSpecialTokensRespectPieces) {
  json document = Small();
  document["normalizer"] = json::parse(R"({"type": "Prepend", "prepend": "b"})");
  document["added_tokens"][0]["normalized"] = true;  // matched as "b<s>"
  const auto made = FromJson(document.dump());
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const TextPiece parsed[] = {{"<s>"}, {"a", SpecialTokens::kAsText}};
  EXPECT_THAT((*made)->EncodePieces(parsed, false), ElementsAre(4, 1));
  const TextPiece text[] = {{"<s>", SpecialTokens::kAsText}, {"a"}};
  EXPECT_THAT((*made)->EncodePieces(text, false), ElementsAre(2, 0, 0, 0, 1));
}

TEST(JsonSource, OtherModelsAndComponentsAreNamed) {
  EXPECT_THAT(ErrorWith("/model/type", "WordPiece"),
              HasSubstr("unsupported: tokenizer.json: model type \"WordPiece\" is not supported"));
  EXPECT_THAT(ErrorWith("/model/vocab", json::parse(R"([["a", -1.5]])")), HasSubstr("Unigram"));
  EXPECT_THAT(ErrorWith("/model/continuing_subword_prefix", "##"),
              HasSubstr("continuing_subword_prefix of the model is not supported"));
  EXPECT_THAT(ErrorWith("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(ErrorWith("/model/dropout", 0.1), HasSubstr("dropout"));
  for (const char* part : {"normalizer", "pre_tokenizer", "decoder", "post_processor"}) {
    EXPECT_THAT(ErrorWith(std::string("/") + part, json{{"type", "Martian"}}),
                HasSubstr(std::string(part) + " type \"Martian\" is not supported (known: "));
    EXPECT_THAT(ErrorWith(std::string("/") + part, json{{"kind", "x"}}),
                HasSubstr(std::string("type of ") + part + " is not a text"));
    EXPECT_THAT(ErrorWith(std::string("/") + part, 7), HasSubstr("is not a text"));
  }
  const auto cut = [](const std::string& pattern) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
  };
  EXPECT_THAT(ErrorWith("/pre_tokenizer", cut("(a")), HasSubstr("can not be used"));
  EXPECT_THAT(ErrorWith("/pre_tokenizer", cut("")), HasSubstr("empty pattern"));
  EXPECT_THAT(ErrorWith("/pre_tokenizer", cut("[a[^b]]")), HasSubstr("negated class inside"));
  EXPECT_THAT(ErrorWith("/pre_tokenizer", cut(std::string(100000, 'a'))),
              HasSubstr("100000 bytes"));
  EXPECT_THAT(ErrorWith("/pre_tokenizer", cut(std::string(50000, '['))), HasSubstr("deeper than"));
  EXPECT_THAT(ErrorWith("/pre_tokenizer", cut(std::string(50000, '('))), HasSubstr("deeper than"));
  EXPECT_THAT(ErrorWith("/decoder", json::parse(R"({"type": "Sequence", "decoders": [
                {"type": "Fuse"}, {"type": "Metaspace", "replacement": "_"}]})")),
              HasSubstr("decoder \"Metaspace\" after Fuse is not supported"));
}

TEST(JsonSource, DamageIsNamed) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("not_found: the model has no tokenizer.json"));
  EXPECT_THAT(ErrorOf("{"), HasSubstr("data_loss: tokenizer.json: not valid JSON at byte 2 of 1"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("holds no object"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("the vocabulary is empty"));
  EXPECT_THAT(ErrorOf(std::string(1000000, '[')), HasSubstr("nests deeper than 64"));
  std::string deep;
  for (int i = 0; i < 200000; ++i) deep += R"({"model":)";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("nests deeper than 64"));
  EXPECT_THAT(ErrorOf("{\"a\": \"\xff\"}"), HasSubstr("not valid JSON at byte 8 of 10"));
  EXPECT_THAT(ErrorWith("/model/vocab/a", -1), HasSubstr("token id -1 is outside 0..4194303"));
  EXPECT_THAT(ErrorWith("/model/vocab/a", 1ULL << 63U), HasSubstr("is outside 0..4194303"));
  EXPECT_THAT(ErrorWith("/model/vocab/a", 2), HasSubstr("token id 2 is given twice"));
  EXPECT_THAT(ErrorWith("/model/vocab/a", 1.5), HasSubstr("the id of token \"a\" is no integer"));
  EXPECT_THAT(ErrorWith("/model/vocab/a", "1"), HasSubstr("the id of token \"a\" is no integer"));
  EXPECT_THAT(ErrorWith("/model/vocab/a", json::array()), HasSubstr("a list inside model.vocab"));
  for (const json& merges : {json(nullptr), json("a b"), json::object(), json(5)}) {
    EXPECT_THAT(ErrorWith("/model/merges", merges), HasSubstr("the model has no list of merges"));
  }
  json without = Small();
  without["model"].erase("merges");
  EXPECT_THAT(ErrorOf(without.dump()), HasSubstr("the model has no list of merges"));
  EXPECT_THAT(ErrorWith("/model/merges/0", "a b c"), HasSubstr("merge 0 (\"a b c\")"));
  EXPECT_THAT(ErrorWith("/model/merges/0", "a c"),
              HasSubstr("merge 0 (\"a\" and \"c\") names \"c\", which is not in the vocabulary"));
  EXPECT_THAT(ErrorWith("/model/merges/0", json::parse(R"(["a"])")), HasSubstr("has 1 parts"));
  EXPECT_THAT(ErrorWith("/model/merges/0", 5), HasSubstr("merge 0 is not made of texts"));
  EXPECT_THAT(ErrorWith("/model/merges/0", json::object()), HasSubstr("an object inside"));
  EXPECT_THAT(ErrorWith("/model/unk_token", "zz"), HasSubstr("unk_token \"zz\" is not in the"));
  EXPECT_THAT(ErrorWith("/added_tokens", 5), HasSubstr("added_tokens is not a list"));
  EXPECT_THAT(ErrorWith("/added_tokens/0/id", -4), HasSubstr("id of an added token is not an"));
  EXPECT_THAT(ErrorWith("/added_tokens/0/content", 4), HasSubstr("content of an added token"));
  EXPECT_THAT(ErrorWith("/added_tokens/0/content", std::string(5000, 'x')),
              HasSubstr("added token 4 has 5000 bytes, more than 4096"));
  EXPECT_THAT(ErrorOf(Small().dump(), "{"), HasSubstr("tokenizer_config.json: not valid JSON"));
  EXPECT_THAT(ErrorOf(Small().dump(), R"({"bos_token": 5})"),
              HasSubstr("tokenizer_config.json: bos_token is not a text"));
}

TEST(JsonSource, ManyStepsAreRefused) {
  json steps = json::array();
  for (int i = 0; i < 500; ++i) steps.push_back({{"type", "NFC"}});
  EXPECT_THAT(ErrorWith("/normalizer", {{"type", "Sequence"}, {"normalizers", steps}}),
              HasSubstr("more than 100 steps"));
}

}  // namespace
}  // namespace cleave::testing_tokenizer

// Small tokenizers, one for each component of tokenizer.json: ids and texts equal HF tokenizers'.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "model/tokenizer/testing.h"
#include "model/tokenizer/utf8.h"

namespace cleave::testing_tokenizer {
namespace {

using nlohmann::json;

std::vector<json> Lines() {
  std::istringstream lines(ReadSource("src/model/tokenizer/testdata/tiny.jsonl"));
  std::vector<json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
  return all;
}

std::string Hex(const std::vector<int32_t>& ids) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", HashOf(ids));
  return text;
}

TEST(TinyTokenizers, EncodeAsTheReferenceDoes) {
  const std::vector<json> lines = Lines();
  ASSERT_EQ(lines.size(), 33U);
  const auto strings = lines[0].get<std::vector<std::string>>();
  ASSERT_GT(strings.size(), 100U);
  for (size_t t = 1; t < lines.size(); ++t) {
    const auto tokenizer = FromJson(lines[t]["tokenizer"].dump());
    ASSERT_TRUE(tokenizer.ok()) << lines[t]["name"] << tokenizer.status().ToString();
    for (size_t i = 0; i < strings.size(); ++i) {
      const auto encode = [&](bool template_ids, SpecialTokens special) {
        return Hex(
            (*tokenizer)
                ->Encode(strings[i], {.add_special_tokens = template_ids, .special = special}));
      };
      const std::string ours = encode(false, SpecialTokens::kParse) + " " +
                               encode(false, SpecialTokens::kAsText) + " " +
                               encode(true, SpecialTokens::kParse);
      EXPECT_EQ(ours, lines[t]["hashes"][i]) << lines[t]["name"] << " on " << json(strings[i]);
    }
  }
}

TEST(TinyTokenizers, DecodeAsTheReferenceDoesWholeAndStreamed) {
  const std::vector<json> lines = Lines();
  for (size_t t = 1; t < lines.size(); ++t) {
    const auto tokenizer = FromJson(lines[t]["tokenizer"].dump());
    ASSERT_TRUE(tokenizer.ok());
    for (const json& entry : lines[t]["decoded"]) {
      const auto ids = entry[0].get<std::vector<int32_t>>();
      for (const auto& [skip, text] : {std::pair(SkipSpecial::kNo, entry[1].get<std::string>()),
                                       std::pair(SkipSpecial::kYes, entry[2].get<std::string>())}) {
        EXPECT_EQ((*tokenizer)->Decode(ids, skip), text) << lines[t]["name"] << entry[0];
        EXPECT_EQ(Streamed(**tokenizer, ids, skip), text) << lines[t]["name"] << entry[0];
      }
    }
  }
}

TEST(TinyTokenizers, NoPushEndsInsideACharacter) {
  for (const json& line : Lines()) {
    if (!line.is_object()) continue;
    const auto tokenizer = FromJson(line["tokenizer"].dump());
    ASSERT_TRUE(tokenizer.ok());
    for (uint64_t c = 0; c < 50; ++c) {
      StreamingDetokenizer stream(tokenizer->get(), SkipSpecial::kNo);
      for (const int32_t id : RandomIds(c, static_cast<uint64_t>((*tokenizer)->vocab_size()))) {
        EXPECT_TRUE(tok::IsValidUtf8(stream.Push(id))) << line["name"];
      }
      EXPECT_TRUE(tok::IsValidUtf8(stream.Flush(UnfinishedCharacter::kDropped)));
    }
  }
}

TEST(TinyTokenizers, DamagedFilesAreRefusedOrRead) {
  const std::vector<json> lines = Lines();
  for (size_t t = 1; t < lines.size(); ++t) {
    const std::string whole = lines[t]["tokenizer"].dump();
    for (uint64_t round = 0; round < 40; ++round) {
      std::string damaged = whole;
      const uint64_t seed = t * 1000 + round;
      for (uint64_t edit = 0; edit < 1 + seed % 4; ++edit) {
        const auto ids = RandomIds(seed * 8 + edit + 1, damaged.size());
        if (ids.empty()) continue;
        const auto at = static_cast<size_t>(ids[0]) % damaged.size();
        damaged[at] = "{}[]\",:0-9\\ux"[static_cast<size_t>(ids.size()) % 13];
      }
      const auto tokenizer = FromJson(damaged);
      if (!tokenizer.ok()) {
        EXPECT_FALSE(tokenizer.status().message().empty());
        continue;
      }
      const auto ids = (*tokenizer)->Encode("Hello <s> wörld\n\n 12345", {});
      EXPECT_FALSE((*tokenizer)->Decode(ids, SkipSpecial::kYes).size() > 1000);
    }
  }
}

}  // namespace
}  // namespace cleave::testing_tokenizer

// Every vocabulary we know, downloaded: ids and texts equal the reference libraries'.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "model/tokenizer/testing.h"

namespace cleave::testing_tokenizer {
namespace {

class Vocabs : public testing::TestWithParam<NamedVocab> {};

TEST_P(Vocabs, EqualsTheReferenceLibrary) {
  const std::string path(GetParam().path);
  ASSERT_TRUE(SourceExists(path)) << path << " is missing: run tools/fetch_vocabs.sh and "
                                  << "tools/fetch_models.sh all";
  const auto tokenizer = TokenizerOfModel(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const VocabCases cases = ReadCases(std::string(GetParam().name));
  ASSERT_EQ(cases.encoded.size(), 2000U);
  ASSERT_EQ(cases.decoded.size(), 300U);
  EXPECT_EQ((*tokenizer)->Encode("", {}), cases.prefix);
  const Differences found = Compare(**tokenizer, cases, TestStrings());
  EXPECT_EQ(found.encoded, 0U) << found.report;
  EXPECT_EQ(found.decoded, 0U) << found.report;
  EXPECT_EQ(found.streamed, 0U) << found.report;
  RecordProperty("strings_equal", static_cast<int>(2000 - found.encoded));
}

INSTANTIATE_TEST_SUITE_P(All, Vocabs,
                         testing::ValuesIn(DownloadedVocabs().begin(), DownloadedVocabs().end()),
                         [](const testing::TestParamInfo<NamedVocab>& param) {
                           std::string name(param.param.name);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

class Refused : public testing::TestWithParam<const char*> {};

TEST_P(Refused, OtherKindsOfModelAreNamed) {
  const std::string path = fmt::format("models/vocabs/ggml-vocab-{}.gguf", GetParam());
  ASSERT_TRUE(SourceExists(path)) << path << " is missing: run tools/fetch_vocabs.sh";
  const auto tokenizer = TokenizerOfModel(path);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(tokenizer.status().message().find("(known: gpt2, gemma4, llama)"), std::string::npos)
      << tokenizer.status().message();
}

INSTANTIATE_TEST_SUITE_P(All, Refused, testing::Values("bert-bge", "nomic-bert-moe"));

}  // namespace
}  // namespace cleave::testing_tokenizer

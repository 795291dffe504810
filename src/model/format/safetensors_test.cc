#include "model/format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/format/json_file.h"
#include "model/format/test_files.h"

namespace cleave {
namespace {

using testing::ElementsAre;
using testing_files::AsBytes;
using testing_files::BuildSafetensors;
using testing_files::Raw;

std::string DamageOf(const std::string& bytes) {
  const auto parsed = ParseSafetensors(AsBytes(bytes));
  EXPECT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss) << parsed.status().ToString();
  return parsed.status().message();
}

std::string DamageOfHeader(const std::string& header, size_t data_bytes = 16) {
  return DamageOf(BuildSafetensors(header, std::string(data_bytes, 'x')));
}

TEST(Safetensors, ReadsThreeTypes) {
  const std::string bytes = BuildSafetensors(
      {{"a", {2, 3}}, {"b", {4}, "BF16", 2}, {"c", {1, 2, 1}, "F16", 2}, {"empty", {0}}});
  const auto parsed = ParseSafetensors(AsBytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->size(), 4U);
  EXPECT_THAT(parsed->at("a").view.shape, ElementsAre(2, 3));
  EXPECT_EQ(parsed->at("b").view.dtype, DType::kBF16);
  EXPECT_EQ(parsed->at("b").view.data - parsed->at("a").view.data, 24);
  EXPECT_EQ(parsed->at("c").view.dtype, DType::kF16);
  EXPECT_EQ(parsed->at("empty").view.elements(), 0U);
}

TEST(Safetensors, RefusesATypeWhenItsTensorIsWanted) {
  const std::string bytes = BuildSafetensors({{"w", {8}, "F8_E4M3", 1}, {"ids", {2}, "I32", 4}});
  const auto parsed = ParseSafetensors(AsBytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(SupportedView("w", parsed->at("w")).status().message(),
            "tensor w is stored as F8_E4M3, which is not supported; supported are F32, F16, BF16");
  EXPECT_EQ(SupportedView("ids", parsed->at("ids")).status().code(), StatusCode::kUnsupported);
}

TEST(Safetensors, RefusesShortFilesAndHeaders) {
  EXPECT_EQ(DamageOf("1234567"), "file is 7 bytes; a safetensors file has at least 8");
  EXPECT_EQ(DamageOf(Raw<uint64_t>(100) + "{}"),
            "file is 10 bytes, but its header needs 108; fetch it again");
  EXPECT_EQ(DamageOf(Raw(~0ULL) + "{}"),
            "header of 18446744073709551615 bytes; at most 16777216 are read");
  const std::string whole = BuildSafetensors({{"a", {4}}});
  EXPECT_EQ(DamageOf(whole.substr(0, whole.size() - 3)),
            "tensor a: file is " + std::to_string(whole.size() - 3) +
                " bytes, but this tensor ends at byte " + std::to_string(whole.size()) +
                "; fetch it again");
  for (size_t length = 0; length < whole.size(); ++length) DamageOf(whole.substr(0, length));
}

TEST(Safetensors, RefusesDamagedHeaders) {
  EXPECT_EQ(DamageOfHeader("{\"a\": }"), "header: not valid JSON at byte 7 of 7");
  EXPECT_EQ(DamageOfHeader("[1]"), "header: not a JSON object");
  EXPECT_EQ(DamageOfHeader(std::string(100000, '[')), "header: nests deeper than 32 levels");
  EXPECT_EQ(DamageOfHeader("{\"a\": 1}"), "tensor a: not described by an object");
  const std::string entry = R"({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]})";
  EXPECT_EQ(DamageOfHeader("{\"a\": " + entry + ", \"a\": " + entry + "}"),
            "header: key \"a\" appears twice");
  EXPECT_EQ(DamageOfHeader("{\"a\": {\"x\": 1e999}}"), "header: holds a number no type can hold");
  EXPECT_EQ(DamageOfHeader("{\"" + std::string(2000, 'n') + "\": " + entry + "}"),
            "a tensor's name has 2000 bytes; at most 1024 are read");
}

TEST(Safetensors, RefusesDamagedEntries) {
  const auto damage = [](const std::string& entry) {
    return DamageOfHeader("{\"a\": {" + entry + "}}");
  };
  EXPECT_EQ(damage(R"("shape": [4], "data_offsets": [0, 16])"),
            "tensor a: dtype is not the name of a type");
  EXPECT_EQ(damage(R"("dtype": "F32", "shape": [-4], "data_offsets": [0, 16])"),
            "tensor a: shape is not a list of at most 8 whole numbers");
  EXPECT_EQ(damage(R"("dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4])"),
            "tensor a: shape is not a list of at most 8 whole numbers");
  EXPECT_EQ(damage(R"("dtype": "F32", "shape": [4], "data_offsets": [0])"),
            "tensor a: data_offsets is not two whole numbers");
  EXPECT_EQ(damage(R"("dtype": "F32", "shape": [4], "data_offsets": [16, 0])"),
            "tensor a: data_offsets [16, 0] run backwards");
  EXPECT_EQ(damage(R"("dtype": "F32", "shape": [3], "data_offsets": [0, 16])"),
            "tensor a: its offsets hold 16 bytes, but its shape needs 12");
  EXPECT_EQ(damage(R"("dtype": "F32", "shape": [4294967296, 4294967296],
                      "data_offsets": [0, 16])"),
            "tensor a: its shape multiplies to more than 2^64");
  EXPECT_THAT(damage(R"("dtype": "F32", "shape": [4],
                        "data_offsets": [18446744073709551600, 18446744073709551615])"),
              testing::EndsWith("but this tensor ends at byte 2^64; fetch it again"));
}

TEST(Safetensors, RefusesDataAtOddAddresses) {
  const std::string header = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}})";
  const std::string bytes = BuildSafetensors(header, "xxxxx");
  const auto parsed = ParseSafetensors(AsBytes(bytes));
  EXPECT_EQ(parsed.status().message(),
            "tensor a: its data begins at byte " + std::to_string(9 + header.size()) +
                ", not a multiple of 4; save the file again with safetensors 0.3 or later");
}

TEST(JsonFile, DepthCountsBracketsOutsideStringsOnly) {
  EXPECT_TRUE(ParseJsonObject("{\"a\": \"" + std::string(100, '[') + "\\\"[\"}", "x").ok());
  EXPECT_EQ(ParseJsonObject("{\"a\": 1, \"a\": 2}", "x")->at("a"), 2);
  EXPECT_EQ(ParseJsonObject("{\"a\": \"\xff\"}", "x").status().message(),
            "x: not valid JSON at byte 8 of 10");
}

}  // namespace
}  // namespace cleave

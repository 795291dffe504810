#include "http/openai/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace cleave::openai {
namespace {

using ::testing::HasSubstr;

std::string Repeat(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(ParseJsonTest, TakesObjectsAndKeepsTheLastOfTwoMembers) {
  auto json = ParseJson(R"( {"b":1,"a":{"x":[1,2]},"b":2} )");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json.value().dump(), R"({"b":2,"a":{"x":[1,2]}})");
}

TEST(ParseJsonTest, RefusesWhatIsNoObject) {
  struct Case {
    std::string body;
    const char* says;
    const char* param;
  };
  std::string many = "{";
  for (int i = 0; i < 3000; ++i) many += "\"k" + std::to_string(i) + "\":1,";
  const Case cases[] = {
      {"", "error at byte 1", ""},
      {"[1]", "must be a JSON object, got array", ""},
      {"null", "must be a JSON object, got null", ""},
      {"{\"a\":1} x", "not valid JSON: error at byte 9", ""},
      {"{\"a\":}", "not valid JSON", ""},
      {"{'a':1}", "not valid JSON", ""},
      {"{\"a\":\"\xff\"}", "not valid JSON", ""},
      {"{\"a\":\"\\ud800\"}", "not valid JSON", ""},
      {"{\"a\":\"unended", "not valid JSON", ""},
      {"{\"a\":\"\\", "not valid JSON", ""},
      {"{\"temperature\":1e400}", "temperature must hold finite numbers only, got 1e400",
       "temperature"},
      {"{\"a\":{\"b\":[1,-1e999]}}", "a must hold finite", "a"},
      {"{\"top_p\":NaN}", "top_p must hold finite numbers only, got NaN", "top_p"},
      {"{\"top_p\":-Infinity}", "got -Infinity", "top_p"},
      {"{\"n\":" + Repeat("9", 400) + "}", "n must hold finite", "n"},
      {Repeat("{\"a\":", 65) + "1" + Repeat("}", 65), "deeper than 64 levels", ""},
      {Repeat("[", 100'000), "deeper than 64 levels", ""},
      {many + "\"z\":1}", "more than 2048 members", "k2048"},
      {"{\"a\":[" + Repeat("1,", 4'000'001) + "1]}", "more than 4000000 values", ""},
  };
  for (const Case& c : cases) {
    auto json = ParseJson(c.body);
    ASSERT_FALSE(json.ok()) << c.body.substr(0, 80);
    EXPECT_EQ(json.error().status, 400);
    EXPECT_THAT(json.error().message, HasSubstr(c.says)) << c.body.substr(0, 80);
    EXPECT_EQ(json.error().param, c.param) << c.body.substr(0, 80);
  }
}

TEST(ParseJsonTest, BoundsLieWhereTheySay) {
  EXPECT_TRUE(ParseJson(Repeat("{\"a\":", 64) + "1" + Repeat("}", 64)).ok());
  EXPECT_TRUE(ParseJson("{\"t\":1e-400,\"s\":\"NaN [[[[ 1e999\",\"u\":1e308}").ok());
  EXPECT_TRUE(ParseJson("{\"s\":\"a\\\"[{\\\\\"}").ok());
}

TEST(JsonWriterTest, WritesCompactJson) {
  std::string out;
  JsonWriter json(&out);
  json.BeginObject().Key("a").BeginArray().Int(1).Int(-2).EndArray();
  json.Key("b").BeginObject().EndObject().Key("c").Null().Key("d").Bool(true);
  json.Key("e").String("x").EndObject();
  EXPECT_EQ(out, R"({"a":[1,-2],"b":{},"c":null,"d":true,"e":"x"})");
}

TEST(JsonWriterTest, FloatsReadBackAsThemselves) {
  const float values[] = {0.0F, -1.0F, 1e-7F, 16777216.0F, -0.10536051F, 3.4e38F, 1e-45F};
  for (const float value : values) {
    std::string out;
    JsonWriter(&out).Float(value);
    EXPECT_EQ(Json::parse(out).get<float>(), value) << out;
    EXPECT_TRUE(Json::parse(out).is_number_float()) << out;
  }
  std::string out;
  JsonWriter(&out).Float(-std::numeric_limits<float>::infinity());
  EXPECT_EQ(out, "-9999.0");
}

TEST(JsonWriterTest, EscapesEverythingJsonAsksFor) {
  std::string all;
  for (int c = 0; c < 128; ++c) all.push_back(static_cast<char>(c));
  all += "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  std::string out;
  AppendJsonString(all, &out);
  EXPECT_EQ(Json::parse(out).get<std::string>(), all);
  out.clear();
  AppendJsonString("a\xF0\x9F\x98q\xED\xA0\x80\xC0\x80", &out);
  EXPECT_EQ(Json::parse(out).get<std::string>(),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDq\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Utf8Test, JudgesAsTheStandardDoes) {
  for (const char* good : {"", "a", "\xC2\x80", "\xE0\xA0\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8(good));
  }
  for (const char* bad : {"\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xF0\x8F\xBF\xBF", "\xE2\x82", "\xF5\x80\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(bad));
  }
  EXPECT_EQ(CountCharacters("a\xE2\x82\xAC\xF0\x9F\x98\x80"), 3U);
}

}  // namespace
}  // namespace cleave::openai

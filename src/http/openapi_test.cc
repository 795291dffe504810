// The OpenAPI document against what the server does: its routes, and for each request the fields
// that are checked, their types and bounds, both ways.
#include "http/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "http/openai/fields.h"
#include "http/openai/request.h"
#include "http/routes.h"

namespace cleave::testing {
namespace {

using openai::ApiError;
using openai::Fields;
using openai::Json;
using openai::RequestRules;
using ::testing::AnyOf;
using ::testing::HasSubstr;

Json Document() { return Json::parse(OpenApiDocument("1.2.3")); }

TEST(OpenApiTest, NamesEveryRouteAndResolvesEveryReference) {
  const Json document = Json::parse(OpenApiDocument("1.2.3"));
  EXPECT_EQ(document["info"]["version"], "1.2.3");
  for (const auto& [path, item] : document["paths"].items()) {
    EXPECT_NE(FindRoute(path).id, RouteId::kNone) << path;
  }
  EXPECT_EQ(document["paths"].size(), 17U);
  const std::string text = document.dump();
  const std::string mark = "#/components/schemas/";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const size_t begin = at + mark.size();
    const std::string name = text.substr(begin, text.find('"', begin) - begin);
    EXPECT_TRUE(document["components"]["schemas"].contains(name)) << name;
  }
}

// Nothing is refused for what a server was started with.
RequestRules Rules() {
  RequestRules rules;
  rules.model_names = {"tiny"};
  rules.vocab_size = 5000;
  rules.max_model_len = 1 << 20;
  rules.max_logprobs = -1;
  rules.priorities = true;
  rules.trust_request_chat_template = true;
  return rules;
}

// Lists what it is asked for.
class ListingFields final : public Fields {
 public:
  ListingFields(const Json& object, std::set<std::string>* asked) : Fields(object), asked_(asked) {}
  const Json* Get(const std::string& name) override {
    asked_->insert(name);
    return Fields::Get(name);
  }

 private:
  std::set<std::string>* asked_;
};

using Reader = std::function<std::optional<ApiError>(Fields&)>;

template <typename Parsed>
std::optional<ApiError> ErrorOf(const Parsed& parsed) {
  return parsed.ok() ? std::nullopt : std::optional(parsed.error());
}

// A request of the document, how it is read, and a body that is taken.
struct Subject {
  Json properties;
  Reader read;
  Json body;
  std::set<std::string> also_asked = {};  // to tell kinds of bodies apart
};

std::vector<Subject> Subjects() {
  const Json schemas = Document()["components"]["schemas"];
  const Json messages = Json::parse(R"({"messages":[{"role":"user","content":"hi"}]})");
  const Json prompt = Json::parse(R"({"prompt":"a"})");
  const Reader tokenize = [](Fields& f) { return ErrorOf(ReadTokenizeRequest(f, Rules())); };
  return {
      {schemas["ChatRequest"]["properties"],
       [](Fields& f) { return ErrorOf(ReadChatRequest(f, Rules())); }, messages},
      {schemas["CompletionRequest"]["properties"],
       [](Fields& f) { return ErrorOf(ReadCompletionRequest(f, Rules())); }, prompt},
      {schemas["TokenizeChatRequest"]["properties"], tokenize, messages},
      {schemas["TokenizeRequest"]["anyOf"][0]["properties"], tokenize, prompt, {"messages"}},
      {schemas["DetokenizeRequest"]["properties"],
       [](Fields& f) { return ErrorOf(ReadDetokenizeRequest(f, Rules())); },
       Json::parse(R"({"tokens":[1]})")},
  };
}

// What is said about `value` as that field.
std::optional<ApiError> Try(const Subject& subject, const std::string& name, const Json& value) {
  Json body = subject.body;
  body[name] = value;
  Fields fields(body);
  return subject.read(fields);
}

// The field's schema itself, or its alternatives.
std::vector<Json> Alternatives(const Json& schema) {
  if (!schema.contains("anyOf")) return {schema};
  return schema["anyOf"].get<std::vector<Json>>();
}

std::string TypeOf(const Json& value) {
  if (value.is_number()) return "number";
  return value.type_name();
}

std::set<std::string> TypesOf(const Json& schema) {
  std::set<std::string> types;
  for (const Json& one : Alternatives(schema)) {
    if (one.contains("$ref")) types.insert("object");
    for (const Json& value : one.value("enum", Json::array())) types.insert(TypeOf(value));
    Json type = one.value("type", Json::array());
    if (type.is_string()) type = Json::array({type});
    for (const Json& name : type) types.insert(name == "integer" ? "number" : name);
  }
  return types;
}

TEST(OpenApiTest, NamesTheFieldsThatAreReadAndNoOthers) {
  for (const Subject& subject : Subjects()) {
    std::set<std::string> asked;
    ListingFields fields(subject.body, &asked);
    EXPECT_FALSE(subject.read(fields)) << subject.body.dump();
    std::set<std::string> named = subject.also_asked;
    for (const auto& [name, schema] : subject.properties.items()) named.insert(name);
    EXPECT_EQ(asked, named);
  }
}

TEST(OpenApiTest, WhatIsOfNoTypeThatItNamesIsRefusedByName) {
  const Json values = Json::parse(R"([{},[],"x",true,0.5])");
  for (const Subject& subject : Subjects()) {
    for (const auto& [name, schema] : subject.properties.items()) {
      const std::set<std::string> types = TypesOf(schema);
      ASSERT_FALSE(types.empty()) << name;
      for (const Json& value : values) {
        if (types.count(TypeOf(value)) > 0) continue;
        const auto error = Try(subject, name, value);
        ASSERT_TRUE(error) << name << " " << value.dump();
        EXPECT_EQ(error->param, name) << value.dump();
      }
      const auto error = Try(subject, name, nullptr);
      const bool required = subject.body.contains(name);
      EXPECT_EQ(types.count("null"), required ? 0U : 1U) << name;
      EXPECT_EQ(error.has_value(), required) << name;
    }
  }
}

bool IsOutOfRange(const std::optional<ApiError>& error, const std::string& name) {
  return error && error->param == name &&
         (error->message.find("must be a number in [") != std::string::npos ||
          error->message.find("must be an integer in [") != std::string::npos);
}

// The bounds of one alternative of a field, tried on both sides; how many there are.
int CheckBounds(const Subject& subject, const std::string& name, const Json& schema) {
  const bool whole = schema["type"] == "integer" || schema["type"][0] == "integer";
  const double step = whole ? 1 : 0.0001;
  const auto error_of = [&](double value) {
    return Try(subject, name, whole ? Json(static_cast<int64_t>(value)) : Json(value));
  };
  int bounds = 0;
  if (schema.contains("maximum")) {
    const double most = schema["maximum"];
    EXPECT_FALSE(IsOutOfRange(error_of(most), name)) << name;
    EXPECT_TRUE(IsOutOfRange(error_of(most + step), name)) << name;
    ++bounds;
  }
  if (schema.contains("minimum")) {
    const double least = schema["minimum"];
    EXPECT_FALSE(IsOutOfRange(error_of(least), name)) << name;
    EXPECT_TRUE(IsOutOfRange(error_of(least - step), name)) << name;
    ++bounds;
  }
  if (schema.contains("exclusiveMinimum")) {
    const double under = schema["exclusiveMinimum"];
    EXPECT_TRUE(error_of(under)) << name;
    EXPECT_FALSE(error_of(under + step)) << name;
    ++bounds;
  }
  return bounds;
}

TEST(OpenApiTest, NumbersHaveTheBoundsThatItNames) {
  // Their most is the model's or a flag's.
  const std::set<std::string> open = {"truncate_prompt_tokens", "logprobs", "top_logprobs",
                                      "prompt_logprobs"};
  for (const Subject& subject : Subjects()) {
    for (const auto& [name, schema] : subject.properties.items()) {
      for (const Json& one : Alternatives(schema)) {
        if (TypesOf(one).count("number") == 0 || one.contains("format")) continue;  // all of int64
        EXPECT_EQ(CheckBounds(subject, name, one), open.count(name) > 0 ? 1 : 2) << name;
      }
    }
  }
}

// A value as the items of a list should be.
Json ItemOf(const Json& items) {
  const std::string type = items.value("type", "");
  if (type.empty()) return Json::parse(R"({"role":"user","content":"x"})");  // a $ref: Message
  if (type == "integer") return 1;
  if (type == "string") return "a";
  if (type == "array") return Json::array({1});
  return Json::parse(R"({"function":{"name":"f"}})");
}

TEST(OpenApiTest, ListsAndTextsHaveTheLengthsThatItNames) {
  int lengths = 0;
  for (const Subject& subject : Subjects()) {
    for (const auto& [name, schema] : subject.properties.items()) {
      for (const Json& one : Alternatives(schema)) {
        std::vector<std::pair<Json, Json>> pairs;  // one that is short enough, one that is not
        if (one.contains("maxLength")) {
          const size_t most = one["maxLength"];
          pairs.emplace_back(std::string(most, 'x'), std::string(most + 1, 'x'));
        }
        if (one.contains("maxItems")) {
          const size_t most = one["maxItems"];
          const Json item = ItemOf(one["items"]);
          pairs.emplace_back(std::vector<Json>(most, item), std::vector<Json>(most + 1, item));
        }
        for (const auto& [fits, over] : pairs) {
          ++lengths;
          const auto taken = Try(subject, name, fits);
          // An unknown model is one, whatever its length.
          EXPECT_TRUE(!taken || taken->status == 404) << name << ": " << taken->message;
          const auto refused = Try(subject, name, over);
          ASSERT_TRUE(refused) << name;
          EXPECT_EQ(refused->param, name);
          EXPECT_THAT(refused->message, AnyOf(HasSubstr("must be at most"), HasSubstr("must hold")))
              << name;
        }
      }
    }
  }
  EXPECT_GT(lengths, 20);
}

TEST(OpenApiTest, NamesWhatIsInsideStreamOptions) {
  const Json options = Document()["components"]["schemas"]["StreamOptions"]["properties"];
  EXPECT_EQ(options.size(), 2U);
  const Subject completion = Subjects()[1];
  for (const auto& [name, schema] : options.items()) {
    Subject streamed = completion;
    streamed.body["stream"] = true;
    const auto error = Try(streamed, "stream_options", Json{{name, "x"}});
    ASSERT_TRUE(error) << name;
    EXPECT_EQ(error->param, "stream_options." + name);
    EXPECT_FALSE(Try(streamed, "stream_options", Json{{name, true}})) << name;
  }
}

}  // namespace
}  // namespace cleave::testing

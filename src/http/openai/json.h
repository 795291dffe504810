#pragma once
// JSON in and out of the API.
//
// ParseJson: a request body to a tree whose size and depth were bounded before it was built; of
// members with one name the last counts. Fails with an ApiError that names the field when a number
// in it is not finite (1e400, NaN).
// JsonWriter: appends compact JSON to a string. Pure; any thread.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "http/openai/error.h"

namespace cleave::openai {

using Json = nlohmann::ordered_json;

// The top level must be an object.
Parsed<Json> ParseJson(std::string_view body);

// The caller opens and closes what it writes; commas are placed here.
class JsonWriter {
 public:
  explicit JsonWriter(std::string* out) : out_(out) {}
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Shut('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Shut(']'); }
  JsonWriter& Key(std::string_view key);
  // Bytes that are not UTF-8 become U+FFFD.
  JsonWriter& String(std::string_view text);
  JsonWriter& Int(int64_t value);
  // Shortest text that reads back as the same float, always with a fraction or exponent. Infinities
  // and NaN have no JSON text: -9999.0 stands for them, as vLLM writes -inf.
  JsonWriter& Float(float value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null() { return Raw("null"); }
  JsonWriter& Raw(std::string_view json);

 private:
  JsonWriter& Open(char c);
  JsonWriter& Shut(char c);
  void Separate();

  std::string* out_;
  bool comma_ = false;  // a value stands before the next one at this level
};

// Appends `text` quoted and escaped.
void AppendJsonString(std::string_view text, std::string* out);

// Length in bytes of the valid UTF-8 character at text[i], or 0.
size_t Utf8CharBytes(std::string_view text, size_t i);
bool IsUtf8(std::string_view text);
size_t CountCharacters(std::string_view text);

}  // namespace cleave::openai

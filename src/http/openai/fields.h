#pragma once
// Fields: typed, bounded access to the members of one JSON object. A member that is absent or null
// gives nothing; one of the wrong type or outside its bounds gives nothing and becomes the error,
// whose message names the field, what it may be and what it is. Only the first error is kept.
// Strict where Python's pydantic is lax: "5" is no number and 1 is no boolean; 5.0 is an integer.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/openai/error.h"
#include "http/openai/json.h"

namespace cleave::openai {

class Fields {
 public:
  // `object` must be one and outlive this; `prefix` comes before names in messages
  // ("stream_options.").
  explicit Fields(const Json& object, std::string prefix = {});
  virtual ~Fields() = default;

  // The member, when there and not null. All the others ask it; virtual so that what a reader asks
  // for can be listed.
  virtual const Json* Get(const std::string& name);
  std::optional<bool> Bool(const std::string& name);
  std::optional<double> Number(const std::string& name, double low, double high);
  std::optional<int64_t> Int(const std::string& name, int64_t low, int64_t high);
  std::optional<std::string> String(const std::string& name, size_t max_bytes);
  // A string or a list of strings.
  std::optional<std::vector<std::string>> Strings(const std::string& name, size_t max_count,
                                                  size_t max_bytes);
  std::optional<std::vector<int32_t>> Ids(const std::string& name, size_t max_count,
                                          int32_t vocab_size);
  const Json* Object(const std::string& name);
  const Json* Array(const std::string& name, size_t max_count);

  void Fail(const std::string& name, const std::string& message);
  void Fail(ApiError error);
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

 private:
  void WrongType(const std::string& name, std::string_view wanted, const Json& got);

  const Json& object_;
  const std::string prefix_;
  std::optional<ApiError> error_;
};

// A JSON number that is a whole one within [low, high].
std::optional<int64_t> WholeNumber(const Json& value, int64_t low, int64_t high);

// Token ids of an array; an entry that is none becomes an error naming `field` and its index.
Parsed<std::vector<int32_t>> ReadIds(const Json& array, const std::string& field,
                                     int32_t vocab_size);

// The value as it may stand in a message: short, on one line.
std::string Brief(const Json& value);

}  // namespace cleave::openai

#pragma once
// Typed reading of a JSON object's fields; errors name the object and the field. For sources only
// (it includes the JSON library). Pure; any thread.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cleave::tok {

class JsonFields {
 public:
  // `where` names the object (or the whole file) in errors; both outlive this.
  JsonFields(const nlohmann::json& object, std::string_view where)
      : object_(object), where_(where) {}

  // Null when the field is not there.
  [[nodiscard]] const nlohmann::json& At(const char* field) const {
    static const nlohmann::json null;
    if (!object_.is_object()) return null;
    const auto it = object_.find(field);
    return it == object_.end() ? null : *it;
  }

  [[nodiscard]] bool Has(const char* field) const {
    return object_.is_object() && object_.contains(field);
  }

  [[nodiscard]] Result<std::string> String(const char* field) const {
    const nlohmann::json& value = At(field);
    if (!value.is_string()) return Wrong(field, "a text");
    return value.get<std::string>();
  }
  [[nodiscard]] Result<bool> Bool(const char* field, bool otherwise) const {
    const nlohmann::json& value = At(field);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) return Wrong(field, "true or false");
    return value.get<bool>();
  }
  // At most 2^31 - 1 and not negative.
  [[nodiscard]] Result<int32_t> Count(const char* field) const {
    const nlohmann::json& value = At(field);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > INT32_MAX) {
      return Wrong(field, "an integer from 0 to 2147483647");
    }
    return static_cast<int32_t>(value.get<uint64_t>());
  }
  [[nodiscard]] Result<const nlohmann::json*> List(const char* field) const {
    const nlohmann::json& value = At(field);
    if (!value.is_array()) return Wrong(field, "a list");
    return &value;
  }
  [[nodiscard]] Status Wrong(const char* field, std::string_view wanted) const {
    if (where_.ends_with(".json")) {
      return DataLoss(fmt::format("{}: {} is not {}", where_, field, wanted));
    }
    return DataLoss(fmt::format("tokenizer.json: {} of {} is not {}", field, where_, wanted));
  }

 private:
  const nlohmann::json& object_;
  std::string_view where_;
};

}  // namespace cleave::tok

#include "http/openai/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace cleave::openai {
namespace {

constexpr size_t kBriefBytes = 40;

}  // namespace

std::string Brief(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);  // ASCII
  if (text.size() > kBriefBytes) text = text.substr(0, kBriefBytes) + "…";
  return text;
}

std::optional<int64_t> WholeNumber(const Json& value, int64_t low, int64_t high) {
  if (value.is_number_unsigned()) {
    const auto v = value.get<uint64_t>();
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    const auto s = static_cast<int64_t>(v);
    return s >= low && s <= high ? std::optional(s) : std::nullopt;
  }
  if (value.is_number_integer()) {
    const auto v = value.get<int64_t>();
    return v >= low && v <= high ? std::optional(v) : std::nullopt;
  }
  if (value.is_number_float()) {
    const double v = value.get<double>();
    // 2^53: whole doubles beyond it are not one integer each.
    if (!std::isfinite(v) || std::fabs(v) > 0x1.0p53 || v != std::floor(v)) return std::nullopt;
    const auto s = static_cast<int64_t>(v);
    return s >= low && s <= high ? std::optional(s) : std::nullopt;
  }
  return std::nullopt;
}

Parsed<std::vector<int32_t>> ReadIds(const Json& array, const std::string& field,
                                     int32_t vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const Json& entry : array) {
    const auto id = WholeNumber(entry, 0, static_cast<int64_t>(vocab_size) - 1);
    if (!id) {
      return BadRequest(fmt::format("{}[{}] must be a token id in [0, {}), got {}", field,
                                    ids.size(), vocab_size, Brief(entry)),
                        field);
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

Fields::Fields(const Json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

void Fields::Fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::Fail(const std::string& name, const std::string& message) {
  Fail(BadRequest(fmt::format("{}{} {}", prefix_, name, message), prefix_ + name));
}

void Fields::WrongType(const std::string& name, std::string_view wanted, const Json& got) {
  Fail(name, fmt::format("must be {}, got {}", wanted, Brief(got)));
}

const Json* Fields::Get(const std::string& name) {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<bool> Fields::Bool(const std::string& name) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  WrongType(name, "true or false", *value);
  return std::nullopt;
}

std::optional<double> Fields::Number(const std::string& name, double low, double high) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double v = value->get<double>();
    if (std::isfinite(v) && v >= low && v <= high) return v;
  }
  WrongType(name, fmt::format("a number in [{}, {}]", low, high), *value);
  return std::nullopt;
}

std::optional<int64_t> Fields::Int(const std::string& name, int64_t low, int64_t high) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  const auto v = WholeNumber(*value, low, high);
  if (!v) WrongType(name, fmt::format("an integer in [{}, {}]", low, high), *value);
  return v;
}

std::optional<std::string> Fields::String(const std::string& name, size_t max_bytes) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    WrongType(name, "a string", *value);
    return std::nullopt;
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    Fail(name, fmt::format("must be at most {} bytes long, got {}", max_bytes, text.size()));
    return std::nullopt;
  }
  return text;
}

std::optional<std::vector<std::string>> Fields::Strings(const std::string& name, size_t max_count,
                                                        size_t max_bytes) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string() && !value->is_array()) {
    WrongType(name, "a string or a list of strings", *value);
    return std::nullopt;
  }
  const size_t count = value->is_array() ? value->size() : 1;
  if (count > max_count) {
    Fail(name, fmt::format("must hold at most {} strings, got {}", max_count, count));
    return std::nullopt;
  }
  std::vector<std::string> out;
  for (size_t i = 0; i < count; ++i) {
    const Json& entry = value->is_array() ? (*value)[i] : *value;
    const auto* text = entry.get_ptr<const std::string*>();
    if (text == nullptr || text->empty() || text->size() > max_bytes) {
      Fail(name,
           fmt::format("must hold strings of 1 to {} bytes, got {}", max_bytes, Brief(entry)));
      return std::nullopt;
    }
    out.push_back(*text);
  }
  return out;
}

std::optional<std::vector<int32_t>> Fields::Ids(const std::string& name, size_t max_count,
                                                int32_t vocab_size) {
  const Json* value = Array(name, max_count);
  if (value == nullptr) return std::nullopt;
  auto ids = ReadIds(*value, prefix_ + name, vocab_size);
  if (ids.ok()) return std::move(ids.value());
  Fail(ids.error());
  return std::nullopt;
}

const Json* Fields::Object(const std::string& name) {
  const Json* value = Get(name);
  if (value == nullptr || value->is_object()) return value;
  WrongType(name, "an object", *value);
  return nullptr;
}

const Json* Fields::Array(const std::string& name, size_t max_count) {
  const Json* value = Get(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    WrongType(name, "a list", *value);
    return nullptr;
  }
  if (value->size() > max_count) {
    Fail(name, fmt::format("must hold at most {} entries, got {}", max_count, value->size()));
    return nullptr;
  }
  return value;
}

}  // namespace cleave::openai

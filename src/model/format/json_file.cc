#include "model/format/json_file.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

namespace cleave {
namespace {

constexpr int kMaxDepth = 32;

// Deepest nesting of brackets outside strings: known before a parser allocates for it.
bool TooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

// The first key that its object holds twice; empty when there is none.
class DuplicateFinder {
 public:
  bool operator()(Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      auto key = parsed.get<std::string>();
      if (!open_.back().insert(key).second && first_.empty()) first_ = std::move(key);
    }
    return true;
  }
  [[nodiscard]] const std::string& first() const { return first_; }

 private:
  std::vector<std::set<std::string>> open_;  // keys of the objects we are in
  std::string first_;
};

Result<Json> Parse(std::string_view text, std::string_view what, DuplicateKeys duplicates) {
  DuplicateFinder finder;
  try {
    if (duplicates == DuplicateKeys::kLastWins) return Json::parse(text);
    Json json = Json::parse(text, [&finder](int, Json::parse_event_t event, Json& parsed) {
      return finder(event, parsed);
    });
    if (finder.first().empty()) return json;
    return DataLoss(fmt::format("{}: key \"{}\" appears twice", what, finder.first()));
  } catch (const Json::parse_error& error) {
    return DataLoss(
        fmt::format("{}: not valid JSON at byte {} of {}", what, error.byte, text.size()));
  } catch (const Json::exception&) {
    return DataLoss(fmt::format("{}: holds a number no type can hold", what));
  }
}

}  // namespace

Result<Json> ParseJsonObject(std::string_view text, std::string_view what,
                             DuplicateKeys duplicates) {
  if (TooDeep(text)) {
    return DataLoss(fmt::format("{}: nests deeper than {} levels", what, kMaxDepth));
  }
  ASSIGN_OR_RETURN(Json json, Parse(text, what, duplicates));
  if (!json.is_object()) return DataLoss(fmt::format("{}: not a JSON object", what));
  return json;
}

void JsonFields::Fail(const char* key, std::string_view wanted) {
  if (!status_.ok()) return;
  const Json* found = Find(key);
  // Quoted values may be long or hold bytes that are not UTF-8.
  std::string value = found == nullptr
                          ? "is missing"
                          : "is " + found->dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr size_t kMaxShown = 60;
  if (value.size() > kMaxShown) value = value.substr(0, kMaxShown) + "…";
  status_ = DataLoss(fmt::format("{}: {} {}; {} is wanted", where_, key, value, wanted));
}

const Json* JsonFields::Find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool JsonFields::Has(const char* key) const { return Find(key) != nullptr; }

std::optional<uint32_t> JsonFields::Uint(const char* key) {
  const Json* found = Find(key);
  if (found == nullptr) return std::nullopt;
  // Some writers give whole numbers as floats.
  const double value = found->is_number() ? found->get<double>() : -1.0;
  if (value >= 0 && value <= static_cast<double>(UINT32_MAX) && std::floor(value) == value) {
    return static_cast<uint32_t>(value);
  }
  Fail(key, "a whole number from 0 to 4294967295");
  return std::nullopt;
}

std::optional<double> JsonFields::Number(const char* key) {
  const Json* found = Find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  Fail(key, "a number");
  return std::nullopt;
}

std::optional<bool> JsonFields::Bool(const char* key) {
  const Json* found = Find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_boolean()) return found->get<bool>();
  Fail(key, "true or false");
  return std::nullopt;
}

std::optional<std::string> JsonFields::String(const char* key) {
  const Json* found = Find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  Fail(key, "a string");
  return std::nullopt;
}

std::vector<std::string> JsonFields::Strings(const char* key) {
  std::vector<std::string> out;
  const Json* found = Find(key);
  if (found == nullptr) return out;
  if (found->is_array()) {
    for (const Json& each : *found) {
      if (each.is_string()) out.push_back(each.get<std::string>());
    }
  }
  if (!found->is_array() || out.size() != found->size()) Fail(key, "a list of strings");
  return out;
}

const Json& JsonFields::Object(const char* key) {
  static const Json kEmpty = Json::object();
  const Json* found = Find(key);
  if (found == nullptr) return kEmpty;
  if (found->is_object()) return *found;
  Fail(key, "an object");
  return kEmpty;
}

uint32_t JsonFields::RequiredUint(const char* key) {
  const auto value = Uint(key);
  if (!value.has_value()) Fail(key, "a whole number");
  return value.value_or(0);
}

}  // namespace cleave

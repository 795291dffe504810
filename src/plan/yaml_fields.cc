#include "plan/yaml_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/nearest.h"

namespace cleave {
namespace {

constexpr size_t kMaxText = 4096;

template <typename T>
bool ParseWhole(const std::string& text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

YamlFields::YamlFields(const YAML::Node& node, std::string file, std::string what)
    : node_(node), file_(std::move(file)), what_(std::move(what)) {
  if (!node_.IsMap() && !node_.IsNull()) Fail(node_, "expected a mapping of fields");
}

void YamlFields::Fail(const YAML::Node& at, const std::string& message) {
  if (!status_.ok()) return;
  const YAML::Mark mark = at.Mark();
  const std::string place =
      mark.is_null() ? file_ : fmt::format("{}:{}:{}", file_, mark.line + 1, mark.column + 1);
  status_ = InvalidArgument(fmt::format("{}: {}: {}", place, what_, message));
}

YAML::Node YamlFields::Find(const char* key) {
  asked_.emplace_back(key);
  if (!status_.ok() || !node_.IsMap()) return YAML::Node(YAML::NodeType::Undefined);
  return std::as_const(node_)[key];
}

bool YamlFields::Has(const char* key) {
  const YAML::Node found = Find(key);
  return found.IsDefined() && !found.IsNull();
}

uint32_t YamlFields::Uint(const char* key, uint32_t absent) {
  if (!Has(key)) return absent;
  const YAML::Node found = Find(key);
  uint32_t value = 0;
  if (found.IsScalar() && ParseWhole(found.Scalar(), &value)) return value;
  Fail(found, fmt::format("{} must be a whole number from 0 to {}", key, UINT32_MAX));
  return absent;
}

double YamlFields::Number(const char* key) {
  if (!Has(key)) return 0;
  const YAML::Node found = Find(key);
  double value = 0;
  if (found.IsScalar() && ParseWhole(found.Scalar(), &value) && std::isfinite(value) &&
      value >= 0 && value <= 1e15) {
    return value;
  }
  Fail(found, fmt::format("{} must be a number from 0 to 1e15", key));
  return 0;
}

bool YamlFields::Bool(const char* key) {
  if (!Has(key)) return false;
  const YAML::Node found = Find(key);
  if (found.IsScalar() && found.Scalar() == "true") return true;
  if (!found.IsScalar() || found.Scalar() != "false") {
    Fail(found, fmt::format("{} must be true or false", key));
  }
  return false;
}

std::string YamlFields::Text(const char* key) {
  if (!Has(key)) return "";
  const YAML::Node found = Find(key);
  if (found.IsScalar() && found.Scalar().size() <= kMaxText) return found.Scalar();
  Fail(found, fmt::format("{} must be a text of at most {} bytes", key, kMaxText));
  return "";
}

std::vector<std::string> YamlFields::Texts(const char* key) {
  std::vector<std::string> texts;
  if (!Has(key)) return texts;
  const YAML::Node found = Find(key);
  if (!found.IsSequence()) Fail(found, fmt::format("{} must be a list of texts", key));
  for (size_t i = 0; status_.ok() && i < found.size(); ++i) {
    if (!found[i].IsScalar()) Fail(found[i], fmt::format("{} must be a list of texts", key));
    if (status_.ok()) texts.push_back(found[i].Scalar());
  }
  return texts;
}

YamlFields YamlFields::Inner(const char* key) {
  const bool there = Has(key);
  return {there ? Find(key) : YAML::Node(), file_, fmt::format("{}: {}", what_, key)};
}

void YamlFields::Take(const Status& status) {
  if (status_.ok()) status_ = status;
}

Status YamlFields::Finish() {
  if (!status_.ok() || !node_.IsMap()) return status_;
  for (const auto& entry : node_) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    const std::string nearest = Nearest(key, asked_);
    Fail(entry.first,
         fmt::format("field '{:.80}' is not known{}", key,
                     nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
    break;
  }
  return status_;
}

}  // namespace cleave

#include "model/jinja/filters.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "model/jinja/access.h"
#include "model/jinja/failure.h"
#include "model/jinja/numbers.h"

namespace cleave::jinja {
namespace {

const Filter* FindIn(std::span<const Filter> table, std::string_view name) {
  const auto at = std::find_if(table.begin(), table.end(),
                               [&](const Filter& filter) { return filter.name == name; });
  return at == table.end() ? nullptr : &*at;
}

// Jinja has these, for web pages and debugging; prompts do not use them.
constexpr std::array<std::string_view, 7> kRefused = {
    "filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"};

}  // namespace

const Filter* FindFilter(std::string_view name) {
  for (const auto table : {TextFilters(), ListFilters(), NumberFilters(), SelectFilters()}) {
    if (const Filter* filter = FindIn(table, name)) return filter;
  }
  return nullptr;
}

std::string FilterProblem(std::string_view name) {
  if (std::find(kRefused.begin(), kRefused.end(), name) != kRefused.end()) {
    return fmt::format("filter '{}' is not supported in chat templates", name);
  }
  return fmt::format("no filter named '{}'", name.substr(0, 80));
}

Value AttributePath(Runtime& rt, const Value& item, const Value& path, const Value* otherwise) {
  const Text* text = path.text();
  const bool replaces = otherwise != nullptr && !otherwise->IsNone();
  Value value = item;
  const auto follow = [&](const Value& key) {
    value = GetItem(rt, value, key);
    if (replaces && value.IsUndefined()) value = *otherwise;
  };
  if (text == nullptr) {
    if (!path.IsNone()) follow(path);
    return value;
  }
  std::string_view rest = text->view();
  while (true) {
    rt.Step();
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    const auto position = digits ? ParseInt(part, 10) : std::nullopt;
    follow(position ? Value(*position) : MakeString(rt, part, text->origin()));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace cleave::jinja

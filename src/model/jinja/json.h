#pragma once
// JSON in (the context of a render) and out (the tojson filter, as Python's json.dumps writes).
// One thread, the render's.

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "model/jinja/value.h"

namespace cleave::jinja {

// Every string and number of the result counts as `origin`'s.
Value FromJson(Runtime& rt, const nlohmann::ordered_json& json, Origin origin);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // text of one level; nothing: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Fails on values that JSON has no form for.
TextPtr DumpJson(Runtime& rt, const Value& value, const JsonStyle& style);

}  // namespace cleave::jinja

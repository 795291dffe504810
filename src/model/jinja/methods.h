#pragma once
// Methods of strings, dicts, lists and tuples. One thread, the render's.

#include <optional>
#include <string_view>

#include "model/jinja/value.h"

namespace cleave::jinja {

using MethodFunction = Value (*)(Runtime& rt, const Value& self, CallArguments arguments);

struct Method {
  std::string_view name;
  MethodFunction function;
};

// A bound method; an undefined value for methods that would change a list or dict, since the
// sandbox refuses them; nothing when Python has no such attribute.
std::optional<Value> FindMethod(Runtime& rt, const Value& self, std::string_view name);

// Null when strings have no such method.
const Method* FindTextMethod(std::string_view name);

// Text operations that filters share with methods.
enum class StripEnds { kBoth, kLeft, kRight };
TextPtr Strip(Runtime& rt, const TextPtr& text, const Text* characters, StripEnds ends);
TextPtr Replace(Runtime& rt, const Text& text, const Text& from, const Text& to, Int most);
// keep_ends as str.splitlines; each line keeps its origins.
std::vector<Value> SplitLines(Runtime& rt, const TextPtr& text, bool keep_ends);
TextPtr JoinTexts(Runtime& rt, const Text& separator, const std::vector<Value>& parts);

}  // namespace cleave::jinja

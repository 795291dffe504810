#pragma once
// Python's str() and repr(). One thread, the render's.

#include <string_view>

#include "model/jinja/text.h"
#include "model/jinja/value.h"

namespace cleave::jinja {

// What {{ value }} prints: a string with the origins of its parts; anything else as a whole.
void AppendStr(Runtime& rt, TextBuilder& out, const Value& value);
TextPtr Str(Runtime& rt, const Value& value);
TextPtr Repr(Runtime& rt, const Value& value);

// A value where a string is needed: fails when it is not one.
const TextPtr& NeedText(const Value& value, std::string_view what);
// & < > " ' as HTML entities; the result is Markup.
TextPtr EscapeHtml(Runtime& rt, const Text& text);

}  // namespace cleave::jinja

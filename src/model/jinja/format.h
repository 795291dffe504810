#pragma once
// Python's two ways to format: "%s has %d" % (…) and "{} has {:>3}".format(…).
// One thread, the render's. Text of the format string keeps its origin, as does each string put in.

#include <string>
#include <string_view>

#include "model/jinja/value.h"

namespace cleave::jinja {

// format % value.
TextPtr FormatPercent(Runtime& rt, const Text& format, const Value& value);
// format.format(*positional, **named).
TextPtr FormatBraces(Runtime& rt, const Text& format, const CallArguments& arguments);

// How a number or string stands in its field, for both of them.
struct FieldStyle {
  std::string fill = " ";  // one character
  Origin fill_origin = Origin::kTemplate;
  char align = 0;          // '<', '>', '^', '=' (between sign and digits) or 0: the type's own
  char sign = 0;           // '-', '+', ' ' or 0, which is as '-'
  bool alternate = false;  // '#': prefixes 0x 0o 0b
  char grouping = 0;       // ',', '_' or 0
  size_t width = 0;        // characters
  int precision = -1;
  char type = 0;
};

// Digits of a float for types e f g % n and 0 (repr), without its sign.
std::string FloatDigits(double magnitude, const FieldStyle& style);
// Digits of an integer for types d x X o b n c and 0, without its sign.
std::string IntegerDigits(Int magnitude, const FieldStyle& style);
// Puts `sign`, `prefix` and `digits` into the field.
void AppendNumber(Runtime& rt, TextBuilder& out, std::string_view sign, std::string_view prefix,
                  std::string_view digits, const FieldStyle& style, Origin origin);
void AppendPadded(Runtime& rt, TextBuilder& out, const Text& text, const FieldStyle& style);
std::string_view SignOf(bool negative, const FieldStyle& style);
std::string_view PrefixOf(const FieldStyle& style);
// Fails when a width or precision is beyond what a field may be.
size_t CheckedWidth(Int value);
int CheckedPrecision(Int value);

}  // namespace cleave::jinja

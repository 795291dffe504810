#pragma once
// Numbers as Python reads and prints them. Pure; any thread.

#include <optional>
#include <string>
#include <string_view>

#include "model/jinja/value.h"

namespace cleave::jinja {

std::string IntToString(Int value);
// Base 2, 8, 10 or 16; lower-case digits, no prefix.
std::string IntToString(Int value, unsigned base);
// Shortest text that reads back the same: "1.0", "1e-05", "1e+16", "inf", "nan".
std::string FloatRepr(double value);
// `precision` digits after the point, exactly rounded.
std::string FloatFixed(double value, int precision);

// Python's int(text, base): surrounding space, sign, "_" between digits, prefixes 0x 0o 0b that
// agree with the base (base 0 takes any). Nothing when it is not a number or needs over 127 bits.
std::optional<Int> ParseInt(std::string_view text, unsigned base);
// Python's float(text).
std::optional<double> ParseFloat(std::string_view text);
// Nothing for infinities, nan and what needs over 127 bits.
std::optional<Int> TruncateToInt(double value);

}  // namespace cleave::jinja

#include "model/jinja/numbers.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "model/jinja/unicode.h"

namespace cleave::jinja {
namespace {

__extension__ typedef unsigned __int128 UnsignedInt;

// Digits and decimal exponent of the shortest text: value = 0.d1d2d3… × 10^point.
struct Decimal {
  std::string digits;
  int point = 0;
};

Decimal ShortestDecimal(double magnitude) {
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude,
                                 std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  const size_t e = text.find('e');
  Decimal out;
  std::copy_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(e),
               std::back_inserter(out.digits), [](char c) { return c != '.'; });
  // from_chars does not take the plus sign.
  const std::string_view exponent = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(exponent.data(), exponent.data() + exponent.size(), out.point);
  ++out.point;
  return out;
}

std::string_view Strip(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = DecodeAt(text, 0);
    if (!c.valid || !IsSpace(c.value)) break;
    text.remove_prefix(c.size);
  }
  while (!text.empty()) {
    const CodePoint c = DecodeBefore(text, text.size());
    if (!c.valid || !IsSpace(c.value)) break;
    text.remove_suffix(c.size);
  }
  return text;
}

unsigned DigitValue(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'z') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'Z') return static_cast<unsigned>(c - 'A' + 10);
  return 99;
}

unsigned PrefixBase(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  switch (text[1]) {
    case 'x':
    case 'X':
      return 16;
    case 'o':
    case 'O':
      return 8;
    case 'b':
    case 'B':
      return 2;
    default:
      return 0;
  }
}

// Drops "_" between digits; nothing when one stands elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && DigitValue(text[i - 1]) < 36 &&
                         DigitValue(text[i + 1]) < 36;
    if (!between) return std::nullopt;
  }
  return out;
}

}  // namespace

std::string IntToString(Int value) { return IntToString(value, 10); }

std::string IntToString(Int value, unsigned base) {
  UnsignedInt rest = value < 0 ? -static_cast<UnsignedInt>(value) : static_cast<UnsignedInt>(value);
  std::string out;
  do {
    out += "0123456789abcdef"[static_cast<unsigned>(rest % base)];
    rest /= base;
  } while (rest != 0);
  if (value < 0) out += '-';
  std::reverse(out.begin(), out.end());
  return out;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  const std::string sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return sign + "inf";
  if (value == 0) return sign + "0.0";
  const Decimal d = ShortestDecimal(std::fabs(value));
  const int digit_count = static_cast<int>(d.digits.size());
  constexpr int kLargestPlainPoint = 16;  // repr() turns to exponents at 1e16 and below 1e-4
  constexpr int kSmallestPlainPoint = -3;
  if (d.point > kLargestPlainPoint || d.point < kSmallestPlainPoint) {
    const int exponent = d.point - 1;
    std::string mantissa = d.digits.substr(0, 1);
    if (digit_count > 1) mantissa += "." + d.digits.substr(1);
    return fmt::format("{}{}e{}{:02}", sign, mantissa, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (d.point <= 0) {
    return sign + "0." + std::string(static_cast<size_t>(-d.point), '0') + d.digits;
  }
  if (digit_count <= d.point) {
    return sign + d.digits + std::string(static_cast<size_t>(d.point - digit_count), '0') + ".0";
  }
  const auto point = static_cast<size_t>(d.point);
  return sign + d.digits.substr(0, point) + "." + d.digits.substr(point);
}

std::string FloatFixed(double value, int precision) {
  return fmt::format("{:.{}f}", value, precision);
}

std::optional<Int> ParseInt(std::string_view text, unsigned base) {
  text = Strip(text);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const unsigned prefix = PrefixBase(text);
  if (prefix != 0 && (base == 0 || base == prefix)) {
    base = prefix;
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
  } else if (base == 0) {
    const bool leading_zero = text.size() > 1 && text[0] == '0';
    if (leading_zero && text.find_first_not_of("0_") != std::string_view::npos) return std::nullopt;
    base = 10;
  }
  const auto digits = WithoutUnderscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  Int value = 0;
  for (const char c : *digits) {
    const unsigned digit = DigitValue(c);
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<Int>(base), &value)) return std::nullopt;
    if (__builtin_add_overflow(value, static_cast<Int>(digit), &value)) return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<double> ParseFloat(std::string_view text) {
  auto digits = WithoutUnderscores(Strip(text));
  if (!digits || digits->empty()) return std::nullopt;
  std::string_view rest = *digits;
  const bool negative = rest[0] == '-';
  if (rest[0] == '-' || rest[0] == '+') rest.remove_prefix(1);
  // from_chars takes a second sign's absence, "inf", "infinity", "nan" and decimal forms; of its
  // own it would also take nan(…), which Python does not.
  if (rest.empty() || rest[0] == '-' || rest.find('(') != std::string_view::npos) {
    return std::nullopt;
  }
  double value = 0;
  const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end.ptr != rest.data() + rest.size()) return std::nullopt;
  if (end.ec == std::errc::result_out_of_range) value = std::strtod(digits->c_str(), nullptr);
  if (end.ec == std::errc::invalid_argument) return std::nullopt;
  return negative ? -std::fabs(value) : value;
}

std::optional<Int> TruncateToInt(double value) {
  constexpr double kEnd = 0x1p126;
  if (!std::isfinite(value) || std::fabs(value) >= kEnd) return std::nullopt;
  return static_cast<Int>(value);
}

}  // namespace cleave::jinja

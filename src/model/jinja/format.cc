// str.format: fields {name!r:spec}, with Python's format specification for strings and numbers.
#include "model/jinja/format.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "model/jinja/access.h"
#include "model/jinja/failure.h"
#include "model/jinja/numbers.h"
#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace cleave::jinja {
namespace {

std::string Grouped(std::string_view digits, char separator) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  if (separator == 0) return std::string(digits);
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += separator;
    out += digits[i];
  }
  return out + std::string(digits.substr(whole));
}

void Uppercase(std::string& text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
}

bool IsAlign(char32_t c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

bool IsDigitChar(char c) { return c >= '0' && c <= '9'; }

// Takes digits off the front of `spec`; nothing when there are none.
std::optional<Int> TakeNumber(std::string_view& spec) {
  size_t size = 0;
  while (size < spec.size() && IsDigitChar(spec[size])) ++size;
  if (size == 0) return std::nullopt;
  const auto number = ParseInt(spec.substr(0, size), 10);
  if (!number) Fail("too many digits in a format specification");
  spec.remove_prefix(size);
  return number;
}

bool TakeChar(std::string_view& spec, std::string_view any_of, char& out) {
  if (spec.empty() || any_of.find(spec[0]) == std::string_view::npos) return false;
  out = spec[0];
  spec.remove_prefix(1);
  return true;
}

FieldStyle ParseSpec(const Text& text) {
  std::string_view spec = text.view();
  FieldStyle style;
  style.fill_origin = text.origin();
  if (!spec.empty()) {
    const CodePoint first = DecodeAt(spec, 0);
    if (spec.size() > first.size && IsAlign(static_cast<unsigned char>(spec[first.size]))) {
      style.fill = std::string(spec.substr(0, first.size));
      style.align = spec[first.size];
      spec.remove_prefix(first.size + 1);
    } else {
      TakeChar(spec, "<>=^", style.align);
    }
  }
  char zero = 0;
  char hash = 0;
  TakeChar(spec, "+- ", style.sign);
  style.alternate = TakeChar(spec, "#", hash);
  if (TakeChar(spec, "0", zero) && style.align == 0) {
    style.fill = "0";
    style.align = '0';  // '=' for numbers, '<' for strings
  }
  if (const auto width = TakeNumber(spec)) style.width = CheckedWidth(*width);
  TakeChar(spec, ",_", style.grouping);
  if (!spec.empty() && spec[0] == '.') {
    spec.remove_prefix(1);
    const auto precision = TakeNumber(spec);
    if (!precision) Fail("format specifier missing precision");
    style.precision = CheckedPrecision(*precision);
  }
  TakeChar(spec, "bcdeEfFgGnosxX%", style.type);
  if (!spec.empty()) Fail(fmt::format("invalid format specifier at '{}'", spec.substr(0, 40)));
  return style;
}

void AppendFormattedText(Runtime& rt, TextBuilder& out, const TextPtr& text, FieldStyle style) {
  if (style.type != 0 && style.type != 's') {
    Fail(fmt::format("unknown format code '{}' for object of type 'str'", style.type));
  }
  if (style.sign != 0) Fail("sign not allowed in string format specifier");
  if (style.alternate) Fail("alternate form (#) not allowed in string format specifier");
  if (style.grouping != 0) Fail("cannot specify ',' or '_' with 's'");
  if (style.align == '=') Fail("'=' alignment not allowed in string format specifier");
  if (style.align == '0' || style.align == 0) style.align = '<';
  AppendPadded(rt, out, *text, style);
}

void AppendFormattedFloat(Runtime& rt, TextBuilder& out, double value, const FieldStyle& style,
                          Origin origin) {
  if (style.type != 0 && std::string_view("eEfFgGn%").find(style.type) == std::string_view::npos) {
    Fail(fmt::format("unknown format code '{}' for object of type 'float'", style.type));
  }
  const std::string digits = Grouped(FloatDigits(std::fabs(value), style), style.grouping);
  AppendNumber(rt, out, SignOf(std::signbit(value), style), "", digits, style, origin);
}

void AppendFormattedInt(Runtime& rt, TextBuilder& out, Int value, const FieldStyle& style,
                        Origin origin) {
  if (style.type != 0 && std::string_view("eEfFgG%").find(style.type) != std::string_view::npos) {
    return AppendFormattedFloat(rt, out, static_cast<double>(value), style, origin);
  }
  if (style.type == 's') Fail("unknown format code 's' for object of type 'int'");
  if (style.precision >= 0) Fail("precision not allowed in integer format specifier");
  const std::string digits = IntegerDigits(value < 0 ? -value : value, style);
  AppendNumber(rt, out, SignOf(value < 0, style), PrefixOf(style), Grouped(digits, style.grouping),
               style, origin);
}

void AppendFormatted(Runtime& rt, TextBuilder& out, const Value& value, const Text& spec) {
  if (spec.view().empty()) return AppendStr(rt, out, value);
  const FieldStyle style = ParseSpec(spec);
  if (const TextPtr* text = value.As<TextPtr>()) {
    return AppendFormattedText(rt, out, *text, style);
  }
  if (const Int* i = value.As<Int>()) return AppendFormattedInt(rt, out, *i, style, value.origin());
  if (const bool* b = value.As<bool>()) {
    return AppendFormattedInt(rt, out, *b ? 1 : 0, style, value.origin());
  }
  if (const double* d = value.As<double>()) {
    return AppendFormattedFloat(rt, out, *d, style, value.origin());
  }
  Fail(fmt::format("unsupported format string passed to {}.__format__", TypeName(value)));
}

// Walks a format string and its fields.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const CallArguments& arguments) : rt_(rt), arguments_(arguments) {}

  // `nested` fields stand in another field's specification.
  enum class Level { kOuter, kNested };

  void Format(TextBuilder& out, const Text& format, Level level) {
    const std::string_view all = format.view();
    size_t pos = 0;
    while (pos < all.size()) {
      const size_t brace = std::min(all.find_first_of("{}", pos), all.size());
      out.Append(format, pos, brace);
      if (brace == all.size()) return;
      rt_.Step();
      if (brace + 1 < all.size() && all[brace + 1] == all[brace]) {
        out.Append(format, brace, brace + 1);
        pos = brace + 2;
        continue;
      }
      if (all[brace] == '}') Fail("single '}' encountered in format string");
      const size_t end = EndOfField(all, brace);
      Field(out, all.substr(brace + 1, end - brace - 1), format.origin(), level);
      pos = end + 1;
    }
  }

 private:
  static size_t EndOfField(std::string_view all, size_t open) {
    size_t depth = 0;
    for (size_t i = open; i < all.size(); ++i) {
      if (all[i] == '{') ++depth;
      if (all[i] == '}' && --depth == 0) return i;
    }
    Fail("expected '}' before end of string");
  }

  void Field(TextBuilder& out, std::string_view field, Origin origin, Level level) {
    const size_t name_end = std::min(field.find_first_of("!:"), field.size());
    Value value = Lookup(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2) Fail("end of string while looking for conversion specifier");
      value = Convert(value, rest[1]);
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') Fail("expected ':' after conversion specifier");
    }
    if (rest.empty()) return AppendStr(rt_, out, value);
    const TextPtr spec = MakeText(&rt_, rest.substr(1), origin);
    if (level == Level::kNested) {
      if (spec->view().find('{') != std::string_view::npos) Fail("max string recursion exceeded");
      return AppendFormatted(rt_, out, value, *spec);
    }
    TextBuilder expanded(&rt_);
    Format(expanded, *spec, Level::kNested);
    AppendFormatted(rt_, out, value, *expanded.Finish());
  }

  Value Convert(const Value& value, char conversion) {
    if (conversion == 's') return Value(Str(rt_, value));
    if (conversion == 'r') return Value(Repr(rt_, value));
    Fail(fmt::format("unknown conversion specifier '{}'", conversion));
  }

  Value Lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = First(name.substr(0, first_end));
    std::string_view rest = name.substr(first_end);
    while (!rest.empty()) {
      rt_.Step();
      const bool attribute = rest[0] == '.';
      const size_t end = std::min(rest.find_first_of(attribute ? ".[" : "]", 1), rest.size());
      const std::string_view part = rest.substr(1, end - 1);
      if (part.empty()) Fail("empty attribute in format string");
      if (attribute) {
        value = GetAttribute(rt_, value, part);
        rest.remove_prefix(end);
        continue;
      }
      if (end == rest.size()) Fail("missing ']' in format string");
      const bool index = std::all_of(part.begin(), part.end(), IsDigitChar);
      const auto number = index ? ParseInt(part, 10) : std::nullopt;
      value = GetItem(rt_, value, number ? Value(*number) : MakeString(rt_, part));
      rest.remove_prefix(end + 1);
      if (!rest.empty() && rest[0] != '.' && rest[0] != '[') {
        Fail("only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value First(std::string_view name) {
    const bool index = std::all_of(name.begin(), name.end(), IsDigitChar);
    if (!index) {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      Fail(fmt::format("format(): no argument named '{}'", name.substr(0, 80)));
    }
    const auto position = name.empty() ? static_cast<Int>(next_++) : ParseInt(name, 10);
    const bool present = position && *position < static_cast<Int>(arguments_.positional.size());
    if (!present) Fail(fmt::format("replacement index {} out of range", name));
    return arguments_.positional[static_cast<size_t>(*position)];
  }

  Runtime& rt_;
  const CallArguments& arguments_;
  size_t next_ = 0;
};

}  // namespace

std::string FloatDigits(double magnitude, const FieldStyle& style) {
  const char type = style.type == 'n' ? 'g' : style.type;
  const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(type)));
  const int precision = style.precision >= 0 ? style.precision : 6;
  std::string digits;
  if (type == 0 && style.precision < 0) {
    digits = FloatRepr(magnitude);
  } else if (type == '%') {
    digits = fmt::format("{:.{}f}%", magnitude * 100, precision);
  } else if (lower == 'e') {
    digits = fmt::format("{:.{}e}", magnitude, precision);
  } else if (lower == 'f') {
    digits = fmt::format("{:.{}f}", magnitude, precision);
  } else {
    digits = fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    const bool whole = digits.find_first_not_of("0123456789") == std::string::npos;
    if (type == 0 && whole) digits += ".0";
  }
  if (type == 'E' || type == 'F' || type == 'G') Uppercase(digits);
  return digits;
}

std::string IntegerDigits(Int magnitude, const FieldStyle& style) {
  switch (style.type) {
    case 'x':
      return IntToString(magnitude, 16);
    case 'X': {
      std::string digits = IntToString(magnitude, 16);
      Uppercase(digits);
      return digits;
    }
    case 'o':
      return IntToString(magnitude, 8);
    case 'b':
      return IntToString(magnitude, 2);
    case 'c': {
      if (magnitude > 0x10ffff) Fail("%c arg not in range(0x110000)");
      std::string character;
      AppendUtf8(character, static_cast<char32_t>(magnitude));
      return character;
    }
    default:
      return IntToString(magnitude);
  }
}

std::string_view SignOf(bool negative, const FieldStyle& style) {
  if (negative) return "-";
  if (style.sign == '+') return "+";
  return style.sign == ' ' ? " " : "";
}

std::string_view PrefixOf(const FieldStyle& style) {
  if (!style.alternate) return "";
  switch (style.type) {
    case 'x':
      return "0x";
    case 'X':
      return "0X";
    case 'o':
      return "0o";
    case 'b':
      return "0b";
    default:
      return "";
  }
}

size_t CheckedWidth(Int value) {
  constexpr Int kMaxWidth = 1 << 20;
  if (value > kMaxWidth) FailBound("a format width of more than 1048576 characters");
  return static_cast<size_t>(value);
}

int CheckedPrecision(Int value) {
  constexpr Int kMaxPrecision = 1000;
  if (value > kMaxPrecision) FailBound("a format precision of more than 1000 digits");
  return static_cast<int>(value);
}

void AppendPadded(Runtime& rt, TextBuilder& out, const Text& text, const FieldStyle& style) {
  size_t length = text.length();
  size_t end = text.view().size();
  if (style.precision >= 0 && static_cast<size_t>(style.precision) < length) {
    length = static_cast<size_t>(style.precision);
    end = text.ByteOf(length);
  }
  const size_t padding = style.width > length ? style.width - length : 0;
  size_t before = 0;
  if (style.align == '>') before = padding;
  if (style.align == '^') before = padding / 2;
  rt.Step(padding);
  for (size_t i = 0; i < before; ++i) out.Append(style.fill, style.fill_origin);
  out.Append(text, 0, end);
  for (size_t i = before; i < padding; ++i) out.Append(style.fill, style.fill_origin);
}

void AppendNumber(Runtime& rt, TextBuilder& out, std::string_view sign, std::string_view prefix,
                  std::string_view digits, const FieldStyle& style, Origin origin) {
  FieldStyle outer = style;
  outer.precision = -1;
  std::string text(sign);
  text += prefix;
  if (style.align == '=' || style.align == '0') {
    const size_t length = text.size() + CountCodePoints(digits);
    for (size_t i = length; i < style.width; ++i) text += style.fill;
    outer.width = 0;
  }
  text += digits;
  if (outer.align == 0) outer.align = '>';
  AppendPadded(rt, out, *MakeText(&rt, text, origin), outer);
}

TextPtr FormatBraces(Runtime& rt, const Text& format, const CallArguments& arguments) {
  TextBuilder out(&rt);
  BraceFormatter(rt, arguments).Format(out, format, BraceFormatter::Level::kOuter);
  return out.Finish(format.markup());
}

}  // namespace cleave::jinja

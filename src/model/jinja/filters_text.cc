// Filters that take and give strings.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "model/jinja/access.h"
#include "model/jinja/arguments.h"
#include "model/jinja/failure.h"
#include "model/jinja/filters.h"
#include "model/jinja/format.h"
#include "model/jinja/json.h"
#include "model/jinja/methods.h"
#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace cleave::jinja {
namespace {

// A string as it is, Markup or not; anything else as str() prints it.
TextPtr Soft(Runtime& rt, const Value& value) {
  const TextPtr* text = value.As<TextPtr>();
  return text != nullptr ? *text : Str(rt, value);
}

// Filters of the same meaning as a method of strings, on str() of the value.
Value ByMethod(Runtime& rt, std::string_view method, const Value& input, CallArguments call) {
  return FindTextMethod(method)->function(rt, Value(Soft(rt, input)), std::move(call));
}

Value Capitalize(Runtime& rt, const Value& input, CallArguments call) {
  return ByMethod(rt, "capitalize", input, std::move(call));
}
Value Lower(Runtime& rt, const Value& input, CallArguments call) {
  return ByMethod(rt, "lower", input, std::move(call));
}
Value Upper(Runtime& rt, const Value& input, CallArguments call) {
  return ByMethod(rt, "upper", input, std::move(call));
}

Value Trim(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("trim", std::move(call), {"chars"});
  return Value(Strip(rt, Soft(rt, input), a.TextOrNull(0), StripEnds::kBoth));
}

Value Center(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("center", std::move(call), {"width"});
  return ByMethod(rt, "center", input, {{Value(a.IntegerOr(0, 80))}, {}});
}

Value Escape(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("escape", std::move(call), {});
  const TextPtr text = Soft(rt, input);
  if (text->markup() == Markup::kYes) return Value(text);
  return Value(EscapeHtml(rt, *text));
}

Value ForceEscape(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("forceescape", std::move(call), {});
  return Value(EscapeHtml(rt, *Soft(rt, input)));
}

Value Safe(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("safe", std::move(call), {});
  TextBuilder out(&rt);
  AppendStr(rt, out, input);
  return Value(out.Finish(Markup::kYes));
}

Value String(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("string", std::move(call), {});
  return Value(Soft(rt, input));
}

Value Format(Runtime& rt, const Value& input, CallArguments call) {
  if (!call.positional.empty() && !call.named.empty()) {
    Fail("format: can't handle positional and keyword arguments at the same time");
  }
  const TextPtr format = Soft(rt, input);
  if (call.named.empty()) {
    const Value values = MakeSequence(rt, SequenceKind::kTuple, std::move(call.positional));
    return Value(FormatPercent(rt, *format, values));
  }
  auto dict = std::make_shared<Dict>(rt);
  for (auto& [name, value] : call.named) dict->Set(name, std::move(value));
  return Value(FormatPercent(rt, *format, Value(DictPtr(std::move(dict)))));
}

Value ReplaceFilter(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("replace", std::move(call), {"old", "new", "count"});
  const Value* count = a.Find(2);
  const Int most = count == nullptr || count->IsNone() ? -1 : a.IntegerOr(2, -1);
  return Value(
      Replace(rt, *Str(rt, input), *Str(rt, a.Required(0)), *Str(rt, a.Required(1)), most));
}

Value Indent(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("indent", std::move(call), {"width", "first", "blank"});
  const TextPtr& text = NeedText(input, "the value to indent");
  const Value* width = a.Find(0);
  const TextPtr* given = width == nullptr ? nullptr : width->As<TextPtr>();
  const TextPtr indention =
      given != nullptr
          ? *given
          : MakeText(&rt, std::string(CheckedWidth(std::max<Int>(a.IntegerOr(0, 4), 0)), ' '),
                     Origin::kTemplate);
  const bool blank = a.TruthOr(2, false);
  // A newline is added first, so that a newline at the end of the text leaves an empty line.
  const TextPtr newline = MakeText(&rt, "\n", Origin::kTemplate);
  const std::vector<Value> lines = SplitLines(rt, Join(rt, *text, *newline), false);
  TextBuilder out(&rt);
  if (a.TruthOr(1, false)) out.Append(*indention);
  for (size_t i = 0; i < lines.size(); ++i) {
    const Text& line = *lines[i].text();
    if (i > 0) out.Append(*newline);
    if (i > 0 && (blank || !line.view().empty())) out.Append(*indention);
    out.Append(line);
  }
  return Value(out.Finish(text->markup()));
}

bool StartsWord(const CodePoint& c) {
  return c.valid && (IsSpace(c.value) ||
                     std::u32string_view(U"-({[<").find(c.value) != std::u32string_view::npos);
}

Value Title(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("title", std::move(call), {});
  const TextPtr text = Soft(rt, input);
  const std::string_view all = text->view();
  rt.PassOver(all.size() * 16);
  std::string out;
  for (size_t pos = 0; pos < all.size();) {
    const CodePoint first = DecodeAt(all, pos);
    if (StartsWord(first)) {
      out += all.substr(pos, first.size);
      pos += first.size;
      continue;
    }
    size_t end = pos + first.size;
    while (end < all.size() && !StartsWord(DecodeAt(all, end))) end += DecodeAt(all, end).size;
    out += MapCase(all.substr(pos, first.size), CaseMapping::kUpper);
    out += MapCase(all.substr(pos + first.size, end - pos - first.size), CaseMapping::kLower);
    pos = end;
  }
  return Value(Transformed(rt, *text, out));
}

Value Truncate(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("truncate", std::move(call), {"length", "killwords", "end", "leeway"});
  const Text* given_end = a.TextOrNull(2);
  const TextPtr dots = MakeText(&rt, "...", Origin::kTemplate);
  const Text& end = given_end != nullptr ? *given_end : *dots;
  const Int length = a.IntegerOr(0, 255);
  const Int leeway = a.IntegerOr(3, 5);
  if (length < static_cast<Int>(end.length())) {
    Fail(fmt::format("truncate: expected length >= {}", end.length()));
  }
  if (leeway < 0) Fail("truncate: expected leeway >= 0");
  const auto input_length = Length(input);
  if (!input_length) Fail(fmt::format("object of type '{}' has no len()", TypeName(input)));
  if (static_cast<Int>(*input_length) - length <= leeway) return input;
  const TextPtr& text = NeedText(input, "the value to truncate");
  const size_t kept = text->ByteOf(ToSize(length) - end.length());
  size_t cut = kept;
  if (!a.TruthOr(1, false)) {
    const size_t space = text->view().substr(0, kept).rfind(' ');
    if (space != std::string_view::npos) cut = space;
  }
  TextBuilder out(&rt);
  out.Append(*text, 0, cut);
  out.Append(end);
  return Value(out.Finish());
}

bool IsWordCharacter(const CodePoint& c) { return c.valid && (c.value == '_' || IsAlnum(c.value)); }

Value WordCount(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("wordcount", std::move(call), {});
  const TextPtr text = Soft(rt, input);
  const std::string_view all = text->view();
  rt.PassOver(all.size() * 8);
  size_t count = 0;
  bool inside = false;
  for (size_t pos = 0; pos < all.size();) {
    const CodePoint c = DecodeAt(all, pos);
    const bool word = IsWordCharacter(c);
    if (word && !inside) ++count;
    inside = word;
    pos += c.size;
  }
  return Value::Count(count);
}

enum class UrlPart { kPath, kQuery };

// RFC 3986 unreserved characters stand for themselves; in a path "/" does too, and in a query a
// space becomes "+".
void AppendUrlQuoted(TextBuilder& out, const Text& text, UrlPart part) {
  std::string quoted;
  for (const char c : text.view()) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool plain = letter || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos;
    if (plain || (part == UrlPart::kPath && c == '/')) {
      quoted += c;
    } else if (part == UrlPart::kQuery && c == ' ') {
      quoted += '+';
    } else {
      quoted += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  out.Append(quoted, text.origin());
}

Value UrlEncode(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("urlencode", std::move(call), {});
  TextBuilder out(&rt);
  if (input.text() != nullptr || !IsIterable(input)) {
    AppendUrlQuoted(out, *Str(rt, input), UrlPart::kPath);
    return Value(out.Finish());
  }
  bool first = true;
  const auto append = [&](const Value& key, const Value& value) {
    if (!first) out.Append("&", Origin::kTemplate);
    first = false;
    AppendUrlQuoted(out, *Str(rt, key), UrlPart::kQuery);
    out.Append("=", Origin::kTemplate);
    AppendUrlQuoted(out, *Str(rt, value), UrlPart::kQuery);
  };
  if (const Dict* dict = input.dict()) {
    for (const auto& [key, value] : dict->entries()) append(key, value);
    return Value(out.Finish());
  }
  for (const Value& pair : Collect(rt, input)) {
    const std::vector<Value> parts = Collect(rt, pair);
    if (parts.size() != 2) Fail("urlencode: expected pairs of key and value");
    append(parts[0], parts[1]);
  }
  return Value(out.Finish());
}

Value ToJson(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("tojson", std::move(call),
                    {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = a.TruthOr(0, false);
  style.sort_keys = a.TruthOr(3, false);
  const Value indent = a.Or(1, None{});
  if (const Text* text = indent.text()) {
    style.indent = std::string(text->view());
  } else if (!indent.IsNone()) {
    style.indent = std::string(CheckedWidth(std::max<Int>(a.IntegerOr(1, 0), 0)), ' ');
  }
  if (style.indent) style.item_separator = ",";
  const Value separators = a.Or(2, None{});
  if (!separators.IsNone()) {
    const std::vector<Value> parts = Collect(rt, separators);
    if (parts.size() != 2) Fail("tojson: separators must be a pair of strings");
    style.item_separator = NeedText(parts[0], "the item separator")->view();
    style.key_separator = NeedText(parts[1], "the key separator")->view();
  }
  return Value(DumpJson(rt, input, style));
}

constexpr std::array<Filter, 18> kFilters = {{{"capitalize", Capitalize},
                                              {"center", Center},
                                              {"e", Escape},
                                              {"escape", Escape},
                                              {"forceescape", ForceEscape},
                                              {"format", Format},
                                              {"indent", Indent},
                                              {"lower", Lower},
                                              {"replace", ReplaceFilter},
                                              {"safe", Safe},
                                              {"string", String},
                                              {"title", Title},
                                              {"tojson", ToJson},
                                              {"trim", Trim},
                                              {"truncate", Truncate},
                                              {"upper", Upper},
                                              {"urlencode", UrlEncode},
                                              {"wordcount", WordCount}}};

}  // namespace

std::span<const Filter> TextFilters() { return kFilters; }

}  // namespace cleave::jinja

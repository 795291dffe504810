// Methods of strings. Positions and lengths are code points, as in Python.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "model/jinja/access.h"
#include "model/jinja/arguments.h"
#include "model/jinja/failure.h"
#include "model/jinja/format.h"
#include "model/jinja/methods.h"
#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace cleave::jinja {
namespace {

const TextPtr& Self(const Value& self) { return *self.As<TextPtr>(); }

Value Slice(Runtime& rt, const TextPtr& text, size_t begin, size_t end) {
  return Value(SliceBytes(rt, text, begin, end));
}

Value ListOf(Runtime& rt, std::vector<Value> items) {
  return MakeSequence(rt, SequenceKind::kList, std::move(items));
}

// rfind compares the needle at every position in the worst case.
void ChargeBackwardSearch(Runtime& rt, std::string_view text, std::string_view needle) {
  rt.PassOver(text.size() * std::min<size_t>(needle.size(), 1U << 30U));
}

template <CaseMapping kMapping>
Value Cased(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("case mapping", std::move(call), {});
  rt.PassOver(Self(self)->view().size() * 16);
  return Value(Transformed(rt, *Self(self), MapCase(Self(self)->view(), kMapping)));
}

template <StripEnds kEnds>
Value StripMethod(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("strip", std::move(call), {""});
  return Value(Strip(rt, Self(self), a.TextOrNull(0), kEnds));
}

// Splitting at runs of white space.
std::vector<Value> SplitSpace(Runtime& rt, const TextPtr& text, Int most) {
  const std::string_view all = text->view();
  std::vector<Value> parts;
  size_t pos = 0;
  const auto skip = [&](bool space) {
    while (pos < all.size()) {
      const CodePoint c = DecodeAt(all, pos);
      if ((c.valid && IsSpace(c.value)) != space) break;
      pos += c.size;
    }
  };
  for (skip(true); pos < all.size(); skip(true)) {
    const size_t begin = pos;
    if (most >= 0 && static_cast<Int>(parts.size()) >= most) {
      parts.push_back(Slice(rt, text, begin, all.size()));
      break;
    }
    skip(false);
    parts.push_back(Slice(rt, text, begin, pos));
  }
  return parts;
}

std::vector<Value> SplitSpaceFromRight(Runtime& rt, const TextPtr& text, Int most) {
  if (most < 0) return SplitSpace(rt, text, most);
  const std::string_view all = text->view();
  std::vector<Value> parts;
  size_t end = all.size();
  const auto skip = [&](bool space) {
    while (end > 0) {
      const CodePoint c = DecodeBefore(all, end);
      if ((c.valid && IsSpace(c.value)) != space) break;
      end -= c.size;
    }
  };
  for (skip(true); end > 0; skip(true)) {
    const size_t stop = end;
    if (static_cast<Int>(parts.size()) >= most) {
      parts.push_back(Slice(rt, text, 0, stop));
      break;
    }
    skip(false);
    parts.push_back(Slice(rt, text, end, stop));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> SplitAt(Runtime& rt, const TextPtr& text, std::string_view sep, Int most) {
  const std::string_view all = text->view();
  std::vector<Value> parts;
  size_t begin = 0;
  while (most < 0 || static_cast<Int>(parts.size()) < most) {
    const size_t found = FindBytes(all, sep, begin);
    if (found == std::string_view::npos) break;
    rt.Step();
    parts.push_back(Slice(rt, text, begin, found));
    begin = found + sep.size();
  }
  parts.push_back(Slice(rt, text, begin, all.size()));
  return parts;
}

std::vector<Value> SplitAtFromRight(Runtime& rt, const TextPtr& text, std::string_view sep,
                                    Int most) {
  const std::string_view all = text->view();
  std::vector<Value> parts;
  size_t end = all.size();
  while (most < 0 || static_cast<Int>(parts.size()) < most) {
    if (end < sep.size()) break;
    const size_t found = all.rfind(sep, end - sep.size());
    if (found == std::string_view::npos) break;
    rt.Step();
    parts.push_back(Slice(rt, text, found + sep.size(), end));
    end = found;
  }
  parts.push_back(Slice(rt, text, 0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// The end of a text where a search begins.
enum class Side { kFirst, kLast };

template <Side kSide>
Value Split(Runtime& rt, const Value& self, CallArguments call) {
  constexpr bool kForward = kSide == Side::kFirst;
  const Arguments a(kForward ? "split" : "rsplit", std::move(call), {"sep", "maxsplit"});
  const Text* sep = a.TextOrNull(0);
  const Int most = a.IntegerOr(1, -1);
  const TextPtr& text = Self(self);
  rt.PassOver(text->view().size());
  if (sep == nullptr) {
    return ListOf(rt, kForward ? SplitSpace(rt, text, most) : SplitSpaceFromRight(rt, text, most));
  }
  if (sep->view().empty()) Fail("empty separator");
  if (kForward) return ListOf(rt, SplitAt(rt, text, sep->view(), most));
  ChargeBackwardSearch(rt, text->view(), sep->view());
  return ListOf(rt, SplitAtFromRight(rt, text, sep->view(), most));
}

Value SplitLinesMethod(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("splitlines", std::move(call), {"keepends"});
  return ListOf(rt, SplitLines(rt, Self(self), a.TruthOr(0, false)));
}

template <Side kSide>
Value Partition(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("partition", std::move(call), {""});
  const TextPtr& sep = a.RequiredText(0);
  const std::string_view all = Self(self)->view();
  if (sep->view().empty()) Fail("empty separator");
  rt.PassOver(all.size());
  if (kSide == Side::kLast) ChargeBackwardSearch(rt, all, sep->view());
  const size_t at = kSide == Side::kFirst ? FindBytes(all, sep->view(), 0) : all.rfind(sep->view());
  const Value empty(MakeText(&rt, "", Origin::kTemplate, Self(self)->markup()));
  if (at == std::string_view::npos) {
    if (kSide == Side::kFirst) return MakeSequence(rt, SequenceKind::kTuple, {self, empty, empty});
    return MakeSequence(rt, SequenceKind::kTuple, {empty, empty, self});
  }
  const size_t after = at + sep->view().size();
  return MakeSequence(rt, SequenceKind::kTuple,
                      {Slice(rt, Self(self), 0, at), Slice(rt, Self(self), at, after),
                       Slice(rt, Self(self), after, all.size())});
}

// The bytes [begin, end) that optional start and stop arguments leave.
struct Window {
  size_t begin = 0;
  size_t end = 0;
  bool valid = true;  // false: start lies behind the end
};

Window WindowOf(const Text& text, const Arguments& a, size_t first) {
  const auto size = static_cast<Int>(text.length());
  const auto bound = [&](size_t i, Int otherwise) {
    const Value* given = a.Find(i);
    if (given == nullptr || given->IsNone()) return otherwise;
    const Int index = a.IntegerOr(i, otherwise);
    return index < 0 ? std::max<Int>(index + size, 0) : index;
  };
  const Int start = bound(first, 0);
  const Int stop = std::min(bound(first + 1, size), size);
  if (start > size || start > stop) return {0, 0, false};
  return {text.ByteOf(ToSize(start)), text.ByteOf(ToSize(stop)), true};
}

// startswith and endswith take one string or a tuple of them.
template <typename Matches>
bool MatchesAny(const Value& patterns, std::string_view name, const Matches& matches) {
  if (const Text* one = patterns.text()) return matches(one->view());
  const Sequence* many = patterns.sequence();
  if (many == nullptr || !many->is_tuple()) {
    FailIfUndefined(patterns);
    Fail(fmt::format("{} first arg must be str or a tuple of str, not {}", name,
                     TypeName(patterns)));
  }
  return std::any_of(many->items().begin(), many->items().end(), [&](const Value& item) {
    return matches(NeedText(item, "an item of the tuple")->view());
  });
}

Value StartsWith(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("startswith", std::move(call), {"", "", ""});
  const Window window = WindowOf(*Self(self), a, 1);
  const std::string_view part = Self(self)->view().substr(window.begin, window.end - window.begin);
  rt.Step();
  return Value(MatchesAny(a.Required(0), "startswith", [&](std::string_view prefix) {
    return window.valid && part.starts_with(prefix);
  }));
}

Value EndsWith(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("endswith", std::move(call), {"", "", ""});
  const Window window = WindowOf(*Self(self), a, 1);
  const std::string_view part = Self(self)->view().substr(window.begin, window.end - window.begin);
  rt.Step();
  return Value(MatchesAny(a.Required(0), "endswith", [&](std::string_view suffix) {
    return window.valid && part.ends_with(suffix);
  }));
}

enum class OnMissing { kMinusOne, kFail };

template <Side kSide, OnMissing kOnMissing>
Value Find(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("find", std::move(call), {"", "", ""});
  const TextPtr& needle = a.RequiredText(0);
  const Window window = WindowOf(*Self(self), a, 1);
  const std::string_view part = Self(self)->view().substr(window.begin, window.end - window.begin);
  rt.PassOver(Self(self)->view().size());
  size_t at = std::string_view::npos;
  if (window.valid) {
    if (kSide == Side::kLast) ChargeBackwardSearch(rt, part, needle->view());
    at = kSide == Side::kFirst ? FindBytes(part, needle->view(), 0) : part.rfind(needle->view());
  }
  if (at != std::string_view::npos) {
    return Value::Count(Self(self)->CharacterAt(window.begin + at));
  }
  if (kOnMissing == OnMissing::kFail) Fail("substring not found");
  return Value(static_cast<Int>(-1));
}

Value Count(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("count", std::move(call), {"", "", ""});
  const TextPtr& needle = a.RequiredText(0);
  const Window window = WindowOf(*Self(self), a, 1);
  if (!window.valid) return Value::Count(0);
  const std::string_view part = Self(self)->view().substr(window.begin, window.end - window.begin);
  rt.PassOver(part.size());
  if (needle->view().empty()) return Value::Count(CountCodePoints(part) + 1);
  size_t count = 0;
  for (size_t at = FindBytes(part, needle->view(), 0); at != std::string_view::npos;
       at = FindBytes(part, needle->view(), at + needle->view().size())) {
    ++count;
    rt.Step();
  }
  return Value::Count(count);
}

Value ReplaceMethod(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("replace", std::move(call), {"", "", ""});
  return Value(
      Replace(rt, *Self(self), *a.RequiredText(0), *a.RequiredText(1), a.IntegerOr(2, -1)));
}

Value JoinMethod(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("join", std::move(call), {""});
  const std::vector<Value> parts = Collect(rt, a.Required(0));
  for (const Value& part : parts) {
    FailIfUndefined(part);
    NeedText(part, "an item to join");
  }
  return Value(JoinTexts(rt, *Self(self), parts));
}

Value RemovePrefix(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("removeprefix", std::move(call), {""});
  const TextPtr& prefix = a.RequiredText(0);
  const std::string_view all = Self(self)->view();
  if (!all.starts_with(prefix->view())) return self;
  return Slice(rt, Self(self), prefix->view().size(), all.size());
}

Value RemoveSuffix(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("removesuffix", std::move(call), {""});
  const TextPtr& suffix = a.RequiredText(0);
  const std::string_view all = Self(self)->view();
  if (!all.ends_with(suffix->view())) return self;
  return Slice(rt, Self(self), 0, all.size() - suffix->view().size());
}

template <char kAlign>
Value Justify(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("just", std::move(call), {"", ""});
  FieldStyle style;
  style.align = kAlign;
  style.width = CheckedWidth(std::max<Int>(a.RequiredInteger(0), 0));
  if (const Text* fill = a.TextOrNull(1)) {
    if (fill->length() != 1) Fail("the fill character must be exactly one character long");
    style.fill = std::string(fill->view());
    style.fill_origin = fill->origin();
  }
  // str.center leaves the odd space on the left when the width is odd, unlike str.format.
  const size_t length = Self(self)->length();
  if (kAlign == '^' && style.width > length) {
    const size_t padding = style.width - length;
    const size_t before = padding / 2 + (padding & style.width & 1U);
    TextBuilder out(&rt);
    rt.Step(padding);
    for (size_t i = 0; i < before; ++i) out.Append(style.fill, style.fill_origin);
    out.Append(*Self(self));
    for (size_t i = before; i < padding; ++i) out.Append(style.fill, style.fill_origin);
    return Value(out.Finish());
  }
  TextBuilder out(&rt);
  AppendPadded(rt, out, *Self(self), style);
  return Value(out.Finish());
}

Value ZeroFill(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("zfill", std::move(call), {""});
  const TextPtr& text = Self(self);
  const size_t width = CheckedWidth(std::max<Int>(a.RequiredInteger(0), 0));
  if (width <= text->length()) return self;
  const std::string_view all = text->view();
  const size_t sign = !all.empty() && (all[0] == '-' || all[0] == '+') ? 1 : 0;
  TextBuilder out(&rt);
  out.Append(*text, 0, sign);
  out.Append(std::string(width - text->length(), '0'), Origin::kTemplate);
  out.Append(*text, sign, all.size());
  return Value(out.Finish());
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): every method has this signature
Value FormatMethod(Runtime& rt, const Value& self, CallArguments call) {
  return Value(FormatBraces(rt, *Self(self), call));
}

template <bool (*kIs)(char32_t)>
Value AllAre(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("character test", std::move(call), {});
  const std::string_view all = Self(self)->view();
  rt.PassOver(all.size() * 4);
  for (size_t pos = 0; pos < all.size();) {
    const CodePoint c = DecodeAt(all, pos);
    if (!c.valid || !kIs(c.value)) return Value(false);
    pos += c.size;
  }
  return Value(!all.empty());
}

// isupper and islower: some cased character, and none of the other cases.
template <bool (*kIs)(char32_t), bool (*kIsNot)(char32_t)>
Value CasedAs(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("case test", std::move(call), {});
  const std::string_view all = Self(self)->view();
  rt.PassOver(all.size() * 4);
  bool some = false;
  for (size_t pos = 0; pos < all.size();) {
    const CodePoint c = DecodeAt(all, pos);
    if (c.valid && (kIsNot(c.value) || IsTitle(c.value))) return Value(false);
    some = some || (c.valid && kIs(c.value));
    pos += c.size;
  }
  return Value(some);
}

Value IsTitleMethod(Runtime& rt, const Value& self, CallArguments call) {
  const Arguments a("istitle", std::move(call), {});
  const std::string_view all = Self(self)->view();
  rt.PassOver(all.size() * 4);
  bool some = false;
  bool after_cased = false;
  for (size_t pos = 0; pos < all.size();) {
    const CodePoint c = DecodeAt(all, pos);
    const bool upper = c.valid && (IsUpper(c.value) || IsTitle(c.value));
    const bool lower = c.valid && IsLower(c.value);
    if ((upper && after_cased) || (lower && !after_cased)) return Value(false);
    after_cased = upper || lower;
    some = some || after_cased;
    pos += c.size;
  }
  return Value(some);
}

bool IsAsciiCharacter(char32_t c) { return c < 0x80; }

Value IsAscii(Runtime& rt, const Value& self, CallArguments call) {
  if (Self(self)->view().empty()) return Value(true);
  return AllAre<IsAsciiCharacter>(rt, self, std::move(call));
}

constexpr std::array<Method, 40> kTextMethods = {
    {{"capitalize", Cased<CaseMapping::kCapitalize>},
     {"casefold", Cased<CaseMapping::kFold>},
     {"center", Justify<'^'>},
     {"count", Count},
     {"endswith", EndsWith},
     {"find", Find<Side::kFirst, OnMissing::kMinusOne>},
     {"format", FormatMethod},
     {"index", Find<Side::kFirst, OnMissing::kFail>},
     {"isalnum", AllAre<IsAlnum>},
     {"isalpha", AllAre<IsAlpha>},
     {"isascii", IsAscii},
     {"isdecimal", AllAre<IsDecimal>},
     {"isdigit", AllAre<IsDigit>},
     {"islower", CasedAs<IsLower, IsUpper>},
     {"isnumeric", AllAre<IsNumeric>},
     {"isspace", AllAre<IsSpace>},
     {"istitle", IsTitleMethod},
     {"isupper", CasedAs<IsUpper, IsLower>},
     {"join", JoinMethod},
     {"ljust", Justify<'<'>},
     {"lower", Cased<CaseMapping::kLower>},
     {"lstrip", StripMethod<StripEnds::kLeft>},
     {"partition", Partition<Side::kFirst>},
     {"removeprefix", RemovePrefix},
     {"removesuffix", RemoveSuffix},
     {"replace", ReplaceMethod},
     {"rfind", Find<Side::kLast, OnMissing::kMinusOne>},
     {"rindex", Find<Side::kLast, OnMissing::kFail>},
     {"rjust", Justify<'>'>},
     {"rpartition", Partition<Side::kLast>},
     {"rsplit", Split<Side::kLast>},
     {"rstrip", StripMethod<StripEnds::kRight>},
     {"split", Split<Side::kFirst>},
     {"splitlines", SplitLinesMethod},
     {"startswith", StartsWith},
     {"strip", StripMethod<StripEnds::kBoth>},
     {"swapcase", Cased<CaseMapping::kSwap>},
     {"title", Cased<CaseMapping::kTitle>},
     {"upper", Cased<CaseMapping::kUpper>},
     {"zfill", ZeroFill}}};

// Whether `c` is among `characters`; white space when there are none given.
bool Strippable(const CodePoint& c, std::string_view bytes, const Text* characters) {
  if (characters == nullptr) return c.valid && IsSpace(c.value);
  const std::string_view set = characters->view();
  for (size_t pos = 0; pos < set.size();) {
    const uint32_t size = DecodeAt(set, pos).size;
    if (set.substr(pos, size) == bytes) return true;
    pos += size;
  }
  return false;
}

}  // namespace

const Method* FindTextMethod(std::string_view name) {
  const auto at = std::find_if(kTextMethods.begin(), kTextMethods.end(),
                               [&](const Method& method) { return method.name == name; });
  return at == kTextMethods.end() ? nullptr : &*at;
}

TextPtr Strip(Runtime& rt, const TextPtr& text, const Text* characters, StripEnds ends) {
  const std::string_view all = text->view();
  const size_t set_size = characters == nullptr ? 1 : characters->view().size();
  size_t begin = 0;
  size_t end = all.size();
  while (ends != StripEnds::kRight && begin < end) {
    const CodePoint c = DecodeAt(all, begin);
    rt.PassOver(set_size * 16);
    if (!Strippable(c, all.substr(begin, c.size), characters)) break;
    begin += c.size;
  }
  while (ends != StripEnds::kLeft && begin < end) {
    const CodePoint c = DecodeBefore(all, end);
    rt.PassOver(set_size * 16);
    if (!Strippable(c, all.substr(end - c.size, c.size), characters)) break;
    end -= c.size;
  }
  rt.PassOver(all.size());
  return SliceBytes(rt, text, begin, end);
}

TextPtr Replace(Runtime& rt, const Text& text, const Text& from, const Text& to, Int most) {
  const std::string_view all = text.view();
  const std::string_view needle = from.view();
  rt.PassOver(all.size());
  TextBuilder out(&rt);
  size_t done = 0;
  size_t search = 0;
  for (Int count = 0; most < 0 || count < most; ++count) {
    const size_t at = FindBytes(all, needle, search);
    if (at == std::string_view::npos) break;
    rt.Step();
    out.Append(text, done, at);
    out.Append(to);
    done = at + needle.size();
    search = done;
    if (!needle.empty()) continue;
    // An empty needle stands before every character and at the end.
    if (at == all.size()) break;
    search = at + DecodeAt(all, at).size;
  }
  out.Append(text, done, all.size());
  return out.Finish(text.markup());
}

std::vector<Value> SplitLines(Runtime& rt, const TextPtr& text, bool keep_ends) {
  const std::string_view all = text->view();
  std::vector<Value> lines;
  rt.PassOver(all.size());
  size_t begin = 0;
  for (size_t pos = 0; pos < all.size();) {
    const CodePoint c = DecodeAt(all, pos);
    const size_t end = pos;
    pos += c.size;
    if (!c.valid || !IsLineBreak(c.value)) continue;
    if (c.value == '\r' && pos < all.size() && all[pos] == '\n') ++pos;
    lines.push_back(Slice(rt, text, begin, keep_ends ? pos : end));
    rt.Step();
    begin = pos;
  }
  if (begin < all.size()) lines.push_back(Slice(rt, text, begin, all.size()));
  return lines;
}

TextPtr JoinTexts(Runtime& rt, const Text& separator, const std::vector<Value>& parts) {
  TextBuilder out(&rt);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.Append(separator);
    AppendStr(rt, out, parts[i]);
  }
  return out.Finish(separator.markup());
}

}  // namespace cleave::jinja

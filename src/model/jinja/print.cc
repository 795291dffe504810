#include "model/jinja/print.h"

#include <fmt/core.h>

#include <algorithm>

#include "model/jinja/failure.h"
#include "model/jinja/numbers.h"
#include "model/jinja/quoted.h"
#include "model/jinja/unicode.h"

namespace cleave::jinja {
namespace {

void EscapeRepr(std::string& out, const CodePoint& c, char quote) {
  if (c.value == static_cast<unsigned char>(quote)) {
    out += '\\';
    out += quote;
  } else if (c.valid && IsPrintable(c.value)) {
    AppendUtf8(out, c.value);
  } else if (!c.valid) {
    out += fmt::format("\\udc{:02x}", static_cast<uint32_t>(c.value));
  } else if (c.value < 0x100) {
    out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c.value));
  } else if (c.value < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c.value));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c.value));
  }
}

// Writes repr() of a value, all of it with one origin.
class ReprWriter {
 public:
  ReprWriter(Runtime& rt, TextBuilder& out, Origin origin) : rt_(rt), out_(out), origin_(origin) {}

  void Write(const Value& value) {
    rt_.Step();
    const Nesting nesting(rt_);
    if (value.IsUndefined()) return Put("Undefined");
    if (value.IsNone()) return Put("None");
    if (const bool* b = value.As<bool>()) return Put(*b ? "True" : "False");
    if (const Int* i = value.As<Int>()) return Put(IntToString(*i));
    if (const double* d = value.As<double>()) return Put(FloatRepr(*d));
    if (const Text* text = value.text()) return WriteText(*text);
    if (const Dict* dict = value.dict()) return WriteDict(*dict);
    if (const Sequence* sequence = value.sequence()) return WriteSequence(*sequence);
    Put(value.object()->Repr(rt_));
  }

 private:
  void Put(std::string_view text) { out_.Append(text, origin_); }

  void WriteText(const Text& text) {
    const bool markup = text.markup() == Markup::kYes;
    if (markup) Put("Markup(");
    WriteQuoted(text.view());
    if (markup) Put(")");
  }

  void WriteQuoted(std::string_view text) {
    const bool single = text.find('\'') == std::string_view::npos;
    const bool no_double = text.find('"') == std::string_view::npos;
    const char quote = single || !no_double ? '\'' : '"';
    AppendQuoted(out_, text, quote, origin_,
                 [quote](std::string& out, const CodePoint& c, std::string_view /*bytes*/) {
                   EscapeRepr(out, c, quote);
                 });
  }

  void WriteItems(const std::vector<Value>& items, std::string_view open, std::string_view close) {
    Put(open);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) Put(", ");
      Write(items[i]);
    }
    Put(close);
  }

  void WriteSequence(const Sequence& s) {
    switch (s.kind()) {
      case SequenceKind::kList:
        return WriteItems(s.items(), "[", "]");
      case SequenceKind::kTuple:
      case SequenceKind::kGroup:
        return WriteItems(s.items(), "(", s.items().size() == 1 ? ",)" : ")");
      case SequenceKind::kRange:
        return s.range().empty() ? WriteRange(s.items()) : Put(s.range());
      case SequenceKind::kKeys:
        return WriteItems(s.items(), "dict_keys([", "])");
      case SequenceKind::kValues:
        return WriteItems(s.items(), "dict_values([", "])");
      case SequenceKind::kItems:
        return WriteItems(s.items(), "dict_items([", "])");
      case SequenceKind::kGenerator:
        return Put("<generator object>");
    }
  }

  // Any end between the last item and the next one is the same range; this writes the least.
  void WriteRange(const std::vector<Value>& items) {
    if (items.empty()) return Put("range(0, 0)");
    const Int first = *items.front().As<Int>();
    const Int step = items.size() > 1 ? *items[1].As<Int>() - first : 1;
    const Int end = *items.back().As<Int>() + (step > 0 ? 1 : -1);
    Put(fmt::format("range({}, {}", IntToString(first), IntToString(end)));
    if (step != 1) Put(", " + IntToString(step));
    Put(")");
  }

  void WriteDict(const Dict& dict) {
    Put("{");
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) Put(", ");
      first = false;
      Write(key);
      Put(": ");
      Write(value);
    }
    Put("}");
  }

  Runtime& rt_;
  TextBuilder& out_;
  const Origin origin_;
};

}  // namespace

void AppendStr(Runtime& rt, TextBuilder& out, const Value& value) {
  if (value.IsUndefined()) return;
  if (const Text* text = value.text()) return out.Append(*text);
  ReprWriter(rt, out, OriginOf(rt, value)).Write(value);
}

TextPtr Str(Runtime& rt, const Value& value) {
  const TextPtr* text = value.As<TextPtr>();
  if (text != nullptr && (*text)->markup() == Markup::kNo) return *text;
  TextBuilder out(&rt);
  AppendStr(rt, out, value);
  return out.Finish();
}

TextPtr Repr(Runtime& rt, const Value& value) {
  TextBuilder out(&rt);
  ReprWriter(rt, out, OriginOf(rt, value)).Write(value);
  return out.Finish();
}

const TextPtr& NeedText(const Value& value, std::string_view what) {
  const TextPtr* text = value.As<TextPtr>();
  if (text == nullptr) Fail(fmt::format("{} must be a string, not '{}'", what, TypeName(value)));
  return *text;
}

TextPtr EscapeHtml(Runtime& rt, const Text& text) {
  TextBuilder out(&rt);
  const std::string_view all = text.view();
  size_t done = 0;
  while (true) {
    const size_t next = std::min(all.find_first_of("&<>\"'", done), all.size());
    out.Append(text, done, next);
    if (next == all.size()) break;
    std::string_view entity;
    switch (all[next]) {
      case '&':
        entity = "&amp;";
        break;
      case '<':
        entity = "&lt;";
        break;
      case '>':
        entity = "&gt;";
        break;
      case '"':
        entity = "&#34;";
        break;
      default:
        entity = "&#39;";
    }
    out.Append(entity, text.OriginAt(next));
    done = next + 1;
  }
  return out.Finish(Markup::kYes);
}

}  // namespace cleave::jinja

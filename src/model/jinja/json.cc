#include "model/jinja/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/jinja/access.h"
#include "model/jinja/compare.h"
#include "model/jinja/failure.h"
#include "model/jinja/numbers.h"
#include "model/jinja/quoted.h"
#include "model/jinja/unicode.h"

namespace cleave::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value NumberFromJson(const Json& json) {
  if (json.is_number_unsigned()) return Value(static_cast<Int>(json.get<uint64_t>()));
  if (json.is_number_integer()) return Value(static_cast<Int>(json.get<int64_t>()));
  return Value(json.get<double>());
}

void EscapeJson(std::string& out, const CodePoint& c, std::string_view bytes, bool ascii) {
  const auto unit = [&](uint32_t u) { out += fmt::format("\\u{:04x}", u); };
  switch (c.value) {
    case '"':
      out += "\\\"";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    default:
      break;
  }
  const auto value = static_cast<uint32_t>(c.value);
  if (value < 0x20) return unit(value);
  if (value < 0x80 || !ascii || !c.valid) {
    if (ascii && value == 0x7f) return unit(value);
    out += bytes;
  } else if (value < 0x10000) {
    unit(value);
  } else {
    unit(0xd800 + ((value - 0x10000) >> 10U));
    unit(0xdc00 + ((value - 0x10000) & 0x3ffU));
  }
}

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, TextBuilder& out, const JsonStyle& style, Origin origin)
      : rt_(rt), out_(out), style_(style), origin_(origin) {}

  void Write(const Value& value) {
    rt_.Step();
    const Nesting nesting(rt_);
    if (value.IsNone()) return Put("null");
    if (const bool* b = value.As<bool>()) return Put(*b ? "true" : "false");
    if (const Int* i = value.As<Int>()) return Put(IntToString(*i));
    if (const double* d = value.As<double>()) return Put(FloatText(*d));
    if (const Text* text = value.text()) return WriteString(text->view());
    if (const Dict* dict = value.dict()) return WriteDict(*dict);
    const Sequence* s = value.sequence();
    const bool array = s != nullptr && (s->is_tuple() || s->kind() == SequenceKind::kList);
    if (array) return WriteArray(s->items());
    Fail(fmt::format("object of type {} is not JSON serializable", TypeName(value)));
  }

 private:
  void Put(std::string_view text) { out_.Append(text, origin_); }

  static std::string FloatText(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(d);
  }

  void WriteString(std::string_view text) {
    AppendQuoted(out_, text, '"', origin_,
                 [this](std::string& out, const CodePoint& c, std::string_view bytes) {
                   EscapeJson(out, c, bytes, style_.ensure_ascii);
                 });
  }

  void NewLine() {
    if (!style_.indent) return;
    rt_.Step();
    Put("\n");
    for (size_t i = 0; i < level_; ++i) Put(*style_.indent);
  }

  void WriteArray(const std::vector<Value>& items) {
    if (items.empty()) return Put("[]");
    Put("[");
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) Put(style_.item_separator);
      NewLine();
      Write(items[i]);
    }
    --level_;
    NewLine();
    Put("]");
  }

  void WriteDict(const Dict& dict) {
    if (dict.entries().empty()) return Put("{}");
    Put("{");
    ++level_;
    bool first = true;
    for (const auto* entry : Ordered(dict)) {
      if (!first) Put(style_.item_separator);
      first = false;
      NewLine();
      WriteKey(entry->first);
      Put(style_.key_separator);
      Write(entry->second);
    }
    --level_;
    NewLine();
    Put("}");
  }

  std::vector<const std::pair<Value, Value>*> Ordered(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (!style_.sort_keys) return entries;
    std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
      return Compare(rt_, CompareOp::kLess, a->first, b->first);
    });
    return entries;
  }

  void WriteKey(const Value& key) {
    if (const Text* text = key.text()) return WriteString(text->view());
    const bool scalar = key.IsNone() || key.As<bool>() != nullptr || key.As<Int>() != nullptr ||
                        key.As<double>() != nullptr;
    if (!scalar) {
      Fail(fmt::format("keys must be str, int, float, bool or None, not {}", TypeName(key)));
    }
    Put("\"");
    Write(key);
    Put("\"");
  }

  Runtime& rt_;
  TextBuilder& out_;
  const JsonStyle& style_;
  const Origin origin_;
  size_t level_ = 0;
};

}  // namespace

Value FromJson(Runtime& rt, const Json& json, Origin origin) {
  const Nesting nesting(rt);
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value(json.get<bool>()).From(origin);
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      return NumberFromJson(json).From(origin);
    case Json::value_t::string:
      return MakeString(rt, json.get_ref<const std::string&>(), origin);
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(FromJson(rt, item, origin));
      return MakeSequence(rt, SequenceKind::kList, std::move(items));
    }
    case Json::value_t::object: {
      auto dict = std::make_shared<Dict>(rt);
      for (const auto& [key, value] : json.items()) {
        dict->Set(MakeString(rt, key, origin), FromJson(rt, value, origin));
      }
      return Value(DictPtr(std::move(dict)));
    }
    case Json::value_t::null:
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return Value(None{}).From(origin);
}

TextPtr DumpJson(Runtime& rt, const Value& value, const JsonStyle& style) {
  TextBuilder out(&rt);
  JsonWriter(rt, out, style, OriginOf(rt, value)).Write(value);
  return out.Finish();
}

}  // namespace cleave::jinja

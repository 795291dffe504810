#include "model/jinja/access.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "model/jinja/failure.h"
#include "model/jinja/methods.h"
#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace cleave::jinja {
namespace {

// "'dict object' has no attribute 'x'": what Jinja says of a missing name.
Value Missing(Runtime& rt, const Value& value, const Value& key) {
  const std::string type = value.IsNone() ? "None" : fmt::format("{} object", TypeName(value));
  const Text* name = key.text();
  constexpr size_t kMaxNameBytes = 200;  // longer keys are not worth repeating
  if (name != nullptr && name->view().size() > kMaxNameBytes) {
    return Value::UndefinedBecause(fmt::format("'{}' has no such attribute", type));
  }
  if (name != nullptr) {
    return Value::UndefinedBecause(fmt::format("'{}' has no attribute '{}'", type, name->view()));
  }
  if (DepthOf(key) > 0) {
    return Value::UndefinedBecause(fmt::format("{} has no such element", type));
  }
  return Value::UndefinedBecause(fmt::format("{} has no element {}", type, Str(rt, key)->view()));
}

std::optional<Int> AsIndex(const Value& key) {
  if (const Int* i = key.As<Int>()) return *i;
  if (const bool* b = key.As<bool>()) return static_cast<Int>(*b ? 1 : 0);
  return std::nullopt;
}

// Position of a Python index in [0, length), or nothing.
std::optional<size_t> Resolve(Int index, size_t length) {
  const auto size = static_cast<Int>(length);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return static_cast<size_t>(index);
}

std::optional<Value> FindItem(Runtime& rt, const Value& value, const Value& key) {
  if (const Dict* dict = value.dict()) {
    if (!IsHashable(key)) return std::nullopt;
    const Value* found = dict->Find(key);
    if (found == nullptr) return std::nullopt;
    return *found;
  }
  const auto index = AsIndex(key);
  if (!index) return std::nullopt;
  if (const Sequence* sequence = value.sequence()) {
    if (!sequence->subscriptable()) return std::nullopt;
    const auto pos = Resolve(*index, sequence->items().size());
    if (!pos) return std::nullopt;
    return sequence->items()[*pos];
  }
  const TextPtr* text = value.As<TextPtr>();
  if (text == nullptr) return std::nullopt;
  const auto pos = Resolve(*index, (*text)->length());
  if (!pos) return std::nullopt;
  rt.PassOver((*text)->view().size());
  const size_t begin = (*text)->ByteOf(*pos);
  const size_t end = begin + DecodeAt((*text)->view(), begin).size;
  return Value(SliceBytes(rt, *text, begin, end));
}

struct SliceBounds {
  Int start = 0;
  Int step = 1;
  size_t count = 0;
};

std::optional<Int> SlicePart(const Value& part) {
  if (part.IsNone()) return std::nullopt;
  const auto index = AsIndex(part);
  if (!index) Fail("slice indices must be integers or None");
  return index;
}

// Python's slice.indices: parts out of range are clamped, never an error.
SliceBounds Bounds(size_t length, const Value& start, const Value& stop, const Value& step) {
  const auto size = static_cast<Int>(length);
  // Further than any length either way; keeps the sums below from running over.
  constexpr Int kFar = std::numeric_limits<int64_t>::max();
  SliceBounds out;
  out.step = std::clamp(SlicePart(step).value_or(1), -kFar, kFar);
  if (out.step == 0) Fail("slice step cannot be zero");
  const bool forward = out.step > 0;
  const Int low = forward ? 0 : -1;
  const Int high = forward ? size : size - 1;
  const auto clamp = [&](const Value& part, Int otherwise) {
    auto given = SlicePart(part);
    if (!given) return otherwise;
    if (*given < 0) *given = std::max(*given, -kFar) + size;
    return std::clamp(*given, low, high);
  };
  out.start = clamp(start, forward ? low : high);
  const Int end = clamp(stop, forward ? high : low);
  const Int span = forward ? end - out.start : out.start - end;
  const Int stride = forward ? out.step : -out.step;
  if (span > 0) out.count = static_cast<size_t>((span - 1) / stride + 1);
  return out;
}

Value SliceText(Runtime& rt, const TextPtr& text, const SliceBounds& bounds) {
  rt.PassOver(text->view().size());
  if (bounds.count == 0) return MakeString(rt, "");
  const auto start = static_cast<size_t>(bounds.start);
  if (bounds.step == 1) {
    return Value(SliceBytes(rt, text, text->ByteOf(start), text->ByteOf(start + bounds.count)));
  }
  std::vector<size_t> offsets;  // byte of each character
  rt.Step(text->length() / 16);
  offsets.reserve(text->length() + 1);
  for (size_t byte = 0; byte < text->view().size(); byte += DecodeAt(text->view(), byte).size) {
    offsets.push_back(byte);
  }
  offsets.push_back(text->view().size());
  TextBuilder out(&rt);
  Int at = bounds.start;
  for (size_t i = 0; i < bounds.count; ++i, at += bounds.step) {
    out.Append(*text, offsets[static_cast<size_t>(at)], offsets[static_cast<size_t>(at) + 1]);
  }
  return Value(out.Finish(text->markup()));
}

}  // namespace

void FailIfUndefined(const Value& value) {
  const Undefined* undefined = value.As<Undefined>();
  if (undefined == nullptr) return;
  Fail(undefined->why != nullptr ? *undefined->why : "the value is undefined");
}

std::optional<Value> FindAttribute(Runtime& rt, const Value& value, std::string_view name) {
  if (Object* object = value.object()) return object->Attribute(rt, name);
  return FindMethod(rt, value, name);
}

Value GetAttribute(Runtime& rt, const Value& value, std::string_view name) {
  FailIfUndefined(value);
  if (auto attribute = FindAttribute(rt, value, name)) return *std::move(attribute);
  if (const Dict* dict = value.dict()) {
    if (const Value* found = dict->Find(name)) return *found;
  }
  return Missing(rt, value, MakeString(rt, name));
}

Value GetItem(Runtime& rt, const Value& value, const Value& key) {
  FailIfUndefined(value);
  if (auto item = FindItem(rt, value, key)) return *std::move(item);
  if (const Text* name = key.text()) {
    if (auto attribute = FindAttribute(rt, value, name->view())) return *std::move(attribute);
  }
  return Missing(rt, value, key);
}

Value GetSlice(Runtime& rt, const Value& value, const Value& start, const Value& stop,
               const Value& step) {
  FailIfUndefined(value);
  const TextPtr* text = value.As<TextPtr>();
  if (text != nullptr) return SliceText(rt, *text, Bounds((*text)->length(), start, stop, step));
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || !sequence->subscriptable()) {
    Fail(fmt::format("'{}' object cannot be sliced", TypeName(value)));
  }
  const SliceBounds bounds = Bounds(sequence->items().size(), start, stop, step);
  rt.Step(bounds.count);
  std::vector<Value> items;
  items.reserve(bounds.count);
  Int at = bounds.start;
  for (size_t i = 0; i < bounds.count; ++i, at += bounds.step) {
    items.push_back(sequence->items()[static_cast<size_t>(at)]);
  }
  const bool group = sequence->kind() == SequenceKind::kGroup;
  return MakeSequence(rt, group ? SequenceKind::kTuple : sequence->kind(), std::move(items));
}

bool IsIterable(const Value& value) {
  return value.IsUndefined() || value.text() != nullptr || value.sequence() != nullptr ||
         value.dict() != nullptr;
}

Cursor::Cursor(Runtime& rt, Value value) : rt_(rt), value_(std::move(value)) {
  if (!IsIterable(value_)) Fail(fmt::format("'{}' object is not iterable", TypeName(value_)));
}

std::optional<Value> Cursor::Next() {
  rt_.Step();
  if (const Sequence* sequence = value_.sequence()) {
    if (!sequence->sized()) {
      const Value* taken = sequence->Take();
      if (taken == nullptr) return std::nullopt;
      return *taken;
    }
    if (pos_ >= sequence->items().size()) return std::nullopt;
    return sequence->items()[pos_++];
  }
  if (const Dict* dict = value_.dict()) {
    if (pos_ >= dict->entries().size()) return std::nullopt;
    return dict->entries()[pos_++].first;
  }
  const TextPtr* text = value_.As<TextPtr>();
  if (text == nullptr || pos_ >= (*text)->view().size()) return std::nullopt;
  const size_t begin = pos_;
  pos_ += DecodeAt((*text)->view(), begin).size;
  TextBuilder character(&rt_);  // a plain string, of Markup too
  character.Append(**text, begin, pos_);
  return Value(character.Finish());
}

std::vector<Value> Collect(Runtime& rt, const Value& value) {
  Cursor cursor(rt, value);
  std::vector<Value> items;
  Lease lease(&rt);
  while (auto item = cursor.Next()) {
    lease.GrowValues(sizeof(Value));
    items.push_back(*std::move(item));
  }
  return items;
}

}  // namespace cleave::jinja

#include "model/jinja/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "model/jinja/failure.h"
#include "model/jinja/numbers.h"

namespace cleave::jinja {
namespace {

std::string_view SequenceTypeName(SequenceKind kind) {
  switch (kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
    case SequenceKind::kGroup:
      return "tuple";
    case SequenceKind::kRange:
      return "range";
    case SequenceKind::kKeys:
      return "dict_keys";
    case SequenceKind::kValues:
      return "dict_values";
    case SequenceKind::kItems:
      return "dict_items";
    case SequenceKind::kGenerator:
      return "generator";
  }
  return "list";
}

std::string HashKeyOfNumber(double d) {
  constexpr double kIntegersEnd = 0x1p126;
  if (std::nearbyint(d) == d && std::fabs(d) < kIntegersEnd) {
    return "n" + IntToString(static_cast<Int>(d));
  }
  return "n" + FloatRepr(d);
}

}  // namespace

Value Value::UndefinedBecause(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

Value Value::From(Origin origin) && {
  origin_ = origin;
  return std::move(*this);
}

Sequence::Sequence(Runtime& rt, SequenceKind kind, std::vector<Value> items)
    : kind_(kind), items_(std::move(items)), lease_(&rt) {
  rt.Step(items_.size());
  lease_.GrowValues(sizeof(Sequence) + items_.size() * sizeof(Value));
  for (const Value& item : items_) {
    depth_ = std::max(depth_, DepthAbove(rt, DepthOf(item)));
  }
  const bool itself = kind_ == SequenceKind::kRange || kind_ == SequenceKind::kGenerator;
  hashable_ = itself || (is_tuple() && std::all_of(items_.begin(), items_.end(), IsHashable));
}

const Value* Sequence::Take() const {
  if (taken_ >= items_.size()) return nullptr;
  return &items_[taken_++];
}

std::optional<size_t> Dict::PositionOf(const std::string& hash_key) const {
  const auto found = positions_.find(hash_key);
  if (found == positions_.end()) return std::nullopt;
  return found->second;
}

void Dict::Insert(std::string hash_key, Value key, Value value) {
  rt_.Step();
  depth_ = std::max(depth_, DepthAbove(rt_, std::max(DepthOf(key), DepthOf(value))));
  if (const auto position = PositionOf(hash_key)) {
    entries_[*position].second = std::move(value);
    return;
  }
  lease_.GrowValues(sizeof(Value) * 3 + hash_key.size());
  positions_.emplace(std::move(hash_key), entries_.size());
  entries_.emplace_back(std::move(key), std::move(value));
}

void Dict::Set(Value key, Value value) {
  std::string hash_key = HashKey(key);
  Insert(std::move(hash_key), std::move(key), std::move(value));
}

void Dict::Set(std::string_view key, Value value) { Set(MakeString(rt_, key), std::move(value)); }

const Value* Dict::Find(const Value& key) const {
  const auto position = PositionOf(HashKey(key));
  return position ? &entries_[*position].second : nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  std::string hash_key = "s";
  hash_key += key;
  const auto position = PositionOf(hash_key);
  return position ? &entries_[*position].second : nullptr;
}

std::string Object::Repr(Runtime& /*rt*/) { return fmt::format("<{}>", type_name()); }

std::optional<Value> Object::Attribute(Runtime& /*rt*/, std::string_view /*name*/) {
  return std::nullopt;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): those that can be called take it apart
Value Object::Call(Runtime& /*rt*/, CallArguments /*arguments*/) {
  Fail(fmt::format("'{}' object is not callable", type_name()));
}

std::string_view TypeName(const Value& value) {
  if (value.IsUndefined()) return "Undefined";
  if (value.IsNone()) return "NoneType";
  if (value.As<bool>() != nullptr) return "bool";
  if (value.As<Int>() != nullptr) return "int";
  if (value.As<double>() != nullptr) return "float";
  if (value.text() != nullptr) return "str";
  if (value.dict() != nullptr) return "dict";
  if (const Sequence* s = value.sequence()) return SequenceTypeName(s->kind());
  return value.object()->type_name();
}

bool Truthy(const Value& value) {
  if (value.IsUndefined() || value.IsNone()) return false;
  if (const bool* b = value.As<bool>()) return *b;
  if (const Int* i = value.As<Int>()) return *i != 0;
  if (const double* d = value.As<double>()) return *d != 0;
  const auto length = Length(value);
  return !length || *length != 0;
}

std::optional<size_t> Length(const Value& value) {
  if (value.IsUndefined()) return 0;
  if (const Text* t = value.text()) return t->length();
  if (const Dict* d = value.dict()) return d->entries().size();
  const Sequence* s = value.sequence();
  if (s != nullptr && s->sized()) return s->items().size();
  return std::nullopt;
}

bool IsHashable(const Value& value) {
  const Sequence* sequence = value.sequence();
  return value.dict() == nullptr && (sequence == nullptr || sequence->hashable());
}

std::string HashKey(const Value& value) {
  if (const Text* t = value.text()) return "s" + std::string(t->view());
  if (value.IsNone()) return "z";
  if (value.IsUndefined()) return "u";
  if (const bool* b = value.As<bool>()) return *b ? "n1" : "n0";
  if (const Int* i = value.As<Int>()) return "n" + IntToString(*i);
  if (const double* d = value.As<double>()) return HashKeyOfNumber(*d);
  if (const Object* o = value.object()) return fmt::format("o{}", static_cast<const void*>(o));
  const Sequence* s = value.sequence();
  if (s == nullptr || !s->hashable()) {
    Fail(fmt::format("unhashable type: '{}'", TypeName(value)));
  }
  if (!s->is_tuple()) return fmt::format("o{}", static_cast<const void*>(s));
  // Tuples can share their parts, so that a few of them spell out to a great deal.
  constexpr size_t kMaxKeyBytes = 1U << 20U;
  std::string key = "t";
  for (const Value& item : s->items()) {
    const std::string part = HashKey(item);
    key += fmt::format("{}:{}", part.size(), part);
    if (key.size() > kMaxKeyBytes) {
      FailBound(
          fmt::format("a tuple used as a key spells out to more than {} bytes", kMaxKeyBytes));
    }
  }
  return key;
}

uint32_t DepthOf(const Value& value) {
  if (const Sequence* s = value.sequence()) return s->depth();
  if (const Dict* d = value.dict()) return d->depth();
  if (const Object* o = value.object()) return o->depth();
  return 0;
}

uint32_t DepthAbove(const Runtime& rt, uint32_t depth) {
  if (depth >= rt.max_depth()) {
    FailBound(fmt::format("a value nests deeper than max_depth = {}", rt.max_depth()));
  }
  return depth + 1;
}

Origin OriginOf(Runtime& rt, const Value& value) {
  rt.Step();
  if (const Text* t = value.text()) return t->origin();
  if (const Sequence* s = value.sequence()) {
    for (const Value& item : s->items()) {
      if (OriginOf(rt, item) == Origin::kUser) return Origin::kUser;
    }
    return Origin::kTemplate;
  }
  const Dict* d = value.dict();
  if (d == nullptr) return value.origin();
  for (const auto& [key, entry] : d->entries()) {
    if (OriginOf(rt, key) == Origin::kUser || OriginOf(rt, entry) == Origin::kUser) {
      return Origin::kUser;
    }
  }
  return Origin::kTemplate;
}

Value MakeString(Runtime& rt, std::string_view bytes, Origin origin) {
  return Value(MakeText(&rt, bytes, origin));
}

Value MakeSequence(Runtime& rt, SequenceKind kind, std::vector<Value> items) {
  return Value(SequencePtr(std::make_shared<const Sequence>(rt, kind, std::move(items))));
}

}  // namespace cleave::jinja

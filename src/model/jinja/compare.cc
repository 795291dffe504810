#include "model/jinja/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <compare>
#include <optional>

#include "model/jinja/access.h"
#include "model/jinja/failure.h"

namespace cleave::jinja {
namespace {

std::optional<Int> AsInteger(const Value& v) {
  if (const Int* i = v.As<Int>()) return *i;
  if (const bool* b = v.As<bool>()) return static_cast<Int>(*b ? 1 : 0);
  return std::nullopt;
}

bool IsNumber(const Value& v) { return AsInteger(v) || v.As<double>() != nullptr; }

std::partial_ordering OrderNumbers(const Value& a, const Value& b) {
  const auto x = AsInteger(a);
  const auto y = AsInteger(b);
  if (x && y)
    return *x < *y ? std::partial_ordering::less
                   : (*x > *y ? std::partial_ordering::greater : std::partial_ordering::equivalent);
  // long double holds both exactly: a double, and any 64-bit integer.
  const long double p =
      x ? static_cast<long double>(*x) : static_cast<long double>(*a.As<double>());
  const long double q =
      y ? static_cast<long double>(*y) : static_cast<long double>(*b.As<double>());
  return p <=> q;
}

bool SequencesEqual(Runtime& rt, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  const bool same_type = a.kind() == b.kind() || (a.is_tuple() && b.is_tuple());
  if (!same_type || !a.sized() || a.items().size() != b.items().size()) return false;
  for (size_t i = 0; i < a.items().size(); ++i) {
    if (!Equals(rt, a.items()[i], b.items()[i])) return false;
  }
  return true;
}

bool DictsEqual(Runtime& rt, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.entries().size() != b.entries().size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const auto& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && Equals(rt, entry.second, *other);
  });
}

[[noreturn]] void FailOrder(std::string_view op, const Value& a, const Value& b) {
  FailIfUndefined(a);
  FailIfUndefined(b);
  Fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, TypeName(a),
                   TypeName(b)));
}

std::partial_ordering Order(Runtime& rt, std::string_view op, const Value& a, const Value& b);

// Lists and tuples: the first items that differ decide, then the lengths.
std::partial_ordering OrderSequences(Runtime& rt, std::string_view op, const Sequence& a,
                                     const Sequence& b) {
  const size_t common = std::min(a.items().size(), b.items().size());
  for (size_t i = 0; i < common; ++i) {
    if (!Equals(rt, a.items()[i], b.items()[i])) {
      return Order(rt, op, a.items()[i], b.items()[i]);
    }
  }
  return a.items().size() <=> b.items().size();
}

std::partial_ordering Order(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  rt.Step();
  if (IsNumber(a) && IsNumber(b)) return OrderNumbers(a, b);
  const Text* s = a.text();
  const Text* t = b.text();
  if (s != nullptr && t != nullptr) {
    rt.PassOver(std::min(s->view().size(), t->view().size()));
    return s->view() <=> t->view();  // UTF-8 sorts as code points do
  }
  const Sequence* p = a.sequence();
  const Sequence* q = b.sequence();
  if (p != nullptr && q != nullptr) {
    const bool lists = p->kind() == SequenceKind::kList && q->kind() == SequenceKind::kList;
    if (lists || (p->is_tuple() && q->is_tuple())) return OrderSequences(rt, op, *p, *q);
  }
  FailOrder(op, a, b);
}

}  // namespace

bool Equals(Runtime& rt, const Value& a, const Value& b) {
  rt.Step();
  if (IsNumber(a) && IsNumber(b)) return std::is_eq(OrderNumbers(a, b));
  const Text* s = a.text();
  const Text* t = b.text();
  if (s != nullptr && t != nullptr) {
    rt.PassOver(s->view().size() == t->view().size() ? s->view().size() : 0);
    return s->view() == t->view();
  }
  if (a.sequence() != nullptr && b.sequence() != nullptr) {
    return SequencesEqual(rt, *a.sequence(), *b.sequence());
  }
  if (a.dict() != nullptr && b.dict() != nullptr) return DictsEqual(rt, *a.dict(), *b.dict());
  if (a.IsUndefined() && b.IsUndefined()) return true;
  if (a.IsNone() && b.IsNone()) return true;
  return a.object() != nullptr && a.object() == b.object();
}

bool Compare(Runtime& rt, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEqual:
      return Equals(rt, a, b);
    case CompareOp::kNotEqual:
      return !Equals(rt, a, b);
    case CompareOp::kLess:
      return std::is_lt(Order(rt, "<", a, b));
    case CompareOp::kLessEqual:
      return std::is_lteq(Order(rt, "<=", a, b));
    case CompareOp::kGreater:
      return std::is_gt(Order(rt, ">", a, b));
    case CompareOp::kGreaterEqual:
      return std::is_gteq(Order(rt, ">=", a, b));
    case CompareOp::kIn:
      return Contains(rt, b, a);
    case CompareOp::kNotIn:
      return !Contains(rt, b, a);
  }
  return false;
}

bool Contains(Runtime& rt, const Value& container, const Value& item) {
  rt.Step();
  if (const Text* text = container.text()) {
    const Text* part = item.text();
    if (part == nullptr) {
      FailIfUndefined(item);
      Fail(fmt::format("'in <string>' requires string as left operand, not {}", TypeName(item)));
    }
    rt.PassOver(text->view().size());
    return FindBytes(text->view(), part->view(), 0) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) return dict->Find(item) != nullptr;
  if (container.object() != nullptr || !IsIterable(container)) {
    Fail(fmt::format("argument of type '{}' is not iterable", TypeName(container)));
  }
  Cursor cursor(rt, container);
  while (const auto next = cursor.Next()) {
    if (SameAs(*next, item) || Equals(rt, *next, item)) return true;
  }
  return false;
}

bool SameAs(const Value& a, const Value& b) {
  if (a.IsNone() || b.IsNone()) return a.IsNone() && b.IsNone();
  if (a.As<bool>() != nullptr && b.As<bool>() != nullptr) return *a.As<bool>() == *b.As<bool>();
  if (a.As<Int>() != nullptr && b.As<Int>() != nullptr) return *a.As<Int>() == *b.As<Int>();
  if (a.text() != nullptr) return a.text() == b.text();
  if (a.sequence() != nullptr) return a.sequence() == b.sequence();
  if (a.dict() != nullptr) return a.dict() == b.dict();
  return a.object() != nullptr && a.object() == b.object();
}

}  // namespace cleave::jinja

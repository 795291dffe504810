#include "model/jinja/arithmetic.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "model/jinja/access.h"
#include "model/jinja/failure.h"
#include "model/jinja/format.h"
#include "model/jinja/print.h"

namespace cleave::jinja {
namespace {

std::string_view Symbol(BinaryOp op) {
  constexpr std::array<std::string_view, 7> kSymbols = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

struct Number {
  bool is_float = false;
  Int integer = 0;
  double real = 0;  // the value as a double, of integers too
};

std::optional<Number> AsNumber(const Value& v) {
  if (const Int* i = v.As<Int>()) return Number{false, *i, static_cast<double>(*i)};
  if (const bool* b = v.As<bool>()) return Number{false, *b ? 1 : 0, *b ? 1.0 : 0.0};
  if (const double* d = v.As<double>()) return Number{true, 0, *d};
  return std::nullopt;
}

Origin Either(const Value& a, const Value& b) {
  return a.origin() == Origin::kUser || b.origin() == Origin::kUser ? Origin::kUser
                                                                    : Origin::kTemplate;
}

[[noreturn]] void FailIntegerBound() { FailBound("an integer needs more than 127 bits"); }

[[noreturn]] void FailOperands(BinaryOp op, const Value& a, const Value& b) {
  FailIfUndefined(a);
  FailIfUndefined(b);
  if (op == BinaryOp::kAdd && a.text() != nullptr) {
    Fail(fmt::format("can only concatenate str (not \"{}\") to str", TypeName(b)));
  }
  Fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", Symbol(op), TypeName(a),
                   TypeName(b)));
}

Int FloorDivide(Int a, Int b) {
  const Int quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Int IntPower(Int base, Int exponent) {
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) FailIntegerBound();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) FailIntegerBound();
  }
  return result;
}

Value IntegerOp(BinaryOp op, Int a, Int b) {
  Int result = 0;
  const auto checked = [&result](bool overflow) {
    if (overflow || result < -kIntMax) FailIntegerBound();
    return Value(result);
  };
  switch (op) {
    case BinaryOp::kAdd:
      return checked(__builtin_add_overflow(a, b, &result));
    case BinaryOp::kSubtract:
      return checked(__builtin_sub_overflow(a, b, &result));
    case BinaryOp::kMultiply:
      return checked(__builtin_mul_overflow(a, b, &result));
    case BinaryOp::kDivide:
      if (b == 0) Fail("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDivide:
      if (b == 0) Fail("integer division or modulo by zero");
      return Value(FloorDivide(a, b));
    case BinaryOp::kModulo:
      if (b == 0) Fail("integer division or modulo by zero");
      return Value(static_cast<Int>(a - FloorDivide(a, b) * b));
    case BinaryOp::kPower:
      if (b >= 0) {
        result = IntPower(a, b);
        return checked(false);
      }
      if (a == 0) Fail("0.0 cannot be raised to a negative power");
      return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  return {};
}

// Python's float modulo: the sign of the divisor.
double FloatModulo(double a, double b) {
  const double m = std::fmod(a, b);
  if (m == 0) return std::copysign(0.0, b);
  return (m < 0) != (b < 0) ? m + b : m;
}

double FloatPower(double a, double b) {
  if (a == 0 && b < 0) Fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(b) && std::nearbyint(b) != b) {
    Fail("a negative number to a fractional power is complex");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) Fail("result too large");
  return result;
}

Value FloatOp(BinaryOp op, double a, double b) {
  const bool divides =
      op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && b == 0) Fail("float division by zero");
  switch (op) {
    case BinaryOp::kAdd:
      return Value(a + b);
    case BinaryOp::kSubtract:
      return Value(a - b);
    case BinaryOp::kMultiply:
      return Value(a * b);
    case BinaryOp::kDivide:
      return Value(a / b);
    case BinaryOp::kFloorDivide: {
      const double quotient = (a - FloatModulo(a, b)) / b;
      return Value(quotient == 0 ? std::copysign(0.0, a / b) : std::round(quotient));
    }
    case BinaryOp::kModulo:
      return Value(FloatModulo(a, b));
    case BinaryOp::kPower:
      return Value(FloatPower(a, b));
  }
  return {};
}

Value AddTexts(Runtime& rt, const Text& a, const Text& b) {
  const bool markup_a = a.markup() == Markup::kYes;
  const bool markup_b = b.markup() == Markup::kYes;
  if (!markup_a && !markup_b) return Value(Join(rt, a, b));
  TextBuilder out(&rt);
  out.Append(markup_a ? a : *EscapeHtml(rt, a));
  out.Append(markup_b ? b : *EscapeHtml(rt, b));
  return Value(out.Finish(Markup::kYes));
}

std::optional<Value> Add(Runtime& rt, const Value& a, const Value& b) {
  if (a.text() != nullptr && b.text() != nullptr) return AddTexts(rt, *a.text(), *b.text());
  const Sequence* p = a.sequence();
  const Sequence* q = b.sequence();
  if (p == nullptr || q == nullptr) return std::nullopt;
  const bool lists = p->kind() == SequenceKind::kList && q->kind() == SequenceKind::kList;
  if (!lists && !(p->is_tuple() && q->is_tuple())) return std::nullopt;
  rt.Step(p->items().size() + q->items().size());
  std::vector<Value> items = p->items();
  items.insert(items.end(), q->items().begin(), q->items().end());
  return MakeSequence(rt, lists ? SequenceKind::kList : SequenceKind::kTuple, std::move(items));
}

size_t RepeatCount(Int times, size_t size) {
  if (times <= 0 || size == 0) return 0;
  constexpr Int kFar = std::numeric_limits<int64_t>::max();
  if (times > kFar / static_cast<Int>(size)) {
    FailBound(fmt::format("repeating {} times needs more bytes than there are",
                          static_cast<double>(times)));
  }
  return static_cast<size_t>(times);
}

Value RepeatText(Runtime& rt, const Text& text, Int times) {
  const size_t count = RepeatCount(times, text.view().size());
  const size_t total = count * text.view().size();
  { Lease(&rt).GrowText(total); }  // refused before anything is built
  rt.Step(text.user().empty() ? count / 16 : count);
  TextBuilder out(&rt);
  for (size_t i = 0; i < count; ++i) out.Append(text);
  return Value(out.Finish(text.markup()));
}

Value RepeatSequence(Runtime& rt, const Sequence& sequence, Int times) {
  const size_t count = RepeatCount(times, sequence.items().size() * sizeof(Value));
  rt.Step(count * sequence.items().size());
  { Lease(&rt).GrowValues(count * sequence.items().size() * sizeof(Value)); }
  std::vector<Value> items;
  items.reserve(count * sequence.items().size());
  for (size_t i = 0; i < count; ++i) {
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  }
  const bool list = sequence.kind() == SequenceKind::kList;
  return MakeSequence(rt, list ? SequenceKind::kList : SequenceKind::kTuple, std::move(items));
}

std::optional<Value> Multiply(Runtime& rt, const Value& a, const Value& b) {
  const auto times = AsNumber(b);
  if (!times || times->is_float) return std::nullopt;
  if (const Text* text = a.text()) return RepeatText(rt, *text, times->integer);
  const Sequence* s = a.sequence();
  if (s == nullptr || (s->kind() != SequenceKind::kList && !s->is_tuple())) return std::nullopt;
  return RepeatSequence(rt, *s, times->integer);
}

}  // namespace

Value Apply(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  rt.Step();
  const auto x = AsNumber(a);
  const auto y = AsNumber(b);
  if (x && y) {
    Value result = x->is_float || y->is_float ? FloatOp(op, x->real, y->real)
                                              : IntegerOp(op, x->integer, y->integer);
    return std::move(result).From(Either(a, b));
  }
  std::optional<Value> result;
  if (op == BinaryOp::kAdd) result = Add(rt, a, b);
  if (op == BinaryOp::kMultiply) {
    result = Multiply(rt, a, b);
    if (!result) result = Multiply(rt, b, a);
  }
  if (op == BinaryOp::kModulo && a.text() != nullptr) {
    result = Value(FormatPercent(rt, *a.text(), b));
  }
  if (!result) FailOperands(op, a, b);
  return *std::move(result);
}

Value Negate(const Value& value) {
  FailIfUndefined(value);
  const auto n = AsNumber(value);
  if (!n) Fail(fmt::format("bad operand type for unary -: '{}'", TypeName(value)));
  return (n->is_float ? Value(-n->real) : Value(static_cast<Int>(-n->integer)))
      .From(value.origin());
}

Value Plus(const Value& value) {
  FailIfUndefined(value);
  const auto n = AsNumber(value);
  if (!n) Fail(fmt::format("bad operand type for unary +: '{}'", TypeName(value)));
  return (n->is_float ? Value(n->real) : Value(n->integer)).From(value.origin());
}

}  // namespace cleave::jinja

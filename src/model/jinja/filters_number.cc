// Filters of numbers, and of any value.
#include <fmt/core.h>

#include <array>
#include <cmath>

#include "model/jinja/access.h"
#include "model/jinja/arguments.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/compare.h"
#include "model/jinja/failure.h"
#include "model/jinja/filters.h"
#include "model/jinja/numbers.h"

namespace cleave::jinja {
namespace {

std::optional<Int> IntegerOf(const Value& value) {
  if (const Int* i = value.As<Int>()) return *i;
  if (const bool* b = value.As<bool>()) return static_cast<Int>(*b ? 1 : 0);
  return std::nullopt;
}

Value Abs(Runtime& /*rt*/, const Value& input, CallArguments call) {
  const Arguments a("abs", std::move(call), {});
  FailIfUndefined(input);
  if (const double* d = input.As<double>()) return Value(std::fabs(*d)).From(input.origin());
  const auto i = IntegerOf(input);
  if (!i) Fail(fmt::format("bad operand type for abs(): '{}'", TypeName(input)));
  return Value(*i < 0 ? -*i : *i).From(input.origin());
}

// Python's int(float): refuses infinities, has no answer for nan.
std::optional<Int> Whole(double value) {
  if (std::isnan(value)) return std::nullopt;
  const auto whole = TruncateToInt(value);
  if (!whole) Fail("cannot convert this float to an integer");
  return whole;
}

Value ToInt(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("int", std::move(call), {"default", "base"});
  FailIfUndefined(input);
  const Int base = a.IntegerOr(1, 10);
  if (base != 0 && (base < 2 || base > 36)) return a.Or(0, Value::Count(0));
  std::optional<Int> result = IntegerOf(input);
  if (const double* d = input.As<double>()) result = Whole(*d);
  if (const Text* text = input.text()) {
    rt.PassOver(text->view().size());
    result = ParseInt(text->view(), static_cast<unsigned>(base));
    const auto real = result ? std::nullopt : ParseFloat(text->view());
    if (real) result = Whole(*real);
  }
  if (!result) return a.Or(0, Value::Count(0));
  const Text* text = input.text();
  return Value(*result).From(text != nullptr ? text->origin() : input.origin());
}

Value ToFloat(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("float", std::move(call), {"default"});
  FailIfUndefined(input);
  std::optional<double> result;
  Origin origin = input.origin();
  if (const double* d = input.As<double>()) result = *d;
  if (const auto i = IntegerOf(input)) result = static_cast<double>(*i);
  if (const Text* text = input.text()) {
    rt.PassOver(text->view().size());
    result = ParseFloat(text->view());
    origin = text->origin();
  }
  if (!result) return a.Or(0, Value(0.0));
  return Value(*result).From(origin);
}

// Python's round(): halves to even, decided on the exact binary value.
double RoundTo(double value, Int precision) {
  constexpr Int kMostDigits = 323;  // below the smallest double's last digit nothing changes
  if (!std::isfinite(value) || precision > kMostDigits) return value;
  if (precision < -308) return std::copysign(0.0, value);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  return std::strtod(FloatFixed(value, static_cast<int>(precision)).c_str(), nullptr);
}

// Integers to tens, hundreds, …: halves to even.
Int RoundInteger(Int value, Int precision) {
  if (precision >= 0) return value;
  if (precision < -37) return 0;
  Int unit = 1;
  for (Int i = precision; i < 0; ++i) unit *= 10;
  const Int magnitude = value < 0 ? -value : value;
  Int quotient = magnitude / unit;
  const Int twice = (magnitude % unit) * 2;
  if (twice > unit || (twice == unit && quotient % 2 != 0)) ++quotient;
  Int rounded = 0;
  if (__builtin_mul_overflow(quotient, unit, &rounded)) {
    FailBound("an integer needs more than 127 bits");
  }
  return value < 0 ? -rounded : rounded;
}

Value Round(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("round", std::move(call), {"precision", "method"});
  FailIfUndefined(input);
  const Text* given = a.TextOrNull(1);
  const std::string_view method = given == nullptr ? "common" : given->view();
  const bool up = method == "ceil";
  if (!up && method != "common" && method != "floor") Fail("method must be common, ceil or floor");
  const Int precision = a.IntegerOr(0, 0);
  const auto integer = IntegerOf(input);
  const double* real = input.As<double>();
  if (!integer && real == nullptr) {
    Fail(fmt::format("type '{}' cannot be rounded", TypeName(input)));
  }
  if (method == "common") {
    const Value rounded =
        integer ? Value(RoundInteger(*integer, precision)) : Value(RoundTo(*real, precision));
    return Value(rounded).From(input.origin());
  }
  const Value unit = Apply(rt, BinaryOp::kPower, Value::Count(10), Value(precision));
  const Value scaled = Apply(rt, BinaryOp::kMultiply, input, unit);
  const double* d = scaled.As<double>();
  const Value whole =
      d == nullptr ? scaled : Value(Whole(up ? std::ceil(*d) : std::floor(*d)).value_or(0));
  return Apply(rt, BinaryOp::kDivide, whole, unit);
}

Value Default(Runtime& /*rt*/, const Value& input, CallArguments call) {
  const Arguments a("default", std::move(call), {"default_value", "boolean"});
  const bool replace = input.IsUndefined() || (a.TruthOr(1, false) && !Truthy(input));
  if (!replace) return input;
  if (const Value* given = a.Find(0)) return *given;
  return Value(MakeText(nullptr, "", Origin::kTemplate));
}

Value Attr(Runtime& rt, const Value& input, CallArguments call) {
  const Arguments a("attr", std::move(call), {"name"});
  const TextPtr& name = a.RequiredText(0);
  FailIfUndefined(input);
  if (auto attribute = FindAttribute(rt, input, name->view())) return *std::move(attribute);
  return Value::UndefinedBecause(fmt::format("'{} object' has no attribute '{}'", TypeName(input),
                                             name->view().substr(0, 200)));
}

constexpr std::array<Filter, 7> kFilters = {{{"abs", Abs},
                                             {"attr", Attr},
                                             {"d", Default},
                                             {"default", Default},
                                             {"float", ToFloat},
                                             {"int", ToInt},
                                             {"round", Round}}};

}  // namespace

std::span<const Filter> NumberFilters() { return kFilters; }

}  // namespace cleave::jinja

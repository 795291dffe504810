#pragma once
// Python's operators + - * / // % ** and their meaning on strings, lists and numbers.
// Fail where Python raises. One thread, the render's.

#include <cstdint>

#include "model/jinja/value.h"

namespace cleave::jinja {

enum class BinaryOp : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};

Value Apply(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Value Negate(const Value& value);
// Unary plus: numbers only.
Value Plus(const Value& value);

}  // namespace cleave::jinja

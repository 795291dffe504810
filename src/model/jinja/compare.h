#pragma once
// Python's comparisons. Fail where Python raises TypeError. One thread, the render's.

#include <cstdint>

#include "model/jinja/value.h"

namespace cleave::jinja {

enum class CompareOp : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

bool Equals(Runtime& rt, const Value& a, const Value& b);
bool Compare(Runtime& rt, CompareOp op, const Value& a, const Value& b);
bool Contains(Runtime& rt, const Value& container, const Value& item);
// Python's `is`: the same object, or the same small constant.
bool SameAs(const Value& a, const Value& b);

}  // namespace cleave::jinja

#include "model/jinja/tests.h"

#include <algorithm>
#include <array>

#include "model/jinja/access.h"
#include "model/jinja/arguments.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/compare.h"
#include "model/jinja/filters.h"
#include "model/jinja/methods.h"
#include "model/jinja/print.h"

namespace cleave::jinja {
namespace {

using Predicate = bool (*)(const Value&);

// A test without arguments.
template <Predicate kIs>
bool Plain(Runtime& /*rt*/, const Value& subject, CallArguments call) {
  const Arguments a("test", std::move(call), {});
  return kIs(subject);
}

template <CompareOp kOp>
bool Compared(Runtime& rt, const Value& subject, CallArguments call) {
  const Arguments a("comparison", std::move(call), {""});
  return Compare(rt, kOp, subject, a.Required(0));
}

bool IsDefined(const Value& v) { return !v.IsUndefined(); }
bool IsUndefinedValue(const Value& v) { return v.IsUndefined(); }
bool IsNoneValue(const Value& v) { return v.IsNone(); }
bool IsBoolean(const Value& v) { return v.As<bool>() != nullptr; }
bool IsTrue(const Value& v) { return IsBoolean(v) && *v.As<bool>(); }
bool IsFalse(const Value& v) { return IsBoolean(v) && !*v.As<bool>(); }
bool IsInteger(const Value& v) { return v.As<Int>() != nullptr; }
bool IsFloat(const Value& v) { return v.As<double>() != nullptr; }
bool IsNumber(const Value& v) { return IsInteger(v) || IsFloat(v) || IsBoolean(v); }
bool IsString(const Value& v) { return v.text() != nullptr; }
bool IsMapping(const Value& v) { return v.dict() != nullptr; }
bool IsEscaped(const Value& v) { return IsString(v) && v.text()->markup() == Markup::kYes; }

bool IsSequence(const Value& v) {
  const Sequence* sequence = v.sequence();
  return v.IsUndefined() || IsString(v) || IsMapping(v) ||
         (sequence != nullptr && sequence->subscriptable());
}

bool IsCallable(const Value& v) {
  return v.IsUndefined() || (v.object() != nullptr && v.object()->callable());
}

template <bool kUpper>
bool HasCase(Runtime& rt, const Value& subject, CallArguments call) {
  const Method* method = FindTextMethod(kUpper ? "isupper" : "islower");
  return Truthy(method->function(rt, Value(Str(rt, subject)), std::move(call)));
}

bool Divides(Runtime& rt, const Value& subject, const Value& by, Int remainder) {
  const Value left = Apply(rt, BinaryOp::kModulo, subject, by);
  return Equals(rt, left, Value(remainder));
}

bool IsEven(Runtime& rt, const Value& subject, CallArguments call) {
  const Arguments a("even", std::move(call), {});
  return Divides(rt, subject, Value::Count(2), 0);
}
bool IsOdd(Runtime& rt, const Value& subject, CallArguments call) {
  const Arguments a("odd", std::move(call), {});
  return Divides(rt, subject, Value::Count(2), 1);
}
bool IsDivisibleBy(Runtime& rt, const Value& subject, CallArguments call) {
  const Arguments a("divisibleby", std::move(call), {"num"});
  return Divides(rt, subject, a.Required(0), 0);
}

bool IsSameAs(Runtime& /*rt*/, const Value& subject, CallArguments call) {
  const Arguments a("sameas", std::move(call), {"other"});
  return SameAs(subject, a.Required(0));
}

bool IsIn(Runtime& rt, const Value& subject, CallArguments call) {
  const Arguments a("in", std::move(call), {"seq"});
  return Contains(rt, a.Required(0), subject);
}

bool IsFilterName(Runtime& /*rt*/, const Value& subject, CallArguments call) {
  const Arguments a("filter", std::move(call), {});
  return IsString(subject) && FindFilter(subject.text()->view()) != nullptr;
}
bool IsTestName(Runtime& /*rt*/, const Value& subject, CallArguments call) {
  const Arguments a("test", std::move(call), {});
  return IsString(subject) && FindTest(subject.text()->view()) != nullptr;
}

constexpr std::array<Test, 39> kTests = {{{"!=", Compared<CompareOp::kNotEqual>},
                                          {"<", Compared<CompareOp::kLess>},
                                          {"<=", Compared<CompareOp::kLessEqual>},
                                          {"==", Compared<CompareOp::kEqual>},
                                          {">", Compared<CompareOp::kGreater>},
                                          {">=", Compared<CompareOp::kGreaterEqual>},
                                          {"boolean", Plain<IsBoolean>},
                                          {"callable", Plain<IsCallable>},
                                          {"defined", Plain<IsDefined>},
                                          {"divisibleby", IsDivisibleBy},
                                          {"eq", Compared<CompareOp::kEqual>},
                                          {"equalto", Compared<CompareOp::kEqual>},
                                          {"escaped", Plain<IsEscaped>},
                                          {"even", IsEven},
                                          {"false", Plain<IsFalse>},
                                          {"filter", IsFilterName},
                                          {"float", Plain<IsFloat>},
                                          {"ge", Compared<CompareOp::kGreaterEqual>},
                                          {"greaterthan", Compared<CompareOp::kGreater>},
                                          {"gt", Compared<CompareOp::kGreater>},
                                          {"in", IsIn},
                                          {"integer", Plain<IsInteger>},
                                          {"iterable", Plain<IsIterable>},
                                          {"le", Compared<CompareOp::kLessEqual>},
                                          {"lessthan", Compared<CompareOp::kLess>},
                                          {"lower", HasCase<false>},
                                          {"lt", Compared<CompareOp::kLess>},
                                          {"mapping", Plain<IsMapping>},
                                          {"ne", Compared<CompareOp::kNotEqual>},
                                          {"none", Plain<IsNoneValue>},
                                          {"number", Plain<IsNumber>},
                                          {"odd", IsOdd},
                                          {"sameas", IsSameAs},
                                          {"sequence", Plain<IsSequence>},
                                          {"string", Plain<IsString>},
                                          {"test", IsTestName},
                                          {"true", Plain<IsTrue>},
                                          {"undefined", Plain<IsUndefinedValue>},
                                          {"upper", HasCase<true>}}};

}  // namespace

const Test* FindTest(std::string_view name) {
  const auto at = std::find_if(kTests.begin(), kTests.end(),
                               [&](const Test& test) { return test.name == name; });
  return at == kTests.end() ? nullptr : &*at;
}

}  // namespace cleave::jinja

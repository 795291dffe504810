#include <fmt/core.h>

#include "model/jinja/access.h"
#include "model/jinja/failure.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/print.h"

namespace cleave::jinja {

Value Interpreter::Evaluate(const Expression& node, const ScopePtr& scope) {
  rt_.Step();
  if (node.kind == Expression::Kind::kLiteral) return node.literal;
  if (node.kind == Expression::Kind::kName) return EvaluateName(node, scope);
  const Nesting nesting(rt_);
  return EvaluateNode(node, scope);
}

Value Interpreter::EvaluateNode(const Expression& node, const ScopePtr& scope) {
  switch (node.kind) {
    case Expression::Kind::kLiteral:
      return node.literal;
    case Expression::Kind::kName:
      return EvaluateName(node, scope);
    case Expression::Kind::kList:
      return MakeSequence(rt_, SequenceKind::kList, EvaluateAll(node.items, scope));
    case Expression::Kind::kTuple:
      return MakeSequence(rt_, SequenceKind::kTuple, EvaluateAll(node.items, scope));
    case Expression::Kind::kDict:
      return EvaluateDict(node, scope);
    case Expression::Kind::kNegate:
      return Negate(Evaluate(*node.items[0], scope));
    case Expression::Kind::kPlus:
      return Plus(Evaluate(*node.items[0], scope));
    case Expression::Kind::kNot:
      return Value(!Truthy(Evaluate(*node.items[0], scope)));
    case Expression::Kind::kBinary:
      return EvaluateBinary(node, scope);
    case Expression::Kind::kCompare:
      return EvaluateCompare(node, scope);
    case Expression::Kind::kAnd:
    case Expression::Kind::kOr:
      return EvaluateLogic(node, scope);
    case Expression::Kind::kConcat:
      return EvaluateConcat(node, scope);
    case Expression::Kind::kConditional:
      return EvaluateConditional(node, scope);
    case Expression::Kind::kChain:
      return EvaluateChain(node, scope);
  }
  return {};
}

Value Interpreter::EvaluateName(const Expression& node, const ScopePtr& scope) const {
  if (const Value* value = scope->Find(node.name)) return *value;
  return Value::UndefinedBecause(fmt::format("'{}' is undefined", node.name));
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExpressionPtr>& items,
                                            const ScopePtr& scope) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const auto& item : items) values.push_back(Evaluate(*item, scope));
  return values;
}

Value Interpreter::EvaluateDict(const Expression& node, const ScopePtr& scope) {
  auto dict = std::make_shared<Dict>(rt_);
  for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
    Value key = Evaluate(*node.items[i], scope);
    dict->Set(std::move(key), Evaluate(*node.items[i + 1], scope));
  }
  return Value(DictPtr(std::move(dict)));
}

Value Interpreter::EvaluateBinary(const Expression& node, const ScopePtr& scope) {
  Value left = Evaluate(*node.items[0], scope);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    const Value right = Evaluate(*node.items[i + 1], scope);
    left = Apply(rt_, node.operators[i], left, right);
  }
  return left;
}

Value Interpreter::EvaluateCompare(const Expression& node, const ScopePtr& scope) {
  Value left = Evaluate(*node.items[0], scope);
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    Value right = Evaluate(*node.items[i + 1], scope);
    if (!Compare(rt_, node.comparisons[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

// The first operand that decides, itself.
Value Interpreter::EvaluateLogic(const Expression& node, const ScopePtr& scope) {
  const bool decides = node.kind == Expression::Kind::kOr;
  Value value;
  for (const auto& item : node.items) {
    value = Evaluate(*item, scope);
    if (Truthy(value) == decides) break;
  }
  return value;
}

Value Interpreter::EvaluateConcat(const Expression& node, const ScopePtr& scope) {
  TextBuilder out(&rt_);
  for (const Value& value : EvaluateAll(node.items, scope)) AppendStr(rt_, out, value);
  return Value(out.Finish());
}

Value Interpreter::EvaluateConditional(const Expression& node, const ScopePtr& scope) {
  if (Truthy(Evaluate(*node.items[1], scope))) return Evaluate(*node.items[0], scope);
  if (node.items[2] != nullptr) return Evaluate(*node.items[2], scope);
  return Value::UndefinedBecause(
      fmt::format("the inline if-expression on line {} evaluated to false and no else section was "
                  "defined",
                  node.line));
}

Value Interpreter::EvaluateChain(const Expression& node, const ScopePtr& scope) {
  Value value = Evaluate(*node.items[0], scope);
  for (const Link& link : node.links) value = Follow(link, value, scope);
  return value;
}

Value Interpreter::Follow(const Link& link, const Value& value, const ScopePtr& scope) {
  rt_.Step();
  switch (link.kind) {
    case Link::Kind::kAttribute:
      line_ = link.line;
      return GetAttribute(rt_, value, link.name);
    case Link::Kind::kItem: {
      const Value key = Evaluate(*link.parts[0], scope);
      line_ = link.line;
      return GetItem(rt_, value, key);
    }
    case Link::Kind::kSlice:
      return FollowSlice(link, value, scope);
    case Link::Kind::kCall: {
      CallArguments arguments = EvaluateArguments(link.call, scope);
      line_ = link.line;
      return CallValue(value, std::move(arguments));
    }
    case Link::Kind::kFilter: {
      CallArguments arguments = EvaluateArguments(link.call, scope);
      line_ = link.line;
      if (link.filter == nullptr) Fail(FilterProblem(link.name));
      return link.filter->function(rt_, value, std::move(arguments));
    }
    case Link::Kind::kTest:
    case Link::Kind::kNotTest: {
      CallArguments arguments = EvaluateArguments(link.call, scope);
      line_ = link.line;
      if (link.test == nullptr) Fail(fmt::format("no test named '{}'", link.name));
      const bool holds = link.test->function(rt_, value, std::move(arguments));
      return Value(holds == (link.kind == Link::Kind::kTest));
    }
  }
  return {};
}

Value Interpreter::FollowSlice(const Link& link, const Value& value, const ScopePtr& scope) {
  const auto part = [&](size_t i) -> Value {
    if (link.parts[i] == nullptr) return None{};
    return Evaluate(*link.parts[i], scope);
  };
  const Value start = part(0);
  const Value stop = part(1);
  const Value step = part(2);
  line_ = link.line;
  return GetSlice(rt_, value, start, stop, step);
}

CallArguments Interpreter::EvaluateArguments(const CallSyntax& call, const ScopePtr& scope) {
  CallArguments arguments;
  arguments.positional = EvaluateAll(call.positional, scope);
  for (const auto& [name, value] : call.named) {
    arguments.named.emplace_back(name, Evaluate(*value, scope));
  }
  if (call.star != nullptr) {
    for (Value& item : Collect(rt_, Evaluate(*call.star, scope))) {
      arguments.positional.push_back(std::move(item));
    }
  }
  if (call.double_star == nullptr) return arguments;
  const Value more = Evaluate(*call.double_star, scope);
  if (more.dict() == nullptr) Fail("argument after ** must be a mapping");
  for (const auto& [key, value] : more.dict()->entries()) {
    if (key.text() == nullptr) Fail("keywords must be strings");
    arguments.named.emplace_back(std::string(key.text()->view()), value);
  }
  return arguments;
}

Value Interpreter::CallValue(const Value& callee, CallArguments arguments) {
  FailIfUndefined(callee);
  const ObjectPtr* object = callee.As<ObjectPtr>();
  if (object == nullptr || !(*object)->callable()) {
    Fail(fmt::format("'{}' object is not callable", TypeName(callee)));
  }
  // Binding compares every name given with every parameter.
  rt_.Step(arguments.positional.size() + arguments.named.size() * arguments.named.size());
  const Nesting nesting(rt_);
  return (*object)->Call(rt_, std::move(arguments));
}

Value Interpreter::ApplyFilters(const std::vector<Link>& filters, Value value,
                                const ScopePtr& scope) {
  for (const Link& link : filters) value = Follow(link, value, scope);
  return value;
}

}  // namespace cleave::jinja

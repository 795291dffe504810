#include <fmt/core.h>

#include "model/jinja/access.h"
#include "model/jinja/failure.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/print.h"

namespace cleave::jinja {

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
    const auto found = scope->values_.find(name);
    if (found != scope->values_.end()) return &found->second;
  }
  return nullptr;
}

void Scope::Drop() {
  values_.clear();
  parent_.reset();
}

std::string Namespace::Repr(Runtime& rt) {
  auto dict = std::make_shared<Dict>(rt);
  for (const auto& [name, value] : values_) dict->Set(name, value);
  return fmt::format("<Namespace {}>", jinja::Repr(rt, Value(DictPtr(std::move(dict))))->view());
}

std::optional<Value> Namespace::Attribute(Runtime& /*rt*/, std::string_view name) {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

void Namespace::Set(std::string_view name, Value value) {
  values_[std::string(name)] = std::move(value);
}

Interpreter::Interpreter(Runtime& rt, ScopePtr globals)
    : rt_(rt), root_(std::make_shared<Scope>(std::move(globals))) {}

TextPtr Interpreter::Run(const Body& body) {
  TextBuilder out(&rt_);
  Execute(body, root_, out);
  return out.Finish();
}

Flow Interpreter::Execute(const Body& body, const ScopePtr& scope, TextBuilder& out) {
  const Nesting nesting(rt_);
  for (const Statement& statement : body) {
    const Flow flow = ExecuteStatement(statement, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Flow Interpreter::ExecuteStatement(const Statement& statement, const ScopePtr& scope,
                                   TextBuilder& out) {
  rt_.Step();
  line_ = statement.line;
  return std::visit([&](const auto& node) { return Do(node, scope, out); }, statement.node);
}

Flow Interpreter::Do(const TextStatement& node, const ScopePtr& /*scope*/, TextBuilder& out) {
  out.Append(*node.text);
  return Flow::kNext;
}

Flow Interpreter::Do(const PrintStatement& node, const ScopePtr& scope, TextBuilder& out) {
  AppendStr(rt_, out, Evaluate(*node.value, scope));
  return Flow::kNext;
}

Flow Interpreter::Do(const IfStatement& node, const ScopePtr& scope, TextBuilder& out) {
  for (size_t i = 0; i < node.conditions.size(); ++i) {
    if (Truthy(Evaluate(*node.conditions[i], scope))) return Execute(node.bodies[i], scope, out);
  }
  return Execute(node.bodies.back(), scope, out);
}

Flow Interpreter::Do(const ForStatement& node, const ScopePtr& scope, TextBuilder& out) {
  const Value iterable = Evaluate(*node.iterable, scope);
  return RunLoop(node, iterable, 0, scope, out);
}

Flow Interpreter::Do(const SetStatement& node, const ScopePtr& scope, TextBuilder& /*out*/) {
  Assign(node.target, Evaluate(*node.value, scope), scope);
  return Flow::kNext;
}

Flow Interpreter::Do(const SetBlockStatement& node, const ScopePtr& scope, TextBuilder& /*out*/) {
  TextBuilder captured(&rt_);
  const auto inner = std::make_shared<Scope>(scope);
  const Flow flow = Execute(node.body, inner, captured);
  if (flow != Flow::kNext) return flow;
  Assign(node.target, ApplyFilters(node.filters, Value(captured.Finish()), scope), scope);
  return Flow::kNext;
}

Flow Interpreter::Do(const MacroStatement& node, const ScopePtr& scope, TextBuilder& /*out*/) {
  scope->Set(node.macro.name, Value(MakeMacro(*this, node.macro, scope)));
  rt_.Keep(scope);  // the scope holds the macro, which holds the scope
  return Flow::kNext;
}

Flow Interpreter::Do(const CallBlockStatement& node, const ScopePtr& scope, TextBuilder& out) {
  const Nesting nesting(rt_);
  const std::vector<Link>& links = node.call->links;
  Value callee = Evaluate(*node.call->items[0], scope);
  for (size_t i = 0; i + 1 < links.size(); ++i) callee = Follow(links[i], callee, scope);
  CallArguments arguments = EvaluateArguments(links.back().call, scope);
  rt_.Keep(scope);  // the caller holds the scope, which may come to hold the caller
  arguments.named.emplace_back("caller", Value(MakeMacro(*this, node.caller, scope)));
  line_ = links.back().line;
  AppendStr(rt_, out, CallValue(callee, std::move(arguments)));
  return Flow::kNext;
}

Flow Interpreter::Do(const FilterBlockStatement& node, const ScopePtr& scope, TextBuilder& out) {
  TextBuilder captured(&rt_);
  const auto inner = std::make_shared<Scope>(scope);
  const Flow flow = Execute(node.body, inner, captured);
  if (flow != Flow::kNext) return flow;
  AppendStr(rt_, out, ApplyFilters(node.filters, Value(captured.Finish()), scope));
  return Flow::kNext;
}

Flow Interpreter::Do(const WithStatement& node, const ScopePtr& scope, TextBuilder& out) {
  const auto inner = std::make_shared<Scope>(scope);
  for (size_t i = 0; i < node.targets.size(); ++i) {
    Assign(node.targets[i], Evaluate(*node.values[i], scope), inner);
  }
  return Execute(node.body, inner, out);
}

Flow Interpreter::Do(const BreakStatement& /*node*/, const ScopePtr& /*scope*/,
                     TextBuilder& /*out*/) {
  return Flow::kBreak;
}

Flow Interpreter::Do(const ContinueStatement& /*node*/, const ScopePtr& /*scope*/,
                     TextBuilder& /*out*/) {
  return Flow::kContinue;
}

Flow Interpreter::Do(const ScopeStatement& node, const ScopePtr& scope, TextBuilder& out) {
  return Execute(node.body, std::make_shared<Scope>(node.sees_locals ? scope : root_), out);
}

void Interpreter::Assign(const Target& target, Value value, const ScopePtr& scope) {
  rt_.Step();
  if (target.kind == Target::Kind::kName) return scope->Set(target.name, std::move(value));
  if (target.kind == Target::Kind::kAttribute) {
    const Value* holder = scope->Find(target.name);
    auto* names = holder == nullptr ? nullptr : dynamic_cast<Namespace*>(holder->object());
    if (names == nullptr) Fail("cannot assign attribute on non-namespace object");
    return names->Set(target.attribute, std::move(value));
  }
  FailIfUndefined(value);
  std::vector<Value> items = Collect(rt_, value);
  if (items.size() != target.items.size()) {
    Fail(fmt::format("{} values to unpack (expected {}, got {})",
                     items.size() < target.items.size() ? "not enough" : "too many",
                     target.items.size(), items.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(target.items[i], std::move(items[i]), scope);
}

}  // namespace cleave::jinja

#pragma once
// Interpreter: walks the tree of a compiled template. One per render; one thread.
// Fails (Failure); line() then says where it was.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "model/jinja/ast.h"
#include "model/jinja/runtime.h"
#include "model/jinja/text.h"
#include "model/jinja/value.h"

namespace cleave::jinja {

class Scope;
// shared: a macro keeps the scope it was defined in.
using ScopePtr = std::shared_ptr<Scope>;

// Names of one body; a name that is not here is looked for in the parent.
class Scope : public Droppable {
 public:
  explicit Scope(ScopePtr parent) : parent_(std::move(parent)) {}

  // `name` belongs to the tree or the context, which outlive the render.
  void Set(std::string_view name, Value value) { values_[name] = std::move(value); }
  [[nodiscard]] const Value* Find(std::string_view name) const;
  void Drop() override;

 private:
  ScopePtr parent_;
  std::map<std::string_view, Value> values_;
};

// The one value that templates can change: {% set ns.name = value %}.
class Namespace : public Object {
 public:
  [[nodiscard]] std::string_view type_name() const override { return "Namespace"; }
  [[nodiscard]] std::string Repr(Runtime& rt) override;
  [[nodiscard]] std::optional<Value> Attribute(Runtime& rt, std::string_view name) override;
  void Set(std::string_view name, Value value);
  void Drop() override { values_.clear(); }

 private:
  std::map<std::string, Value, std::less<>> values_;
};

enum class Flow { kNext, kBreak, kContinue };

class Interpreter {
 public:
  // `globals` is where the template's names end; its own top level gets a scope above it.
  Interpreter(Runtime& rt, ScopePtr globals);

  TextPtr Run(const Body& body);
  [[nodiscard]] uint32_t line() const { return line_; }
  [[nodiscard]] Runtime& runtime() { return rt_; }

  Value Evaluate(const Expression& node, const ScopePtr& scope);
  Flow Execute(const Body& body, const ScopePtr& scope, TextBuilder& out);
  void Assign(const Target& target, Value value, const ScopePtr& scope);
  // One run of a loop over `iterable`; depth counts recursive calls of it.
  Flow RunLoop(const ForStatement& node, const Value& iterable, uint32_t depth,
               const ScopePtr& scope, TextBuilder& out);
  Value CallValue(const Value& callee, CallArguments arguments);

 private:
  Value EvaluateNode(const Expression& node, const ScopePtr& scope);
  Value EvaluateName(const Expression& node, const ScopePtr& scope) const;
  std::vector<Value> EvaluateAll(const std::vector<ExpressionPtr>& items, const ScopePtr& scope);
  Value EvaluateDict(const Expression& node, const ScopePtr& scope);
  Value EvaluateBinary(const Expression& node, const ScopePtr& scope);
  Value EvaluateCompare(const Expression& node, const ScopePtr& scope);
  Value EvaluateLogic(const Expression& node, const ScopePtr& scope);
  Value EvaluateConcat(const Expression& node, const ScopePtr& scope);
  Value EvaluateConditional(const Expression& node, const ScopePtr& scope);
  Value EvaluateChain(const Expression& node, const ScopePtr& scope);
  Value Follow(const Link& link, const Value& value, const ScopePtr& scope);
  Value FollowSlice(const Link& link, const Value& value, const ScopePtr& scope);
  CallArguments EvaluateArguments(const CallSyntax& call, const ScopePtr& scope);
  Value ApplyFilters(const std::vector<Link>& filters, Value value, const ScopePtr& scope);

  Flow ExecuteStatement(const Statement& statement, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const TextStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const PrintStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const IfStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const ForStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const SetStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const SetBlockStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const MacroStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const CallBlockStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const FilterBlockStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const WithStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const BreakStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const ContinueStatement& node, const ScopePtr& scope, TextBuilder& out);
  Flow Do(const ScopeStatement& node, const ScopePtr& scope, TextBuilder& out);

  Runtime& rt_;
  ScopePtr root_;  // the template's top level
  uint32_t line_ = 1;
};

// A macro, or the caller of a call block: `definition` run in a scope below `scope`.
ObjectPtr MakeMacro(Interpreter& interpreter, const MacroDefinition& definition, ScopePtr scope);
// range, namespace, raise_exception and the like, below everything else.
ScopePtr BuiltinScope(Runtime& rt);
// Python's dict(mapping_or_pairs, name=value, …).
DictPtr DictFromArguments(Runtime& rt, std::string_view function, const CallArguments& arguments);

}  // namespace cleave::jinja

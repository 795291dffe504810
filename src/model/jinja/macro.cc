// Macros and the callers of call blocks.
#include <fmt/core.h>

#include <algorithm>

#include "model/jinja/access.h"
#include "model/jinja/failure.h"
#include "model/jinja/interpreter.h"

namespace cleave::jinja {
namespace {

using NamedValues = std::vector<std::pair<std::string, Value>>;

std::optional<Value> TakeNamed(NamedValues& named, std::string_view name) {
  const auto at = std::find_if(named.begin(), named.end(),
                               [&](const auto& entry) { return entry.first == name; });
  if (at == named.end()) return std::nullopt;
  Value value = std::move(at->second);
  named.erase(at);
  return value;
}

class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const MacroDefinition& definition, ScopePtr scope)
      : interpreter_(interpreter), definition_(definition), scope_(std::move(scope)) {}

  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  std::string Repr(Runtime& /*rt*/) override {
    return fmt::format("<Macro '{}'>", definition_.name);
  }
  std::optional<Value> Attribute(Runtime& rt, std::string_view name) override {
    if (name == "name") return MakeString(rt, definition_.name);
    return std::nullopt;
  }
  void Drop() override { scope_.reset(); }

  Value Call(Runtime& rt, CallArguments call) override {
    const auto scope = std::make_shared<Scope>(scope_);
    Bind(rt, call, scope);
    TextBuilder out(&rt);
    interpreter_.Execute(definition_.body, scope, out);
    return Value(out.Finish());
  }

 private:
  void Bind(Runtime& rt, CallArguments& call, const ScopePtr& scope) {
    const auto& parameters = definition_.parameters;
    const size_t given = std::min(call.positional.size(), parameters.size());
    rt.Step(parameters.size() * (call.named.size() + 1));
    // Defaults may use the parameters before them, so all of those given are bound first.
    std::vector<size_t> missing;
    bool caller_parameter = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      caller_parameter = caller_parameter || parameters[i] == "caller";
      std::optional<Value> value;
      if (i < given) {
        value = std::move(call.positional[i]);
      } else {
        value = TakeNamed(call.named, parameters[i]);
      }
      if (!value) missing.push_back(i);
      scope->Set(parameters[i], value ? *std::move(value) : NotProvided(parameters[i]));
    }
    if (definition_.uses_caller && !caller_parameter) {
      auto caller = TakeNamed(call.named, "caller");
      scope->Set("caller",
                 caller ? *std::move(caller) : Value::UndefinedBecause("No caller defined"));
    }
    BindRest(rt, call, given, scope);
    for (const size_t i : missing) BindDefault(i, scope);
  }

  // What no parameter takes: kwargs and varargs, if the body names them.
  void BindRest(Runtime& rt, CallArguments& call, size_t given, const ScopePtr& scope) {
    if (definition_.uses_kwargs) {
      auto dict = std::make_shared<Dict>(rt);
      for (auto& [name, value] : call.named) dict->Set(name, std::move(value));
      scope->Set("kwargs", Value(DictPtr(std::move(dict))));
    } else if (!call.named.empty()) {
      Fail(fmt::format("macro '{}' takes no keyword argument '{}'", definition_.name,
                       call.named.front().first));
    }
    if (definition_.uses_varargs) {
      std::vector<Value> rest(call.positional.begin() + static_cast<std::ptrdiff_t>(given),
                              call.positional.end());
      scope->Set("varargs", MakeSequence(rt, SequenceKind::kTuple, std::move(rest)));
    } else if (call.positional.size() > given) {
      Fail(fmt::format("macro '{}' takes not more than {} argument(s)", definition_.name,
                       definition_.parameters.size()));
    }
  }

  static Value NotProvided(std::string_view name) {
    return Value::UndefinedBecause(fmt::format("parameter '{}' was not provided", name));
  }

  void BindDefault(size_t i, const ScopePtr& scope) {
    const size_t first = definition_.parameters.size() - definition_.defaults.size();
    if (i < first) return;
    scope->Set(definition_.parameters[i],
               interpreter_.Evaluate(*definition_.defaults[i - first], scope));
  }

  Interpreter& interpreter_;
  const MacroDefinition& definition_;
  ScopePtr scope_;
};

}  // namespace

ObjectPtr MakeMacro(Interpreter& interpreter, const MacroDefinition& definition, ScopePtr scope) {
  return std::make_shared<Macro>(interpreter, definition, std::move(scope));
}

}  // namespace cleave::jinja

#pragma once
// The tree of a compiled template. Built once by the parser, then const; any thread.
// Chains (a + b + …, a.b.c…, elif) are flat lists, so that only real nesting is depth.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja/arithmetic.h"
#include "model/jinja/compare.h"
#include "model/jinja/filters.h"
#include "model/jinja/tests.h"
#include "model/jinja/value.h"

namespace cleave::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallSyntax {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         // f(*star)
  ExpressionPtr double_star;  // f(**double_star)
};

// One link of a chain after a value: .name [item] [a:b:c] (call) | filter, is test.
struct Link {
  enum class Kind : uint8_t { kAttribute, kItem, kSlice, kCall, kFilter, kTest, kNotTest };
  Kind kind = Kind::kAttribute;
  uint32_t line = 0;
  std::string name;                  // attribute, filter or test
  std::vector<ExpressionPtr> parts;  // item: 1; slice: start, stop, step, null where left out
  CallSyntax call;
  const Filter* filter = nullptr;  // null: there is none of that name, which fails when reached
  const Test* test = nullptr;
};

struct Expression {
  enum class Kind : uint8_t {
    kLiteral,
    kName,
    kList,         // items
    kTuple,        // items
    kDict,         // items: key, value, key, value, …
    kNegate,       // items[0]
    kPlus,         // items[0]
    kNot,          // items[0]
    kBinary,       // items[0] operators[0] items[1] operators[1] … from the left
    kCompare,      // items[0] comparisons[0] items[1] …, each pair must hold
    kAnd,          // items
    kOr,           // items
    kConcat,       // items, joined as strings
    kConditional,  // items: value, condition, otherwise (may be null)
    kChain         // items[0], then links
  };
  Kind kind = Kind::kLiteral;
  uint32_t line = 0;
  Value literal;
  std::string name;
  std::vector<ExpressionPtr> items;
  std::vector<BinaryOp> operators;
  std::vector<CompareOp> comparisons;
  std::vector<Link> links;
};

// What a for or set assigns to.
struct Target {
  enum class Kind : uint8_t { kName, kTuple, kAttribute };
  Kind kind = Kind::kName;
  std::string name;
  std::string attribute;  // kAttribute: namespace name.attribute
  std::vector<Target> items;
};

struct Statement;
using Body = std::vector<Statement>;

struct TextStatement {
  TextPtr text;
};
struct PrintStatement {
  ExpressionPtr value;
};
struct IfStatement {
  std::vector<ExpressionPtr> conditions;  // if, elif, elif, …
  std::vector<Body> bodies;               // one more than conditions: the last is else
};
struct ForStatement {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // for … if condition; may be null
  Body body;
  Body otherwise;
  bool recursive = false;
};
struct SetStatement {
  Target target;
  ExpressionPtr value;
};
struct SetBlockStatement {
  Target target;
  std::vector<Link> filters;
  Body body;
};
struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
  bool uses_caller = false;  // the body names caller, kwargs, varargs
  bool uses_kwargs = false;
  bool uses_varargs = false;
};
struct MacroStatement {
  MacroDefinition macro;
};
struct CallBlockStatement {
  MacroDefinition caller;
  ExpressionPtr call;  // a chain that ends in a call
};
struct FilterBlockStatement {
  std::vector<Link> filters;
  Body body;
};
struct WithStatement {
  std::vector<Target> targets;
  std::vector<ExpressionPtr> values;
  Body body;
};
struct BreakStatement {};
struct ContinueStatement {};
// A body with names of its own: {% generation %}, and {% block %}, which sees only global names
// unless it is scoped.
struct ScopeStatement {
  Body body;
  bool sees_locals = true;
};

struct Statement {
  uint32_t line = 0;
  std::variant<TextStatement, PrintStatement, IfStatement, ForStatement, SetStatement,
               SetBlockStatement, MacroStatement, CallBlockStatement, FilterBlockStatement,
               WithStatement, BreakStatement, ContinueStatement, ScopeStatement>
      node;
};

}  // namespace cleave::jinja

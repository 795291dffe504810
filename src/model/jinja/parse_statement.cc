// Statements: text, {{ print }} and {% tags %}.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "model/jinja/failure.h"
#include "model/jinja/parser.h"

namespace cleave::jinja {
namespace {

template <typename Node>
Statement Make(uint32_t line, Node node) {
  Statement statement;
  statement.line = line;
  statement.node = std::move(node);
  return statement;
}

// Tags of Jinja that need other templates or change how text is escaped.
constexpr std::array<std::string_view, 6> kRefused = {"include", "import",     "from",
                                                      "extends", "autoescape", "do"};

bool IsReserved(std::string_view name) {
  constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none",
                                                          "True", "False", "None"};
  return std::find(kConstants.begin(), kConstants.end(), name) != kConstants.end();
}

}  // namespace

// Stops before the name of an end tag, whose "{%" it has taken.
Body Parser::ParseBody(Names end_tags, Nested nested) {
  const Deeper deeper(*this);
  Body body;
  while (true) {
    const uint32_t line = Peek().line;
    switch (Peek().kind) {
      case TokenKind::kText: {
        const Token token = Take();
        body.push_back(Make(line, TextStatement{MakeText(nullptr, token.text, Origin::kTemplate)}));
        break;
      }
      case TokenKind::kPrintBegin: {
        Take();
        PrintStatement print{ParseTuple(Conditionals::kAllowed, false)};
        if (Peek().kind != TokenKind::kPrintEnd) {
          FailHere(fmt::format("expected end of print statement, got {}", Describe(Peek())));
        }
        Take();
        body.push_back(Make(line, std::move(print)));
        break;
      }
      case TokenKind::kTagBegin:
        Take();
        if (IsAnyName(end_tags)) return body;
        ParseTag(body);
        ExpectTagEnd();
        break;
      default:
        if (nested == Nested::kNo) return body;
        FailHere(fmt::format("unexpected end of template: expected '{}'", *end_tags.begin()));
    }
  }
}

// A body with other surroundings than those it stands in.
Body Parser::ParseInner(Names end_tags, Surroundings surroundings) {
  SkipOperator(":");  // a habit from Python that Jinja lets pass
  ExpectTagEnd();
  const Surroundings outside = std::exchange(around_, surroundings);
  Body body = ParseBody(end_tags, Nested::kYes);
  around_ = outside;
  return body;
}

void Parser::ParseTag(Body& body) {
  struct Tag {
    std::string_view name;
    Statement (Parser::*parse)();
  };
  constexpr std::array<Tag, 11> kTags = {{{"if", &Parser::ParseIf},
                                          {"for", &Parser::ParseFor},
                                          {"set", &Parser::ParseSet},
                                          {"macro", &Parser::ParseMacro},
                                          {"call", &Parser::ParseCallBlock},
                                          {"filter", &Parser::ParseFilterBlock},
                                          {"with", &Parser::ParseWith},
                                          {"break", &Parser::ParseLoopControl},
                                          {"continue", &Parser::ParseLoopControl},
                                          {"generation", &Parser::ParseGeneration},
                                          {"block", &Parser::ParseBlock}}};
  if (Peek().kind != TokenKind::kName) FailHere("tag name expected");
  for (const Tag& tag : kTags) {
    if (!IsName(tag.name)) continue;
    body.push_back((this->*tag.parse)());
    return;
  }
  if (IsName("print")) return ParsePrint(body);
  const std::string& name = Peek().text;
  if (std::find(kRefused.begin(), kRefused.end(), name) != kRefused.end()) {
    FailHere(fmt::format("tag '{}' is not supported in chat templates", name));
  }
  FailHere(fmt::format("unknown tag '{}'", std::string_view(name).substr(0, 80)));
}

void Parser::ParsePrint(Body& body) {
  Take();
  const size_t before = body.size();
  while (Peek().kind != TokenKind::kTagEnd) {
    if (body.size() > before) ExpectOperator(",");
    const uint32_t line = Peek().line;
    body.push_back(Make(line, PrintStatement{ParseExpression()}));
  }
}

Statement Parser::ParseIf() {
  const uint32_t line = Peek().line;
  const Surroundings soft{around_.loops, true};
  IfStatement node;
  while (SkipName("if") || SkipName("elif")) {
    const Surroundings outside = std::exchange(around_, soft);
    node.conditions.push_back(ParseTuple(Conditionals::kNot, false));
    around_ = outside;
    node.bodies.push_back(ParseInner({"endif", "elif", "else"}, soft));
  }
  Body otherwise;
  if (SkipName("else")) otherwise = ParseInner({"endif"}, soft);
  ExpectName("endif");
  node.bodies.push_back(std::move(otherwise));
  return Make(line, std::move(node));
}

Statement Parser::ParseFor() {
  const uint32_t line = Take().line;
  ForStatement node;
  node.target = ParseTarget(false);
  ExpectName("in");
  node.iterable = ParseTuple(Conditionals::kNot, false);
  if (SkipName("if")) node.condition = ParseExpression();
  node.recursive = SkipName("recursive");
  node.body = ParseInner({"endfor", "else"}, {around_.loops + 1, false});
  if (SkipName("else")) node.otherwise = ParseInner({"endfor"}, {around_.loops, false});
  ExpectName("endfor");
  return Make(line, std::move(node));
}

Statement Parser::ParseSet() {
  const uint32_t line = Take().line;
  Target target = ParseTarget(true);
  if (SkipOperator("=")) {
    return Make(line, SetStatement{std::move(target), ParseTuple(Conditionals::kAllowed, false)});
  }
  SetBlockStatement node;
  node.target = std::move(target);
  node.filters = ParseFilterLinks();
  node.body = ParseInner({"endset"}, {around_.loops, false});
  ExpectName("endset");
  return Make(line, std::move(node));
}

std::vector<Link> Parser::ParseFilterLinks() {
  std::vector<Link> links;
  while (SkipOperator("|")) links.push_back(ParseFilter());
  return links;
}

void Parser::ParseSignature(MacroDefinition& macro) {
  constexpr size_t kMostParameters = 255;
  ExpectOperator("(");
  while (!IsOperator(")")) {
    if (!macro.parameters.empty()) ExpectOperator(",");
    if (macro.parameters.size() >= kMostParameters) {
      FailHere(fmt::format("a macro has more than {} parameters", kMostParameters));
    }
    std::string name = ExpectIdentifier("the name of a parameter");
    CheckAssignable(name);
    const auto& known = macro.parameters;
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      FailHere(fmt::format("parameter '{}' is given twice", name));
    }
    macro.parameters.push_back(std::move(name));
    if (SkipOperator("=")) {
      macro.defaults.push_back(ParseExpression());
    } else if (!macro.defaults.empty()) {
      FailHere("non-default argument follows default argument");
    }
  }
  ExpectOperator(")");
}

void Parser::ParseMacroBody(MacroDefinition& macro, std::string_view end_tag) {
  macro_uses_.emplace_back();
  macro.body = ParseInner({end_tag}, {0, false});
  const MacroUse use = macro_uses_.back();
  macro_uses_.pop_back();
  macro.uses_caller = use.caller;
  macro.uses_kwargs = use.kwargs;
  macro.uses_varargs = use.varargs;
  ExpectName(end_tag);
}

Statement Parser::ParseMacro() {
  const uint32_t line = Take().line;
  MacroStatement node;
  node.macro.name = ExpectIdentifier("the name of a macro");
  CheckAssignable(node.macro.name);
  ParseSignature(node.macro);
  ParseMacroBody(node.macro, "endmacro");
  return Make(line, std::move(node));
}

Statement Parser::ParseCallBlock() {
  const uint32_t line = Take().line;
  CallBlockStatement node;
  node.caller.name = "caller";
  if (IsOperator("(")) ParseSignature(node.caller);
  node.call = ParseExpression();
  const bool calls = node.call->kind == Expression::Kind::kChain &&
                     node.call->links.back().kind == Link::Kind::kCall;
  if (!calls) FailAt(line, "expected a call in a call block");
  ParseMacroBody(node.caller, "endcall");
  return Make(line, std::move(node));
}

Statement Parser::ParseFilterBlock() {
  const uint32_t line = Take().line;
  FilterBlockStatement node;
  node.filters.push_back(ParseFilter());
  for (Link& link : ParseFilterLinks()) node.filters.push_back(std::move(link));
  node.body = ParseInner({"endfilter"}, {around_.loops, false});
  ExpectName("endfilter");
  return Make(line, std::move(node));
}

Statement Parser::ParseWith() {
  const uint32_t line = Take().line;
  WithStatement node;
  while (Peek().kind != TokenKind::kTagEnd) {
    if (!node.targets.empty()) ExpectOperator(",");
    node.targets.push_back(ParseTargetItem());
    ExpectOperator("=");
    node.values.push_back(ParseExpression());
  }
  node.body = ParseInner({"endwith"}, {around_.loops, false});
  ExpectName("endwith");
  return Make(line, std::move(node));
}

Statement Parser::ParseLoopControl() {
  if (around_.loops == 0) FailHere(fmt::format("'{}' outside of a loop", Peek().text));
  const Token token = Take();
  if (token.text == "break") return Make(token.line, BreakStatement{});
  return Make(token.line, ContinueStatement{});
}

// Marks what the model wrote, for training; rendering takes no notice but gives it its own names.
Statement Parser::ParseGeneration() {
  const uint32_t line = Take().line;
  ScopeStatement node;
  node.body = ParseInner({"endgeneration"}, {0, false});
  ExpectName("endgeneration");
  return Make(line, std::move(node));
}

Statement Parser::ParseBlock() {
  const uint32_t line = Take().line;
  ScopeStatement node;
  const std::string name = ExpectIdentifier("the name of a block");
  if (!block_names_.insert(name).second) {
    FailAt(line, fmt::format("block '{}' defined twice", name.substr(0, 80)));
  }
  node.sees_locals = SkipName("scoped");
  node.body = ParseInner({"endblock"}, {0, false});
  ExpectName("endblock");
  SkipName(name);
  return Make(line, std::move(node));
}

void Parser::CheckAssignable(std::string_view name) const {
  if (IsReserved(name)) FailHere(fmt::format("can't assign to '{}'", name));
}

// name, namespace.attribute (where allowed), or a, b, (c, d).
Target Parser::ParseTarget(bool allow_attribute) {
  if (allow_attribute && Peek().kind == TokenKind::kName && IsOperator(".", 1)) {
    Target target;
    target.kind = Target::Kind::kAttribute;
    target.name = Take().text;
    Take();
    target.attribute = ExpectIdentifier("the name of an attribute");
    return target;
  }
  Target first = ParseTargetItem();
  if (!IsOperator(",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.items.push_back(std::move(first));
  while (SkipOperator(",")) {
    if (AtTupleEnd()) break;
    tuple.items.push_back(ParseTargetItem());
  }
  return tuple;
}

Target Parser::ParseTargetItem() {
  const Deeper deeper(*this);
  if (SkipOperator("(")) {
    Target target = ParseTarget(false);
    ExpectOperator(")");
    return target;
  }
  Target target;
  target.name = ExpectIdentifier("a name to assign to");
  CheckAssignable(target.name);
  return target;
}

}  // namespace cleave::jinja

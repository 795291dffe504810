// Expressions, from the loosest binding to the tightest:
//   a if b else c | or | and | not | == != < > <= >= in, not in | + - | ~ | * / // % | ** |
//   unary - + | .name [item] (call) | filters and tests
// Powers group from the left and bind looser than a unary minus, as in Jinja.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <list>
#include <utility>

#include "model/jinja/failure.h"
#include "model/jinja/parser.h"

namespace cleave::jinja {
namespace {

struct BinaryName {
  std::string_view text;
  BinaryOp op;
};
constexpr std::array<BinaryName, 2> kSums = {{{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}}};
constexpr std::array<BinaryName, 4> kProducts = {{{"*", BinaryOp::kMultiply},
                                                  {"/", BinaryOp::kDivide},
                                                  {"//", BinaryOp::kFloorDivide},
                                                  {"%", BinaryOp::kModulo}}};

struct CompareName {
  std::string_view text;
  CompareOp op;
};
constexpr std::array<CompareName, 6> kComparisons = {{{"==", CompareOp::kEqual},
                                                      {"!=", CompareOp::kNotEqual},
                                                      {"<", CompareOp::kLess},
                                                      {"<=", CompareOp::kLessEqual},
                                                      {">", CompareOp::kGreater},
                                                      {">=", CompareOp::kGreaterEqual}}};

template <typename Table>
const auto* FindOperator(const Table& table, const Token& token) {
  const auto at = std::find_if(table.begin(), table.end(), [&](const auto& entry) {
    return token.kind == TokenKind::kOperator && token.text == entry.text;
  });
  return at == table.end() ? nullptr : &*at;
}

Value LiteralText(std::string_view text) {
  return Value(MakeText(nullptr, text, Origin::kTemplate));
}

}  // namespace

ExpressionPtr Parser::NewNode(Expression::Kind kind) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = Peek().line;
  return node;
}

ExpressionPtr Parser::ParseExpression(Conditionals conditionals) {
  const Deeper deeper(*this);
  return conditionals == Conditionals::kAllowed ? ParseConditional() : ParseOr();
}

ExpressionPtr Parser::ParseConditional() {
  // In "a if b" the filters of a and b may be unknown without harm while they are not reached.
  const bool soft = around_.soft;
  const size_t unknown = unknown_.size();
  std::list<Deeper> deeper;  // "a if b if c" nests to the left, one level for each
  ExpressionPtr value = ParseOr();
  while (IsName("if")) {
    deeper.emplace_back(*this);
    around_.soft = true;
    unknown_.resize(unknown);
    ExpressionPtr node = NewNode(Expression::Kind::kConditional);
    Take();
    node->items.push_back(std::move(value));
    node->items.push_back(ParseOr());
    node->items.push_back(SkipName("else") ? ParseExpression() : nullptr);
    value = std::move(node);
  }
  around_.soft = soft;
  return value;
}

ExpressionPtr Parser::ParseOr() {
  ExpressionPtr first = ParseAnd();
  if (!IsName("or")) return first;
  ExpressionPtr node = NewNode(Expression::Kind::kOr);
  node->items.push_back(std::move(first));
  while (SkipName("or")) node->items.push_back(ParseAnd());
  return node;
}

ExpressionPtr Parser::ParseAnd() {
  ExpressionPtr first = ParseNot();
  if (!IsName("and")) return first;
  ExpressionPtr node = NewNode(Expression::Kind::kAnd);
  node->items.push_back(std::move(first));
  while (SkipName("and")) node->items.push_back(ParseNot());
  return node;
}

ExpressionPtr Parser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Deeper deeper(*this);
  ExpressionPtr node = NewNode(Expression::Kind::kNot);
  Take();
  node->items.push_back(ParseNot());
  return node;
}

ExpressionPtr Parser::ParseCompare() {
  ExpressionPtr first = ParseSum();
  ExpressionPtr node;
  while (true) {
    CompareOp op = CompareOp::kIn;
    size_t tokens = 1;
    if (const auto* entry = FindOperator(kComparisons, Peek())) {
      op = entry->op;
    } else if (IsName("not") && IsName("in", 1)) {
      op = CompareOp::kNotIn;
      tokens = 2;
    } else if (!IsName("in")) {
      break;
    }
    if (node == nullptr) {
      node = NewNode(Expression::Kind::kCompare);
      node->items.push_back(std::move(first));
    }
    pos_ += tokens;
    node->comparisons.push_back(op);
    node->items.push_back(ParseSum());
  }
  return node == nullptr ? std::move(first) : std::move(node);
}

ExpressionPtr Parser::ParseSum() {
  ExpressionPtr first = ParseConcat();
  if (FindOperator(kSums, Peek()) == nullptr) return first;
  ExpressionPtr node = NewNode(Expression::Kind::kBinary);
  node->items.push_back(std::move(first));
  while (const auto* entry = FindOperator(kSums, Peek())) {
    Take();
    node->operators.push_back(entry->op);
    node->items.push_back(ParseConcat());
  }
  return node;
}

ExpressionPtr Parser::ParseConcat() {
  ExpressionPtr first = ParseProduct();
  if (!IsOperator("~")) return first;
  ExpressionPtr node = NewNode(Expression::Kind::kConcat);
  node->items.push_back(std::move(first));
  while (SkipOperator("~")) node->items.push_back(ParseProduct());
  return node;
}

ExpressionPtr Parser::ParseProduct() {
  ExpressionPtr first = ParsePower();
  if (FindOperator(kProducts, Peek()) == nullptr) return first;
  ExpressionPtr node = NewNode(Expression::Kind::kBinary);
  node->items.push_back(std::move(first));
  while (const auto* entry = FindOperator(kProducts, Peek())) {
    Take();
    node->operators.push_back(entry->op);
    node->items.push_back(ParsePower());
  }
  return node;
}

ExpressionPtr Parser::ParsePower() {
  ExpressionPtr first = ParseUnary(true);
  if (!IsOperator("**")) return first;
  ExpressionPtr node = NewNode(Expression::Kind::kBinary);
  node->items.push_back(std::move(first));
  while (SkipOperator("**")) {
    node->operators.push_back(BinaryOp::kPower);
    node->items.push_back(ParseUnary(true));
  }
  return node;
}

ExpressionPtr Parser::ParseUnary(bool with_filters) {
  ExpressionPtr node;
  if (IsOperator("-") || IsOperator("+")) {
    const Deeper deeper(*this);
    node = NewNode(IsOperator("-") ? Expression::Kind::kNegate : Expression::Kind::kPlus);
    Take();
    node->items.push_back(ParseUnary(false));
  } else {
    node = ParsePrimary();
  }
  ParseLinks(node, with_filters);
  return node;
}

ExpressionPtr Parser::ParsePrimary() {
  switch (Peek().kind) {
    case TokenKind::kName:
      return ParseNameOrConstant();
    case TokenKind::kString:
      return ParseString();
    case TokenKind::kInteger: {
      ExpressionPtr node = NewNode(Expression::Kind::kLiteral);
      node->literal = Value(Take().integer);
      return node;
    }
    case TokenKind::kFloat: {
      ExpressionPtr node = NewNode(Expression::Kind::kLiteral);
      node->literal = Value(Take().real);
      return node;
    }
    default:
      break;
  }
  if (SkipOperator("(")) {
    ExpressionPtr node = ParseTuple(Conditionals::kAllowed, true);
    ExpectOperator(")");
    return node;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  FailUnexpected();
}

ExpressionPtr Parser::ParseNameOrConstant() {
  ExpressionPtr node = NewNode(Expression::Kind::kLiteral);
  const Token token = Take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") {
    node->literal = Value(true);
  } else if (name == "false" || name == "False") {
    node->literal = Value(false);
  } else if (name == "none" || name == "None") {
    node->literal = None{};
  } else {
    node->kind = Expression::Kind::kName;
    node->name = name;
    NoteUse(name);
  }
  return node;
}

void Parser::NoteUse(std::string_view name) {
  for (MacroUse& use : macro_uses_) {
    use.caller = use.caller || name == "caller";
    use.kwargs = use.kwargs || name == "kwargs";
    use.varargs = use.varargs || name == "varargs";
  }
}

ExpressionPtr Parser::ParseString() {
  ExpressionPtr node = NewNode(Expression::Kind::kLiteral);
  std::string text;
  while (Peek().kind == TokenKind::kString) text += Take().text;
  node->literal = LiteralText(text);
  return node;
}

bool Parser::AtTupleEnd() const {
  const TokenKind kind = Peek().kind;
  return kind == TokenKind::kPrintEnd || kind == TokenKind::kTagEnd || IsOperator(")");
}

ExpressionPtr Parser::ParseTuple(Conditionals conditionals, bool parenthesized) {
  ExpressionPtr node = NewNode(Expression::Kind::kTuple);
  bool commas = false;
  while (!AtTupleEnd()) {
    node->items.push_back(ParseExpression(conditionals));
    if (!SkipOperator(",")) break;
    commas = true;
  }
  if (commas) return node;
  if (node->items.size() == 1) return std::move(node->items[0]);
  if (!parenthesized) FailHere(fmt::format("expected an expression, got {}", Describe(Peek())));
  return node;
}

ExpressionPtr Parser::ParseList() {
  ExpressionPtr node = NewNode(Expression::Kind::kList);
  ExpectOperator("[");
  while (!IsOperator("]")) {
    node->items.push_back(ParseExpression());
    if (!SkipOperator(",")) break;
  }
  ExpectOperator("]");
  return node;
}

ExpressionPtr Parser::ParseDict() {
  ExpressionPtr node = NewNode(Expression::Kind::kDict);
  ExpectOperator("{");
  while (!IsOperator("}")) {
    node->items.push_back(ParseExpression());
    ExpectOperator(":");
    node->items.push_back(ParseExpression());
    if (!SkipOperator(",")) break;
  }
  ExpectOperator("}");
  return node;
}

void Parser::AddLink(ExpressionPtr& node, Link link) {
  if (node->kind != Expression::Kind::kChain) {
    auto chain = std::make_unique<Expression>();
    chain->kind = Expression::Kind::kChain;
    chain->line = node->line;
    chain->items.push_back(std::move(node));
    node = std::move(chain);
  }
  node->links.push_back(std::move(link));
}

void Parser::ParseLinks(ExpressionPtr& node, bool with_filters) {
  while (true) {
    if (IsOperator(".")) {
      AddLink(node, ParseAttribute());
    } else if (IsOperator("[")) {
      AddLink(node, ParseSubscript());
    } else if (IsOperator("(")) {
      AddLink(node, ParseCall());
    } else {
      break;
    }
  }
  while (with_filters) {
    if (SkipOperator("|")) {
      AddLink(node, ParseFilter());
    } else if (IsName("is")) {
      AddLink(node, ParseTest());
    } else if (IsOperator("(")) {
      AddLink(node, ParseCall());
    } else {
      return;
    }
  }
}

Link Parser::ParseAttribute() {
  Link link;
  link.line = Peek().line;
  ExpectOperator(".");
  if (Peek().kind == TokenKind::kInteger) {
    link.kind = Link::Kind::kItem;
    link.parts.push_back(ParsePrimary());
    return link;
  }
  link.name = ExpectIdentifier("a name or number");
  return link;
}

Link Parser::ParseSubscript() {
  const uint32_t line = Peek().line;
  ExpectOperator("[");
  std::vector<Link> parts;
  while (!IsOperator("]")) {
    parts.push_back(ParseSlicePart());
    if (!SkipOperator(",")) break;
  }
  ExpectOperator("]");
  if (parts.size() == 1) {
    parts[0].line = line;
    return std::move(parts[0]);
  }
  Link link;
  link.kind = Link::Kind::kItem;
  link.line = line;
  auto tuple = NewNode(Expression::Kind::kTuple);
  for (Link& part : parts) {
    if (part.kind == Link::Kind::kSlice) FailAt(line, "a slice cannot be part of a tuple");
    tuple->items.push_back(std::move(part.parts[0]));
  }
  link.parts.push_back(std::move(tuple));
  return link;
}

// What stands between the brackets: an item, or a slice start:stop:step.
Link Parser::ParseSlicePart() {
  Link link;
  link.kind = Link::Kind::kItem;
  const auto part = [this]() -> ExpressionPtr {
    if (IsOperator(":") || IsOperator("]") || IsOperator(",")) return nullptr;
    return ParseExpression();
  };
  link.parts.push_back(part());
  if (!IsOperator(":")) {
    if (link.parts[0] == nullptr) FailUnexpected();
    return link;
  }
  link.kind = Link::Kind::kSlice;
  Take();
  link.parts.push_back(part());
  link.parts.push_back(SkipOperator(":") ? part() : nullptr);
  return link;
}

Link Parser::ParseCall() {
  Link link;
  link.kind = Link::Kind::kCall;
  link.line = Peek().line;
  link.call = ParseCallArguments();
  return link;
}

CallSyntax Parser::ParseCallArguments() {
  CallSyntax call;
  ExpectOperator("(");
  while (!IsOperator(")")) {
    ParseArgument(call);
    if (!SkipOperator(",")) break;
  }
  ExpectOperator(")");
  return call;
}

void Parser::ParseArgument(CallSyntax& call) {
  constexpr size_t kMostArguments = 255;
  if (call.positional.size() + call.named.size() >= kMostArguments) {
    FailHere(fmt::format("a call has more than {} arguments", kMostArguments));
  }
  const auto ensure = [this](bool in_order) {
    if (!in_order) FailHere("invalid order of arguments in a call");
  };
  if (SkipOperator("*")) {
    ensure(call.star == nullptr && call.double_star == nullptr);
    call.star = ParseExpression();
  } else if (SkipOperator("**")) {
    ensure(call.double_star == nullptr);
    call.double_star = ParseExpression();
  } else if (Peek().kind == TokenKind::kName && IsOperator("=", 1)) {
    ensure(call.double_star == nullptr);
    const std::string name = Take().text;
    Take();
    for (const auto& argument : call.named) {
      if (argument.first == name) FailHere(fmt::format("argument '{}' is given twice", name));
    }
    call.named.emplace_back(name, ParseExpression());
  } else {
    ensure(call.star == nullptr && call.double_star == nullptr && call.named.empty());
    call.positional.push_back(ParseExpression());
  }
}

// What follows the bar.
Link Parser::ParseFilter() {
  Link link;
  link.kind = Link::Kind::kFilter;
  link.line = Peek().line;
  link.name = ExpectIdentifier("the name of a filter");
  while (SkipOperator(".")) link.name += "." + ExpectIdentifier("the name of a filter");
  link.filter = FindFilter(link.name);
  if (link.filter == nullptr) NoteUnknown(link.line, FilterProblem(link.name));
  if (IsOperator("(")) link.call = ParseCallArguments();
  return link;
}

Link Parser::ParseTest() {
  Link link;
  ExpectName("is");
  link.kind = SkipName("not") ? Link::Kind::kNotTest : Link::Kind::kTest;
  link.line = Peek().line;
  link.name = ExpectIdentifier("the name of a test");
  while (SkipOperator(".")) link.name += "." + ExpectIdentifier("the name of a test");
  link.test = FindTest(link.name);
  if (link.test == nullptr) {
    NoteUnknown(link.line, fmt::format("no test named '{}'", link.name.substr(0, 80)));
  }
  if (IsOperator("(")) {
    link.call = ParseCallArguments();
    return link;
  }
  const TokenKind kind = Peek().kind;
  const bool literal = kind == TokenKind::kString || kind == TokenKind::kInteger ||
                       kind == TokenKind::kFloat || IsOperator("[") || IsOperator("{");
  const bool name = kind == TokenKind::kName && !IsAnyName({"else", "or", "and"});
  if (!literal && !name) return link;
  if (IsName("is")) FailHere("tests cannot be chained: use parentheses");
  // A test's argument without parentheses: one value with its attributes, no filters.
  const Deeper deeper(*this);
  ExpressionPtr argument = ParsePrimary();
  ParseLinks(argument, false);
  link.call.positional.push_back(std::move(argument));
  return link;
}

}  // namespace cleave::jinja

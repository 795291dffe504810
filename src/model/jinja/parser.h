#pragma once
// Parser: tokens to the tree of ast.h, by recursive descent with bounded nesting.
// Fails (Failure) with the line: syntax, unknown tags, filters and tests.

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/ast.h"
#include "model/jinja/jinja.h"
#include "model/jinja/lexer.h"

namespace cleave::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits);
  Body ParseTemplate();

 private:
  // Names a macro's body uses, which decide what it accepts.
  struct MacroUse {
    bool caller = false;
    bool kwargs = false;
    bool varargs = false;
  };
  // What of the surroundings a nested body may rely on.
  struct Surroundings {
    uint32_t loops = 0;  // loops that break and continue can reach
    bool soft = false;   // inside an if: unknown filters fail only when reached
  };
  using Names = std::initializer_list<std::string_view>;
  enum class Conditionals { kAllowed, kNot };
  enum class Nested { kNo, kYes };

  // Tokens (parser.cc).
  [[nodiscard]] const Token& Peek(size_t ahead = 0) const;
  Token Take();
  [[nodiscard]] bool IsOperator(std::string_view op, size_t ahead = 0) const;
  [[nodiscard]] bool IsName(std::string_view name, size_t ahead = 0) const;
  [[nodiscard]] bool IsAnyName(Names names) const;
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  void ExpectOperator(std::string_view op);
  void ExpectName(std::string_view name);
  std::string ExpectIdentifier(std::string_view what);
  void ExpectTagEnd();
  [[noreturn]] void FailHere(std::string_view message) const;
  [[noreturn]] void FailUnexpected() const;
  // A filter or test of no known name: an error, unless it turns out to stand in "a if b".
  void NoteUnknown(uint32_t line, std::string problem);
  static std::string Describe(const Token& token);

  // Expressions (parse_expression.cc).
  ExpressionPtr ParseExpression(Conditionals conditionals = Conditionals::kAllowed);
  ExpressionPtr ParseConditional();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filters);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseNameOrConstant();
  ExpressionPtr ParseString();
  // Expressions separated by commas: one alone is itself, more are a tuple.
  ExpressionPtr ParseTuple(Conditionals conditionals, bool parenthesized);
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  void ParseLinks(ExpressionPtr& node, bool with_filters);
  Link ParseAttribute();
  Link ParseSubscript();
  Link ParseSlicePart();
  Link ParseCall();
  Link ParseFilter();
  Link ParseTest();
  CallSyntax ParseCallArguments();
  void ParseArgument(CallSyntax& call);
  [[nodiscard]] bool AtTupleEnd() const;
  ExpressionPtr NewNode(Expression::Kind kind) const;
  static void AddLink(ExpressionPtr& node, Link link);
  void NoteUse(std::string_view name);

  // Statements (parse_statement.cc).
  Body ParseBody(Names end_tags, Nested nested);
  void ParseTag(Body& body);
  Statement ParseIf();
  Statement ParseFor();
  Statement ParseSet();
  Statement ParseMacro();
  Statement ParseCallBlock();
  Statement ParseFilterBlock();
  Statement ParseWith();
  Statement ParseLoopControl();
  Statement ParseGeneration();
  Statement ParseBlock();
  void ParsePrint(Body& body);
  void ParseSignature(MacroDefinition& macro);
  void ParseMacroBody(MacroDefinition& macro, std::string_view end_tag);
  std::vector<Link> ParseFilterLinks();
  Target ParseTarget(bool allow_attribute);
  Target ParseTargetItem();
  void CheckAssignable(std::string_view name) const;
  Body ParseInner(Names end_tags, Surroundings surroundings);

  // One level deeper, while it lives.
  class Deeper {
   public:
    explicit Deeper(Parser& parser);
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  uint32_t max_depth_;
  uint32_t depth_ = 0;
  Surroundings around_;
  std::vector<MacroUse> macro_uses_;
  struct Unknown {
    uint32_t line = 0;
    std::string problem;
  };
  std::vector<Unknown> unknown_;
  std::set<std::string> block_names_;
};

}  // namespace cleave::jinja

#include "model/jinja/parser.h"

#include <fmt/core.h>

#include <algorithm>

#include "model/jinja/failure.h"

namespace cleave::jinja {

Parser::Parser(std::vector<Token> tokens, const Limits& limits)
    : tokens_(std::move(tokens)), max_depth_(limits.max_depth) {}

Body Parser::ParseTemplate() {
  Body body = ParseBody({}, Nested::kNo);
  if (!unknown_.empty()) FailAt(unknown_.front().line, unknown_.front().problem);
  return body;
}

void Parser::NoteUnknown(uint32_t line, std::string problem) {
  if (!around_.soft) unknown_.push_back({line, std::move(problem)});
}

Parser::Deeper::Deeper(Parser& parser) : parser_(parser) {
  if (parser.depth_ >= parser.max_depth_) {
    throw Failure(StatusCode::kResourceExhausted,
                  fmt::format("line {}: the template nests deeper than max_depth = {}",
                              parser.Peek().line, parser.max_depth_),
                  Located::kYes);
  }
  ++parser.depth_;
}

const Token& Parser::Peek(size_t ahead) const {
  return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)];
}

Token Parser::Take() {
  Token token = Peek();
  if (pos_ + 1 < tokens_.size()) ++pos_;
  return token;
}

bool Parser::IsOperator(std::string_view op, size_t ahead) const {
  return Peek(ahead).kind == TokenKind::kOperator && Peek(ahead).text == op;
}

bool Parser::IsName(std::string_view name, size_t ahead) const {
  return Peek(ahead).kind == TokenKind::kName && Peek(ahead).text == name;
}

bool Parser::IsAnyName(Names names) const {
  return std::any_of(names.begin(), names.end(),
                     [this](std::string_view name) { return IsName(name); });
}

bool Parser::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  ++pos_;
  return true;
}

bool Parser::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  ++pos_;
  return true;
}

void Parser::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) FailHere(fmt::format("expected '{}', got {}", op, Describe(Peek())));
}

void Parser::ExpectName(std::string_view name) {
  if (!SkipName(name)) FailHere(fmt::format("expected '{}', got {}", name, Describe(Peek())));
}

std::string Parser::ExpectIdentifier(std::string_view what) {
  if (Peek().kind != TokenKind::kName) {
    FailHere(fmt::format("expected {}, got {}", what, Describe(Peek())));
  }
  return Take().text;
}

void Parser::ExpectTagEnd() {
  if (Peek().kind != TokenKind::kTagEnd) {
    FailHere(fmt::format("expected the end of the tag, got {}", Describe(Peek())));
  }
  Take();
}

void Parser::FailHere(std::string_view message) const { FailAt(Peek().line, message); }

void Parser::FailUnexpected() const { FailHere(fmt::format("unexpected {}", Describe(Peek()))); }

std::string Parser::Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "template text";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "end of print statement";
    case TokenKind::kTagBegin:
      return "'{%'";
    case TokenKind::kTagEnd:
      return "end of statement block";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return fmt::format("'{}'", std::string_view(token.text).substr(0, 80));
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kEnd:
      return "end of template";
  }
  return "";
}

}  // namespace cleave::jinja

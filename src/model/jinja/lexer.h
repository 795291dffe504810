#pragma once
// Lexer: template source to tokens, with trim_blocks and lstrip_blocks on.
//
// White space rules: the newline after a block or comment tag goes; so does the white space before
// one when it stands first on its line; "-" inside a tag strips all white space on its side, "+"
// keeps it; one newline at the very end of the source goes. Pure; fails (Failure) with the line.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/value.h"

namespace cleave::jinja {

enum class TokenKind : uint8_t {
  kText,
  kPrintBegin,
  kPrintEnd,
  kTagBegin,
  kTagEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 1;
  std::string text;  // of names, operators, strings (unescaped) and template text
  Int integer = 0;
  double real = 0;
};

// The last token is kEnd.
std::vector<Token> Lex(std::string_view source);

[[noreturn]] void FailAt(uint32_t line, std::string_view message);

}  // namespace cleave::jinja

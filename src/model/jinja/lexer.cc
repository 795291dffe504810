#include "model/jinja/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "model/jinja/failure.h"
#include "model/jinja/numbers.h"
#include "model/jinja/unicode.h"

namespace cleave::jinja {
namespace {

bool IsDigitChar(char c) { return c >= '0' && c <= '9'; }

// Line ends become "\n"; one at the end of the source goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Python's string escapes; an unknown one stays as it is written.
class Unescaper {
 public:
  Unescaper(std::string_view body, uint32_t line) : body_(body), line_(line) {}

  std::string Run() {
    while (pos_ < body_.size()) {
      const char c = body_[pos_++];
      if (c == '\\' && pos_ < body_.size()) {
        Escape(body_[pos_++]);
      } else {
        out_ += c;
      }
    }
    return std::move(out_);
  }

 private:
  void Escape(char c) {
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const size_t simple = kNames.find(c);
    if (simple != std::string_view::npos) {
      out_ += kMeanings[simple];
    } else if (c == '\n') {
      return;  // a line that goes on
    } else if (c == 'x') {
      Hex(2);
    } else if (c == 'u') {
      Hex(4);
    } else if (c == 'U') {
      Hex(8);
    } else if (c == 'N') {
      FailAt(line_, "\\N{…} escapes are not supported: write the character itself");
    } else if (c >= '0' && c <= '7') {
      Octal();
    } else {
      out_ += '\\';
      out_ += c;
    }
  }

  void Octal() {
    const size_t begin = pos_ - 1;
    while (pos_ < body_.size() && pos_ < begin + 3 && body_[pos_] >= '0' && body_[pos_] <= '7') {
      ++pos_;
    }
    uint32_t value = 0;
    std::from_chars(body_.data() + begin, body_.data() + pos_, value, 8);
    AppendUtf8(out_, value);
  }

  void Hex(size_t digits) {
    uint32_t value = 0;
    const char* begin = body_.data() + pos_;
    const bool enough = body_.size() - pos_ >= digits;
    if (!enough || std::from_chars(begin, begin + digits, value, 16).ptr != begin + digits) {
      FailAt(line_, "truncated escape in a string");
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
      FailAt(line_, "an escape in a string names no character");
    }
    pos_ += digits;
    AppendUtf8(out_, value);
  }

  std::string_view body_;
  uint32_t line_;
  size_t pos_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : storage_(NormalizeNewlines(source)), all_(storage_) {}

  std::vector<Token> Run() {
    while (pos_ < all_.size()) Text();
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  enum class Strip { kNone, kLine, kAll };

  void Add(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  void Advance(size_t to) {
    const auto begin = all_.begin() + static_cast<std::ptrdiff_t>(pos_);
    const auto end = all_.begin() + static_cast<std::ptrdiff_t>(to);
    line_ += static_cast<uint32_t>(std::count(begin, end, '\n'));
    pos_ = to;
  }

  [[nodiscard]] char At(size_t pos) const { return pos < all_.size() ? all_[pos] : '\0'; }

  [[nodiscard]] size_t SkipSpace(size_t pos) const {
    while (pos < all_.size()) {
      const CodePoint c = DecodeAt(all_, pos);
      if (!c.valid || !IsSpace(c.value)) break;
      pos += c.size;
    }
    return pos;
  }

  // Template text up to the next tag, then that tag.
  void Text() {
    size_t open = pos_;
    while (true) {
      open = all_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= all_.size()) {
        if (pos_ < all_.size()) Add(TokenKind::kText, std::string(all_.substr(pos_)));
        return Advance(all_.size());
      }
      const char next = all_[open + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++open;
    }
    const char sign = At(open + 2);
    Strip strip = all_[open + 1] == '{' ? Strip::kNone : Strip::kLine;
    if (sign == '-') strip = Strip::kAll;
    if (sign == '+') strip = Strip::kNone;
    EmitText(open, strip);
    Advance(open);
    const size_t inside = open + (sign == '-' || sign == '+' ? 3 : 2);
    if (all_[open + 1] == '#') return Comment(inside);
    if (all_[open + 1] == '{') {
      Add(TokenKind::kPrintBegin, "");
      Advance(inside);
      return Code(TokenKind::kPrintEnd);
    }
    if (const auto end = RawBegin(inside)) return Raw(*end);
    Add(TokenKind::kTagBegin, "");
    Advance(inside);
    Code(TokenKind::kTagEnd);
  }

  void EmitText(size_t end, Strip strip) {
    std::string_view text = all_.substr(pos_, end - pos_);
    if (strip == Strip::kAll) {
      while (!text.empty()) {
        const CodePoint c = DecodeBefore(text, text.size());
        if (!c.valid || !IsSpace(c.value)) break;
        text.remove_suffix(c.size);
      }
    } else if (strip == Strip::kLine) {
      const size_t newline = text.rfind('\n');
      const bool starts_line = newline != std::string_view::npos || line_starting_;
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if (starts_line && SkipSpace(pos_ + line) >= end) text = text.substr(0, line);
    }
    if (!text.empty()) Add(TokenKind::kText, std::string(text));
  }

  // Where the tag that begins to end at `pos` is over; nothing when it does not end there. A block
  // or comment takes the newline after it along.
  [[nodiscard]] std::optional<size_t> EndAt(size_t pos, std::string_view mark, bool trim) const {
    if (At(pos) == '-' && all_.substr(pos + 1, 2) == mark) return SkipSpace(pos + 3);
    if (trim && At(pos) == '+' && all_.substr(pos + 1, 2) == mark) return pos + 3;
    if (all_.substr(pos, 2) != mark) return std::nullopt;
    return trim && At(pos + 2) == '\n' ? pos + 3 : pos + 2;
  }

  void FinishTag(size_t end) {
    Advance(end);
    line_starting_ = end > 0 && all_[end - 1] == '\n';
  }

  void Comment(size_t inside) {
    if (inside >= all_.size()) return Advance(all_.size());  // as in Jinja: nothing misses its end
    for (size_t pos = inside; pos < all_.size(); ++pos) {
      if (const auto end = EndAt(pos, "#}", true)) return FinishTag(*end);
    }
    FailAt(line_, "missing end of comment tag");
  }

  // `inside` follows "{%"; the end of a raw tag there, if it is one.
  [[nodiscard]] std::optional<size_t> RawBegin(size_t inside) const {
    const size_t name = SkipSpace(inside);
    if (all_.substr(name, 3) != "raw") return std::nullopt;
    return EndAt(SkipSpace(name + 3), "%}", false);
  }

  void Raw(size_t begin) {
    const uint32_t opened = line_;
    FinishTag(begin);
    if (pos_ >= all_.size()) return;  // as in Jinja, only what follows misses an end
    for (size_t open = all_.find("{%", pos_); open != std::string_view::npos;
         open = all_.find("{%", open + 2)) {
      const char sign = At(open + 2);
      const size_t name = SkipSpace(open + (sign == '-' || sign == '+' ? 3 : 2));
      if (all_.substr(name, 6) != "endraw") continue;
      const auto end = EndAt(SkipSpace(name + 6), "%}", true);
      if (!end) continue;
      EmitText(open, sign == '-' ? Strip::kAll : (sign == '+' ? Strip::kNone : Strip::kLine));
      return FinishTag(*end);
    }
    FailAt(opened, "missing end of raw directive");
  }

  // Tokens of an expression or tag up to its end.
  void Code(TokenKind closing) {
    const bool block = closing == TokenKind::kTagEnd;
    const std::string_view mark = block ? "%}" : "}}";
    open_brackets_.clear();
    while (pos_ < all_.size()) {
      const auto end = open_brackets_.empty() ? EndAt(pos_, mark, block) : std::nullopt;
      if (end) {
        Add(closing, "");
        return FinishTag(*end);
      }
      const size_t after_space = SkipSpace(pos_);
      if (after_space > pos_) {
        Advance(after_space);
        continue;
      }
      if (Number() || Name() || String() || Operator()) continue;
      FailAt(line_,
             fmt::format("unexpected char '{}'", all_.substr(pos_, DecodeAt(all_, pos_).size)));
    }
  }

  // Digits with single underscores between them, from `pos`.
  [[nodiscard]] size_t Digits(size_t pos, bool (*is_digit)(char)) const {
    while (is_digit(At(pos))) {
      ++pos;
      if (At(pos) == '_' && is_digit(At(pos + 1))) ++pos;
    }
    return pos;
  }

  bool Number() {
    if (!IsDigitChar(At(pos_))) return false;
    const bool after_dot = pos_ > 0 && all_[pos_ - 1] == '.';
    const size_t whole = Digits(pos_, IsDigitChar);
    size_t end = whole;
    if (At(end) == '.' && IsDigitChar(At(end + 1))) end = Digits(end + 1, IsDigitChar);
    if (At(end) == 'e' || At(end) == 'E') {
      const size_t exponent = end + (At(end + 1) == '+' || At(end + 1) == '-' ? 2 : 1);
      if (IsDigitChar(At(exponent))) end = Digits(exponent, IsDigitChar);
    }
    if (end > whole && !after_dot) return Float(end);
    return Integer(IntegerEnd());
  }

  [[nodiscard]] size_t IntegerEnd() const {
    const auto is_hex = [](char c) {
      return IsDigitChar(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    };
    const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    const auto is_binary = [](char c) { return c == '0' || c == '1'; };
    const auto is_zero = [](char c) { return c == '0'; };
    if (At(pos_) != '0') return Digits(pos_, IsDigitChar);
    const size_t digits = pos_ + (At(pos_ + 2) == '_' ? 3 : 2);
    const char base = At(pos_ + 1);
    size_t end = digits;
    if (base == 'x' || base == 'X') end = Digits(digits, is_hex);
    if (base == 'o' || base == 'O') end = Digits(digits, is_octal);
    if (base == 'b' || base == 'B') end = Digits(digits, is_binary);
    return end > digits ? end : Digits(pos_, is_zero);
  }

  bool Integer(size_t end) {
    const auto value = ParseInt(all_.substr(pos_, end - pos_), 0);
    if (!value) FailAt(line_, "an integer needs more than 127 bits");
    Add(TokenKind::kInteger, "");
    tokens_.back().integer = *value;
    pos_ = end;
    return true;
  }

  bool Float(size_t end) {
    const auto value = ParseFloat(all_.substr(pos_, end - pos_));
    Add(TokenKind::kFloat, "");
    tokens_.back().real = value.value_or(0);
    pos_ = end;
    return true;
  }

  bool Name() {
    size_t end = pos_;
    while (end < all_.size()) {
      const CodePoint c = DecodeAt(all_, end);
      const bool word = c.valid && (c.value == '_' || IsAlnum(c.value));
      if (!word) break;
      end += c.size;
    }
    if (end == pos_) return false;
    Add(TokenKind::kName, std::string(all_.substr(pos_, end - pos_)));
    pos_ = end;
    return true;
  }

  bool String() {
    const char quote = At(pos_);
    if (quote != '\'' && quote != '"') return false;
    size_t end = pos_ + 1;
    while (end < all_.size() && all_[end] != quote) end += all_[end] == '\\' ? 2 : 1;
    if (end >= all_.size()) FailAt(line_, "a string has no end");
    Add(TokenKind::kString, Unescaper(all_.substr(pos_ + 1, end - pos_ - 1), line_).Run());
    Advance(end + 1);
    return true;
  }

  bool Operator() {
    constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    std::string_view op = all_.substr(pos_, 2);
    if (std::find(kLong.begin(), kLong.end(), op) == kLong.end()) op = all_.substr(pos_, 1);
    if (op.size() == 1 &&
        std::string_view("+-/*%~[](){}><=.:|,;").find(op[0]) == std::string_view::npos) {
      return false;
    }
    Balance(op[0]);
    Add(TokenKind::kOperator, std::string(op));
    pos_ += op.size();
    return true;
  }

  void Balance(char c) {
    if (c == '(') open_brackets_ += ')';
    if (c == '[') open_brackets_ += ']';
    if (c == '{') open_brackets_ += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open_brackets_.empty()) FailAt(line_, fmt::format("unexpected '{}'", c));
    if (open_brackets_.back() != c) {
      FailAt(line_, fmt::format("unexpected '{}', expected '{}'", c, open_brackets_.back()));
    }
    open_brackets_.pop_back();
  }

  const std::string storage_;
  const std::string_view all_;
  size_t pos_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;  // the text that follows stands first on its line
  std::string open_brackets_;  // the closing bracket each open one waits for
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Lex(std::string_view source) { return Lexer(source).Run(); }

void FailAt(uint32_t line, std::string_view message) {
  throw Failure(StatusCode::kInvalidArgument, fmt::format("line {}: {}", line, message),
                Located::kYes);
}

}  // namespace cleave::jinja

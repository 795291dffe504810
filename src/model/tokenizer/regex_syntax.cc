// From Oniguruma's Ruby syntax to PCRE2's, for what the two spell differently:
//   \w             Alphabetic, marks, digits and connectors; PCRE2 10.42 leaves marks out
//   \h             a hexadecimal digit; PCRE2: horizontal space
//   \uHHHH         \x{HHHH}
//   {,n}           {0,n}
//   X{m,n}+        (?:X{m,n})+; PCRE2: possessive
//   (?m:…)         (?s:…)
//   [a[bc]]        [abc]
//   [a&&[^b]]      (?![b])[a]
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/regex.h"
#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

// Members of Oniguruma's \w: it also holds the superscript and fraction digits of Latin-1.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})"
    R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kHexDigit = "0-9A-Fa-f";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> Run() {
    // Anchored at the run's first blank: each later start could only end where that one did.
    if (in_ == R"(\s+$)") return std::string(R"((?:\G|(?<!\s))\s+$)");
    while (pos_ < in_.size()) RETURN_IF_ERROR(Next());
    return std::move(out_);
  }

 private:
  [[nodiscard]] char Peek(size_t ahead = 0) const {
    return pos_ + ahead < in_.size() ? in_[pos_ + ahead] : '\0';
  }
  [[nodiscard]] Status Refuse(std::string_view what) const {
    return Unsupported(
        fmt::format("pattern \"{:.200}\": {} at byte {} is not supported", in_, what, pos_));
  }

  Status Next() {
    switch (Peek()) {
      case '\\':
        atom_ = out_.size();
        return Escape(&out_, Place::kOutside);
      case '[':
        atom_ = out_.size();
        return Class();
      case '(':
        return Open();
      case ')':
        atom_ = groups_.empty() ? out_.size() : groups_.back();
        if (!groups_.empty()) groups_.pop_back();
        out_.push_back(in_[pos_++]);
        return OkStatus();
      case '{':
        Interval();
        return OkStatus();
      case '*':
      case '+':
      case '?':
      case '|':
        out_.push_back(in_[pos_++]);
        return OkStatus();
      default:
        atom_ = out_.size();
        Copy(CharSize(Peek()));
        return OkStatus();
    }
  }

  void Copy(size_t bytes) {
    out_.append(in_.substr(pos_, bytes));
    pos_ += bytes;
  }

  enum class Place { kOutside, kInClass };

  // A class by its members, negated or not, bracketed where it must be.
  Status Members(std::string_view members, char letter, Place place, std::string* out) {
    const bool negated = letter >= 'A' && letter <= 'Z';
    if (place == Place::kInClass) {
      if (negated) return Refuse(fmt::format("\\{} inside a class", letter));
      out->append(members);
    } else {
      out->append(fmt::format("[{}{}]", negated ? "^" : "", members));
    }
    pos_ += 2;
    return OkStatus();
  }

  Status Escape(std::string* out, Place place) {
    const char letter = Peek(1);
    switch (letter) {
      case '\0':
        return Refuse("a \\ at the end");
      case 'w':
      case 'W':
        return Members(kWord, letter, place, out);
      case 'h':
      case 'H':
        return Members(kHexDigit, letter, place, out);
      case 'u':
        out->append(fmt::format("\\x{{{}}}", in_.substr(pos_ + 2, 4)));
        pos_ += 6;
        if (pos_ > in_.size()) return Refuse("a short \\u");
        return OkStatus();
      default:
        break;
    }
    const size_t size = 1 + CharSize(letter);
    out->append(in_.substr(pos_, size));
    pos_ += size;
    if ((letter == 'p' || letter == 'P' || letter == 'x') && Peek() == '{') {
      const size_t close = in_.find('}', pos_);
      if (close == std::string_view::npos) return Refuse("an open {");
      out->append(in_.substr(pos_, close + 1 - pos_));
      pos_ = close + 1;
    }
    return OkStatus();
  }

  // Members up to the closing bracket, nested classes taken in; stops before ']' or "&&".
  Status ClassMembers(std::string* members, int depth = 0) {
    if (depth > 16) return Refuse("nesting of classes deeper than 16");
    bool first = true;
    while (pos_ < in_.size()) {
      const char c = Peek();
      if (c == ']' && !first) return OkStatus();
      if (c == '&' && Peek(1) == '&') return OkStatus();
      first = false;
      if (c == '\\') {
        RETURN_IF_ERROR(Escape(members, Place::kInClass));
      } else if (c == '[' && Peek(1) == ':') {
        const size_t close = in_.find(":]", pos_ + 2);
        if (close == std::string_view::npos) return Refuse("an open [:");
        members->append(in_.substr(pos_, close + 2 - pos_));
        pos_ = close + 2;
      } else if (c == '[') {
        if (Peek(1) == '^') return Refuse("a negated class inside a class");
        ++pos_;
        RETURN_IF_ERROR(ClassMembers(members, depth + 1));
        if (Peek() != ']') return Refuse("this nested class");
        ++pos_;
      } else {
        const size_t size = CharSize(c);
        members->append(in_.substr(pos_, size));
        pos_ += size;
      }
    }
    return Refuse("an open class");
  }

  Status Class() {
    ++pos_;
    const bool negated = Peek() == '^';
    if (negated) ++pos_;
    std::string members;
    RETURN_IF_ERROR(ClassMembers(&members));
    if (Peek() == ']') {
      ++pos_;
      out_.append(fmt::format("[{}{}]", negated ? "^" : "", members));
      return OkStatus();
    }
    pos_ += 2;  // &&
    if (negated || in_.substr(pos_, 2) != "[^") return Refuse("this intersection of classes");
    pos_ += 2;
    std::string without;
    RETURN_IF_ERROR(ClassMembers(&without));
    if (in_.substr(pos_, 2) != "]]") return Refuse("this intersection of classes");
    pos_ += 2;
    out_.append(fmt::format("(?:(?![{}])[{}])", without, members));
    return OkStatus();
  }

  Status Open() {
    if (groups_.size() > 200) return Refuse("nesting deeper than 200");
    groups_.push_back(out_.size());
    out_.push_back(in_[pos_++]);
    if (Peek() != '?') return OkStatus();
    size_t end = pos_ + 1;
    while (end < in_.size() && std::string_view("imx-").find(in_[end]) != std::string_view::npos) {
      ++end;
    }
    const bool flags = end < in_.size() && (in_[end] == ':' || in_[end] == ')');
    for (; flags && pos_ < end; ++pos_) out_.push_back(in_[pos_] == 'm' ? 's' : in_[pos_]);
    if (!flags && (Peek(1) == '<' || Peek(1) == '=' || Peek(1) == '!' || Peek(1) == '>')) Copy(2);
    return OkStatus();
  }

  // "{" of an interval, or of itself.
  void Interval() {
    size_t end = pos_ + 1;
    while (end < in_.size() && (in_[end] == ',' || (in_[end] >= '0' && in_[end] <= '9'))) ++end;
    const std::string_view body = in_.substr(pos_ + 1, end - pos_ - 1);
    if (end >= in_.size() || in_[end] != '}' || body.empty() || body == ",") {
      atom_ = out_.size();
      out_.push_back(in_[pos_++]);
      return;
    }
    pos_ = end + 1;
    const bool repeated = Peek() == '+';
    if (repeated) out_.insert(atom_, "(?:");
    out_.append(fmt::format("{{{}{}}}", body.front() == ',' ? "0" : "", body));
    if (repeated) out_.push_back(')');
  }

  std::string_view in_;
  size_t pos_ = 0;
  std::string out_;
  size_t atom_ = 0;  // where the last atom starts in out_
  std::vector<size_t> groups_;
};

}  // namespace

Result<std::string> PatternForPcre2(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace cleave::tok

// The % operator of strings: "%-5s|%04d|%(name)s".
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "model/jinja/access.h"
#include "model/jinja/failure.h"
#include "model/jinja/format.h"
#include "model/jinja/numbers.h"
#include "model/jinja/print.h"

namespace cleave::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, const Text& format, const Value& value)
      : rt_(rt), format_(format), all_(format.view()), out_(&rt), value_(value) {
    const Sequence* sequence = value.sequence();
    if (sequence != nullptr && sequence->is_tuple()) tuple_ = sequence;
  }

  TextPtr Run() {
    while (pos_ < all_.size()) {
      const size_t percent = std::min(all_.find('%', pos_), all_.size());
      out_.Append(format_, pos_, percent);
      pos_ = percent;
      if (percent == all_.size()) break;
      rt_.Step();
      ++pos_;
      Directive();
    }
    // Python takes whatever can be subscripted for a mapping, which may hold more than is asked of.
    const Sequence* sequence = value_.sequence();
    const bool list = sequence != nullptr && !sequence->is_tuple() && sequence->subscriptable();
    const bool mapping = list || value_.dict() != nullptr || value_.IsUndefined();
    const bool all_used = tuple_ != nullptr ? next_ >= tuple_->items().size() : next_ > 0;
    if (!all_used && !mapping) {
      Fail("not all arguments converted during string formatting");
    }
    return out_.Finish(format_.markup());
  }

 private:
  char Peek() const {
    if (pos_ >= all_.size()) Fail("incomplete format");
    return all_[pos_];
  }

  Value Next() {
    if (tuple_ == nullptr) {
      if (next_++ > 0) Fail("not enough arguments for format string");
      return value_;
    }
    if (next_ >= tuple_->items().size()) Fail("not enough arguments for format string");
    return tuple_->items()[next_++];
  }

  Int NextInteger() {
    const Value value = Next();
    if (const Int* i = value.As<Int>()) return *i;
    Fail("* wants int");
  }

  Int Digits() {
    const size_t begin = pos_;
    while (pos_ < all_.size() && all_[pos_] >= '0' && all_[pos_] <= '9') ++pos_;
    if (begin == pos_) return 0;
    const auto number = ParseInt(all_.substr(begin, pos_ - begin), 10);
    return number.value_or(kIntMax);
  }

  // %(key): the value to format comes from a dict.
  std::optional<Value> Keyed() {
    if (Peek() != '(') return std::nullopt;
    const size_t end = all_.find(')', pos_);
    if (end == std::string_view::npos) Fail("incomplete format key");
    const std::string_view key = all_.substr(pos_ + 1, end - pos_ - 1);
    pos_ = end + 1;
    const Dict* dict = value_.dict();
    if (dict == nullptr) Fail("format requires a mapping");
    const Value* found = dict->Find(key);
    if (found == nullptr) Fail(fmt::format("no key '{}' for format", key.substr(0, 80)));
    return *found;
  }

  FieldStyle Style() {
    FieldStyle style;
    style.align = '>';
    bool zero = false;
    for (; std::string_view("#0- +").find(Peek()) != std::string_view::npos; ++pos_) {
      const char flag = all_[pos_];
      if (flag == '#') style.alternate = true;
      if (flag == '0') zero = true;
      if (flag == '-') style.align = '<';
      if (flag == '+' || (flag == ' ' && style.sign != '+')) style.sign = flag;
    }
    Int width = 0;
    if (Peek() == '*') {
      ++pos_;
      width = NextInteger();
      if (width < 0) style.align = '<', width = -width;
    } else {
      width = Digits();
    }
    style.width = CheckedWidth(width);
    if (Peek() == '.') {
      ++pos_;
      const bool star = Peek() == '*';
      if (star) ++pos_;
      style.precision = CheckedPrecision(std::max<Int>(0, star ? NextInteger() : Digits()));
    }
    while (std::string_view("hlL").find(Peek()) != std::string_view::npos) ++pos_;
    if (zero && style.align != '<') zero_fill_ = true;
    return style;
  }

  void Directive() {
    if (Peek() == '%') {
      ++pos_;
      return out_.Append("%", Origin::kTemplate);
    }
    zero_fill_ = false;
    const std::optional<Value> keyed = Keyed();
    FieldStyle style = Style();
    style.type = Peek();
    ++pos_;
    const Value value = keyed ? *keyed : Next();
    switch (style.type) {
      case 's':
        return PutText(Escaped(Str(rt_, value)), style);
      case 'r':
      case 'a':
        return PutText(Escaped(Repr(rt_, value)), style);
      case 'c':
        return PutCharacter(value, style);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return PutInteger(value, style);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return PutFloat(value, style);
      default:
        Fail(fmt::format("unsupported format character '{}'", style.type));
    }
  }

  TextPtr Escaped(TextPtr text) {
    if (format_.markup() == Markup::kNo) return text;
    return EscapeHtml(rt_, *text);
  }

  void PutText(const TextPtr& text, const FieldStyle& style) {
    AppendPadded(rt_, out_, *text, style);
  }

  void PutCharacter(const Value& value, FieldStyle style) {
    style.precision = -1;
    if (const Text* text = value.text()) {
      if (text->length() != 1) Fail("%c requires int or char");
      return AppendPadded(rt_, out_, *text, style);
    }
    const Int* code = value.As<Int>();
    if (code == nullptr) Fail("%c requires int or char");
    if (*code < 0) Fail("%c arg not in range(0x110000)");
    AppendNumber(rt_, out_, "", "", IntegerDigits(*code, style), style, value.origin());
  }

  Int ToInteger(const Value& value, char type) {
    if (const Int* i = value.As<Int>()) return *i;
    if (const bool* b = value.As<bool>()) return *b ? 1 : 0;
    const double* d = value.As<double>();
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (d == nullptr || !decimal) {
      FailIfUndefined(value);
      Fail(fmt::format("%{} format: a number is required, not {}", type, TypeName(value)));
    }
    const auto whole = TruncateToInt(*d);
    if (!whole) Fail("cannot convert this float to an integer");
    return *whole;
  }

  void PutInteger(const Value& value, const FieldStyle& style) {
    const Int number = ToInteger(value, style.type);
    std::string digits = IntegerDigits(number < 0 ? -number : number, style);
    const auto least = static_cast<size_t>(std::max(style.precision, 0));
    if (digits.size() < least) digits.insert(0, least - digits.size(), '0');
    Put(number < 0, PrefixOf(style), digits, style, value.origin());
  }

  void PutFloat(const Value& value, const FieldStyle& style) {
    double number = 0;
    if (const double* d = value.As<double>()) {
      number = *d;
    } else {
      FailIfUndefined(value);
      const bool integer = value.As<Int>() != nullptr || value.As<bool>() != nullptr;
      if (!integer) Fail(fmt::format("must be real number, not {}", TypeName(value)));
      number = static_cast<double>(ToInteger(value, 'd'));
    }
    Put(std::signbit(number), "", FloatDigits(std::fabs(number), style), style, value.origin());
  }

  void Put(bool negative, std::string_view prefix, std::string_view digits, FieldStyle style,
           Origin origin) {
    if (zero_fill_) style.fill = "0", style.align = '=';
    AppendNumber(rt_, out_, SignOf(negative, style), prefix, digits, style, origin);
  }

  Runtime& rt_;
  const Text& format_;
  const std::string_view all_;
  TextBuilder out_;
  const Value& value_;
  const Sequence* tuple_ = nullptr;
  size_t pos_ = 0;
  size_t next_ = 0;
  bool zero_fill_ = false;
};

}  // namespace

TextPtr FormatPercent(Runtime& rt, const Text& format, const Value& value) {
  return PercentFormatter(rt, format, value).Run();
}

}  // namespace cleave::jinja

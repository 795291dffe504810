#include "http/openai/json.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "http/openai/limits.h"

namespace cleave::openai {
namespace {

// Walks a body once, before any tree is built: bounds on depth and counts, and numbers that are not
// finite, named by the top-level field they stand in. It accepts more than JSON; the parser that
// follows decides what is well-formed.
class BodyScan {
 public:
  explicit BodyScan(std::string_view text) : text_(text) {}

  std::optional<ApiError> Run() {
    while (pos_ < text_.size()) {
      if (auto error = Step()) return error;
    }
    return std::nullopt;
  }

 private:
  std::optional<ApiError> Step() {
    const char c = text_[pos_];
    if (c == '"') {
      ScanString();
      return std::nullopt;
    }
    if (c == '-' || (c >= '0' && c <= '9') || c == 'N' || c == 'I') return ScanNumber();
    ++pos_;
    if (c == '[' || c == '{') return Enter();
    if (c == ']' || c == '}') {
      if (depth_ > 0) --depth_;
    } else if (c == ',') {
      return CountNode();
    } else if (c == ':') {
      return CountMember();
    }
    return std::nullopt;
  }

  void ScanString() {
    const size_t begin = ++pos_;
    while (pos_ < text_.size() && text_[pos_] != '"') pos_ += text_[pos_] == '\\' ? 2 : 1;
    if (depth_ == 1) last_string_ = text_.substr(begin, std::min(pos_, text_.size()) - begin);
    ++pos_;
  }

  std::optional<ApiError> ScanNumber() {
    const size_t begin = pos_;
    static constexpr std::string_view kNumberChars = "+-.0123456789eEINfinaty";
    while (pos_ < text_.size() && kNumberChars.find(text_[pos_]) != std::string_view::npos) ++pos_;
    const std::string_view token = text_.substr(begin, pos_ - begin);
    const char* first = token.data() + (token[0] == '-' ? 1 : 0);
    if (token.size() < 3) return std::nullopt;  // too short to overflow
    double value = 0;
    const auto [end, ec] = std::from_chars(first, token.data() + token.size(), value);
    const bool word = token.find_first_of("IN") != std::string_view::npos;
    const bool overflow = ec == std::errc::result_out_of_range && IsHuge(token);
    if (!word && !overflow) return std::nullopt;
    const std::string field(field_.empty() || !IsUtf8(field_) ? "body" : field_);
    return BadRequest(
        fmt::format("{} must hold finite numbers only, got {}", field, token.substr(0, 32)),
        field_.empty() ? std::string() : field);
  }

  // Out of range means too large, not too close to zero: a negative exponent reads as zero.
  static bool IsHuge(std::string_view token) {
    const size_t e = token.find_first_of("eE");
    return e == std::string_view::npos || e + 1 >= token.size() || token[e + 1] != '-';
  }

  std::optional<ApiError> Enter() {
    if (depth_ >= kMaxJsonDepth) {
      return BadRequest(fmt::format("the body is nested deeper than {} levels", kMaxJsonDepth));
    }
    members_[depth_++] = 0;
    return CountNode();
  }

  std::optional<ApiError> CountNode() {
    if (++nodes_ <= kMaxJsonNodes) return std::nullopt;
    return BadRequest(fmt::format("the body holds more than {} values", kMaxJsonNodes));
  }

  std::optional<ApiError> CountMember() {
    if (depth_ == 0) return std::nullopt;
    if (depth_ == 1) field_ = last_string_;
    if (++members_[depth_ - 1] > kMaxObjectMembers || ++all_members_ > kMaxJsonMembers) {
      return BadRequest(
          fmt::format("an object of the body holds more than {} members, or all together more "
                      "than {}",
                      kMaxObjectMembers, kMaxJsonMembers),
          std::string(IsUtf8(field_) ? field_ : ""));
    }
    return std::nullopt;
  }

  const std::string_view text_;
  size_t pos_ = 0;
  uint32_t depth_ = 0;
  std::array<size_t, kMaxJsonDepth> members_{};  // by level
  size_t all_members_ = 0;
  size_t nodes_ = 0;
  std::string_view last_string_;
  std::string_view field_;
};

}  // namespace

Parsed<Json> ParseJson(std::string_view body) {
  if (auto error = BodyScan(body).Run()) return *std::move(error);
  try {
    Json json = Json::parse(body);
    if (json.is_object()) return json;
    return BadRequest(fmt::format("the body must be a JSON object, got {}", json.type_name()));
  } catch (const Json::parse_error& e) {
    return BadRequest(fmt::format("the body is not valid JSON: error at byte {}", e.byte));
  } catch (const Json::exception&) {
    return BadRequest("the body is not valid JSON: a number is out of range");
  }
}

size_t Utf8CharBytes(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) -> uint32_t {
    return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0U;
  };
  const auto tail = [&](size_t k) { return (byte(k) & 0xC0U) == 0x80U; };
  const uint32_t b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return tail(1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    if (!tail(1) || !tail(2)) return 0;
    if (b == 0xE0 && byte(1) < 0xA0) return 0;   // overlong
    if (b == 0xED && byte(1) >= 0xA0) return 0;  // surrogates
    return 3;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if (b == 0xF0 && byte(1) < 0x90) return 0;
    if (b == 0xF4 && byte(1) >= 0x90) return 0;
    return 4;
  }
  return 0;
}

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = Utf8CharBytes(text, i);
    if (n == 0) return false;
    i += n;
  }
  return true;
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  return count;
}

void AppendJsonString(std::string_view text, std::string* out) {
  static constexpr std::string_view kShort = "btnvfr";  // by code from 8; v has no short form
  out->push_back('"');
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t n = Utf8CharBytes(text, i);
    if (n == 0) {
      out->append("\xEF\xBF\xBD");
    } else if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(text[i]);
    } else if (c >= 8 && c <= 13 && c != 11) {
      out->push_back('\\');
      out->push_back(kShort[c - 8U]);
    } else if (c < 0x20 || c == 0x7F) {
      fmt::format_to(std::back_inserter(*out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out->append(text.substr(i, n));
    }
    i += n == 0 ? 1 : n;
  }
  out->push_back('"');
}

void JsonWriter::Separate() {
  if (comma_) out_->push_back(',');
  comma_ = true;
}

JsonWriter& JsonWriter::Open(char c) {
  Separate();
  out_->push_back(c);
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Shut(char c) {
  out_->push_back(c);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Separate();
  AppendJsonString(key, out_);
  out_->push_back(':');
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view text) {
  Separate();
  AppendJsonString(text, out_);
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) {
  Separate();
  fmt::format_to(std::back_inserter(*out_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::Float(float value) {
  Separate();
  if (!std::isfinite(value)) value = -9999.0F;
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  const std::string_view digits(text.data(), static_cast<size_t>(end - text.data()));
  out_->append(digits);
  if (digits.find_first_of(".e") == std::string_view::npos) out_->append(".0");
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) { return Raw(value ? "true" : "false"); }

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  out_->append(json);
  return *this;
}

}  // namespace cleave::openai

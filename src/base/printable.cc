#include "base/printable.h"

#include <cstdint>

namespace cleave {
namespace {

// Bytes of the character that `text` begins with, 0 where it is not UTF-8 (Unicode, table 3-7).
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned>(static_cast<uint8_t>(text[i])) : 0U;
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool beyond = first == 0xF4 && byte(1) > 0x8F;
    return follows(1) && follows(2) && follows(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

bool IsControl(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;  // C1
}

void AppendEscaped(std::string_view bytes, std::string* out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    *out += "\\x";
    *out += kDigits[byte >> 4U];
    *out += kDigits[byte & 15U];
  }
}

}  // namespace

std::string Printable(std::string_view text, size_t most) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (out.size() >= most) {
      return out + "… (" + std::to_string(text.size()) + " bytes)";
    }
    const size_t bytes = CharacterBytes(text.substr(at));
    const std::string_view character = text.substr(at, bytes == 0 ? 1 : bytes);
    if (bytes == 0 || IsControl(character)) {
      AppendEscaped(character, &out);
    } else {
      out += character;
    }
    at += character.size();
  }
  return out;
}

}  // namespace cleave

#pragma once
// The byte-to-character map of byte-level BPE (GPT-2): printable Latin-1 bytes stand for
// themselves, the other 68 for U+0100, U+0101, … in order of the byte.
// Pure functions; any thread.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cleave::tok {

constexpr bool IsPrintableLatin1(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// [256], code points.
constexpr std::array<uint16_t, 256> MakeByteChars() {
  std::array<uint16_t, 256> map{};
  uint16_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    map[b] = IsPrintableLatin1(b) ? static_cast<uint16_t>(b) : next++;
  }
  return map;
}
inline constexpr std::array<uint16_t, 256> kByteToChar = MakeByteChars();

// Each byte as its character, in UTF-8.
void AppendByteChars(std::string_view bytes, std::string* out);
// The bytes that `text` stands for; nothing when a character stands for no byte.
std::optional<std::string> BytesOfByteChars(std::string_view text);

}  // namespace cleave::tok

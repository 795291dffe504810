#pragma once
// UTF-8 as tokenizers need it: decoding of valid text, and the replacement of ill-formed bytes by
// U+FFFD one maximal subpart at a time (Unicode 15, section 3.9, as Rust's and Python's lossy
// decoders do).
// Pure functions; any thread; nothing fails.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cleave::tok {

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the front of some bytes.
enum class UnitKind { kCharacter, kIllFormed, kUnfinished };
struct Utf8Unit {
  size_t size = 0;
  UnitKind kind = UnitKind::kCharacter;
};
// `bytes` is not empty. kUnfinished: more bytes could still make it a character.
Utf8Unit ScanUnit(std::string_view bytes);

[[nodiscard]] bool IsValidUtf8(std::string_view bytes);
// The whole of `bytes`, each ill-formed part (an unfinished end too) as one U+FFFD.
std::string LossyUtf8(std::string_view bytes);
// Moves everything but an unfinished last character from *pending to *out.
void DrainLossy(std::string* pending, std::string* out);

// Bytes of the character that starts with `lead`; the text is valid.
inline size_t CharSize(char lead) {
  const auto c = static_cast<unsigned char>(lead);
  if (c < 0x80) return 1;
  if (c < 0xE0) return 2;
  return c < 0xF0 ? 3 : 4;
}
// Decodes the character at text[*pos] of valid text and moves *pos behind it.
uint32_t NextCodePoint(std::string_view text, size_t* pos);
void AppendCodePoint(uint32_t code_point, std::string* out);

}  // namespace cleave::tok

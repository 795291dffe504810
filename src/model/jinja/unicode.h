#pragma once
// UTF-8 as Python sees text: code points, character classes and case mapping. Pure; any thread.
// A byte that is not part of valid UTF-8 counts as one character and passes through unchanged.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cleave::jinja {

struct CodePoint {
  char32_t value = 0;
  uint32_t size = 1;  // bytes
  bool valid = true;
};

// pos < text.size().
CodePoint DecodeAt(std::string_view text, size_t pos);
// The character that ends at `end`, 0 < end <= text.size().
CodePoint DecodeBefore(std::string_view text, size_t end);
size_t CountCodePoints(std::string_view text);
void AppendUtf8(std::string& out, char32_t c);

// Python's str.isspace; the others follow the method of the same name on one character.
bool IsSpace(char32_t c);
bool IsLineBreak(char32_t c);  // str.splitlines
bool IsPrintable(char32_t c);
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);
inline bool IsAlnum(char32_t c) { return IsAlpha(c) || IsNumeric(c) || IsDigit(c); }

enum class CaseMapping { kUpper, kLower, kTitle, kCapitalize, kSwap, kFold };
std::string MapCase(std::string_view text, CaseMapping mapping);

}  // namespace cleave::jinja

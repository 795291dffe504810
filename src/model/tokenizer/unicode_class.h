#pragma once
// Character classes of the reference libraries' own code (not of patterns): Unicode properties
// from ICU. Pure; any thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace cleave::tok {

bool IsWhiteSpace(uint32_t code_point);  // the White_Space property
bool IsWordChar(uint32_t code_point);    // \w of UTS 18: Alphabetic, marks, digits, connectors

// Bytes of white space at the begin and at the end of valid text.
size_t LeadingBlanks(std::string_view text);
size_t TrailingBlanks(std::string_view text);
// The character that ends before `end`; end > 0.
uint32_t CodePointBefore(std::string_view text, size_t end);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Valid UTF-8 in and out. Text that ICU can not take (no data) stays as it is.
std::string Normalize(NormalForm form, std::string_view text);
// Each character's full lower case on its own.
std::string LowerCase(std::string_view text);

}  // namespace cleave::tok

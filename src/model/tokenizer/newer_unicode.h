#pragma once
// PCRE2 10.42 classifies by Unicode 14, the reference libraries by Unicode 16, and PCRE2 counts
// U+180E as white space. Patterns are therefore matched against a copy of the text in which such
// code points are replaced by older ones of the same category and UTF-8 length: matches keep their
// offsets, and only classes, never literals, see the difference.
// Pure; any thread.

#include <string>
#include <string_view>

namespace cleave::tok {

// `text` (valid UTF-8) itself, or *buffer holding the copy.
std::string_view ForMatching(std::string_view text, std::string* buffer);

}  // namespace cleave::tok

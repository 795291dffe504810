#pragma once
// Patterns for what the reference library does in code of its own, in Oniguruma's spelling.
// The classes follow that code's Unicode version, measured over all code points (tokenizers
// 0.23.3).

#include <string_view>

namespace cleave::tok {

// ByteLevel with use_regex: GPT-2's cut.
inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Digits: numbers of Unicode 17.
inline constexpr std::string_view kNumber = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";

// Punctuation: that of ASCII, and category P of Unicode 8.
inline constexpr std::string_view kPunctuation =
    R"([!-/:-@\[-`{-~\x{166D}\x{111C9}]|(?![\x{61D}\x{9FD}\x{A76}\x{C77}\x{C84}\x{1B7D}\x{1B7E})"
    R"(\x{2E43}-\x{2E4F}\x{2E52}-\x{2E5D}\x{10EAD}\x{10F55}-\x{10F59}\x{10F86}-\x{10F89})"
    R"(\x{1144B}-\x{1144F}\x{1145A}\x{1145B}\x{1145D}\x{11660}-\x{1166C}\x{116B9}\x{1183B})"
    R"(\x{11944}-\x{11946}\x{119E2}\x{11A3F}-\x{11A46}\x{11A9A}-\x{11A9C}\x{11A9E}-\x{11AA2})"
    R"(\x{11C41}-\x{11C45}\x{11C70}\x{11C71}\x{11EF7}\x{11EF8}\x{11FFF}\x{12FF1}\x{12FF2})"
    R"(\x{16E97}-\x{16E9A}\x{16FE2}\x{1E95E}\x{1E95F}])\p{P})";

// Whitespace: runs of word characters (UTS 18), and of what is neither those nor blanks.
inline constexpr std::string_view kWordsAndMarks =
    R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149})"
    R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]+)"
    R"(|[^\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149})"
    R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}\s]+)";

}  // namespace cleave::tok

#pragma once
// Text of unknown origin (a file's names, a peer's words) as a terminal or a log line may show it.
// Pure; any thread.

#include <cstddef>
#include <string>
#include <string_view>

namespace cleave {

// Longer than any message of ours; names in a damaged file may have 64 kB.
constexpr size_t kMaxPrintedBytes = 4096;

// `text` with control characters (C0, DEL, C1) and bytes that are not UTF-8 written as \xNN, so
// that it can neither move a cursor nor begin a line; past `most` bytes it is cut and its length
// told.
std::string Printable(std::string_view text, size_t most = kMaxPrintedBytes);

}  // namespace cleave

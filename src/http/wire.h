#pragma once
// The text of HTTP/1.1 answers: status lines, heads, chunks. Pure; any thread.

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "http/server.h"

namespace cleave::http {

std::string_view StatusPhrase(int status);

bool EqualsIgnoreCase(std::string_view a, std::string_view b);

// Splits a request target (origin form, or absolute form as proxies send it) into path and query.
void SplitTarget(std::string_view target, std::string* path, std::string* query);

enum class Framing { kLength, kChunked, kUntilClose };

struct HeadOptions {
  Framing framing = Framing::kLength;
  bool close = false;  // the connection ends with this answer
  std::time_t now = 0;
};

// Status line and headers, with the empty line. Header values are the caller's duty to keep free of
// line breaks; any found are dropped together with their header.
std::string FormatHead(const Response& response, const HeadOptions& options);

// One chunk of a chunked body; nothing for no bytes (an empty chunk would end the body).
void AppendChunk(std::string_view bytes, std::string* out);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace cleave::http

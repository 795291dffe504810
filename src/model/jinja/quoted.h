#pragma once
// Text between quotes with escapes, as repr() and JSON both write it. One thread, the render's.

#include <string>
#include <string_view>

#include "model/jinja/text.h"
#include "model/jinja/unicode.h"

namespace cleave::jinja {

// The escape of a character that both write alike; "" for any other.
inline std::string_view CommonEscape(char32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\\':
      return "\\\\";
    default:
      return {};
  }
}

// Appends `text` between quotes; `escape(out, c, bytes)` writes each character but the common ones.
// In stretches, so that text of unprintable characters meets the bound on bytes before it is spelt
// out.
template <typename Escape>
void AppendQuoted(TextBuilder& to, std::string_view text, char quote, Origin origin,
                  const Escape& escape) {
  constexpr size_t kStretchBytes = 4096;
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    const std::string_view common = CommonEscape(c.value);
    out += common;
    if (common.empty()) escape(out, c, text.substr(pos, c.size));
    pos += c.size;
    if (out.size() < kStretchBytes) continue;
    to.Append(out, origin);
    out.clear();
  }
  out += quote;
  to.Append(out, origin);
}

}  // namespace cleave::jinja

#include "model/tokenizer/newer_unicode.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <iterator>

#include "model/tokenizer/utf8.h"

namespace cleave::tok {
namespace {

struct NewerRange {
  uint32_t first;
  uint32_t last;
  uint32_t stand_in;
};

constexpr NewerRange kNewer[] = {
#include "model/tokenizer/newer_unicode.inc"
};

// Which blocks of 256 code points hold any of them: most text needs no search.
constexpr size_t kPages = 0x110000 >> 8U;
std::bitset<kPages> MakePages() {
  std::bitset<kPages> pages;
  for (const NewerRange& range : kNewer) {
    for (uint32_t page = range.first >> 8U; page <= range.last >> 8U; ++page) pages.set(page);
  }
  return pages;
}

uint32_t StandIn(uint32_t cp) {
  static const std::bitset<kPages> pages = MakePages();
  if (!pages[cp >> 8U]) return cp;
  const auto* range = std::upper_bound(std::begin(kNewer), std::end(kNewer), cp,
                                       [](uint32_t c, const NewerRange& r) { return c < r.first; });
  if (range == std::begin(kNewer)) return cp;
  --range;
  return cp <= range->last ? range->stand_in : cp;
}

}  // namespace

std::string_view ForMatching(std::string_view text, std::string* buffer) {
  bool copied = false;
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t begin = pos;
    if (static_cast<unsigned char>(text[pos]) < 0xE0) {  // all of them take 3 or 4 bytes
      ++pos;
      continue;
    }
    const uint32_t cp = NextCodePoint(text, &pos);
    const uint32_t stand_in = StandIn(cp);
    if (stand_in == cp) continue;
    if (!copied) buffer->assign(text);
    copied = true;
    std::string encoded;
    AppendCodePoint(stand_in, &encoded);
    buffer->replace(begin, encoded.size(), encoded);
  }
  return copied ? std::string_view(*buffer) : text;
}

}  // namespace cleave::tok

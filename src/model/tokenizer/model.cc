#include "model/tokenizer/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "model/tokenizer/utf8.h"

namespace cleave::tok {

bool ByteTokens::complete() const {
  return std::find(std::begin(ids), std::end(ids), kNoToken) == std::end(ids);
}

ByteTokens FindByteTokens(const Vocab& vocab) {
  ByteTokens tokens{};
  for (unsigned b = 0; b < 256; ++b) tokens.ids[b] = vocab.Find(fmt::format("<0x{:02X}>", b));
  return tokens;
}

Neighbours::Neighbours(const Vocab& vocab) : bits_((size_t{1} << kBitsLog2) / 64, 0) {
  for (int32_t id = 0; id < vocab.size(); ++id) {
    const std::string_view text = vocab.Text(id);
    if (text.empty()) continue;
    if (!IsValidUtf8(text)) continue;  // can not come from text, which is valid
    size_t pos = 0;
    uint32_t left = NextCodePoint(text, &pos);
    while (pos < text.size()) {
      const uint32_t right = NextCodePoint(text, &pos);
      const uint32_t bit = BitOf(left, right);
      bits_[bit >> 6U] |= uint64_t{1} << (bit & 63U);
      left = right;
    }
  }
}

}  // namespace cleave::tok

#pragma once
// TextModel: turns one word (what the pre-tokenizer cut) into token ids.
// Owner: a tokenizer; const once made, any thread, each call with its caller's own scratch.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer/merge.h"
#include "model/tokenizer/vocab.h"

namespace cleave::tok {

// kNoControl: words of user text, from which no control token may come even where the vocabulary
// would merge or spell one.
enum class Guard { kNone, kNoControl };

class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual void EncodeWord(std::string_view word, Guard guard, MergeScratch* scratch,
                          std::vector<int32_t>* ids) const = 0;
};

// A property of tokens by id; ids beyond the end do not have it.
using TokenFlags = std::vector<bool>;
inline bool HasFlag(const TokenFlags& flags, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < flags.size() && flags[id];
}

struct ModelTokens {
  TokenFlags control;     // control tokens
  TokenFlags added_only;  // known as added tokens only: the model itself does not make them
};

// Ids of "<0x00>" to "<0xFF>" (byte fallback), kNoToken where there is none.
struct ByteTokens {
  int32_t ids[256];
  [[nodiscard]] bool complete() const;
};
ByteTokens FindByteTokens(const Vocab& vocab);

// Which characters stand next to each other inside some token: where two do not, no merge can
// reach across. One-sided: may say yes wrongly (a hashed bit set), never no.
class Neighbours {
 public:
  explicit Neighbours(const Vocab& vocab);
  [[nodiscard]] bool Meet(uint32_t left, uint32_t right) const {
    const uint32_t bit = BitOf(left, right);
    return (bits_[bit >> 6U] >> (bit & 63U) & 1U) != 0;
  }

 private:
  static constexpr unsigned kBitsLog2 = 22;
  static uint32_t BitOf(uint32_t left, uint32_t right) {
    const uint64_t pair = (uint64_t{left} << 32U) | right;
    return static_cast<uint32_t>((pair * 0x9e3779b97f4a7c15ULL) >> (64 - kBitsLog2));
  }
  std::vector<uint64_t> bits_;
};

}  // namespace cleave::tok

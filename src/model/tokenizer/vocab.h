#pragma once
// Vocab: token texts by id and ids by text. All texts lie in one buffer; the index is one flat
// table (open addressing, at most half full).
//
// Owner: a tokenizer; filled once, then const, any thread. Ids may leave gaps.
// Fails: Add says what was wrong (an id out of range, a text or an id given twice).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cleave::tok {

inline constexpr int32_t kNoToken = -1;
// The largest vocabulary in use has 262144 tokens; the bound keeps a hostile id from asking memory.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;
inline constexpr size_t kMaxVocabBytes = size_t{1} << 30;

uint64_t HashText(std::string_view text);

class Vocab {
 public:
  void Reserve(size_t tokens, size_t bytes);
  Status Add(int64_t id, std::string_view text);

  // kNoToken when there is none.
  [[nodiscard]] int32_t Find(std::string_view text) const;
  // Empty for an id that is out of range or in a gap.
  [[nodiscard]] std::string_view Text(int32_t id) const;
  [[nodiscard]] bool Has(int64_t id) const;
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(places_.size()); }
  [[nodiscard]] size_t token_count() const { return count_; }

 private:
  struct Place {
    uint32_t begin = 0;
    uint32_t size = kAbsent;
  };
  struct Slot {
    uint32_t tag = 0;  // upper half of the hash
    int32_t id = kNoToken;
  };
  static constexpr uint32_t kAbsent = UINT32_MAX;

  void Grow();
  size_t SlotOf(uint64_t hash, std::string_view text) const;

  std::string bytes_;
  std::vector<Place> places_;  // by id
  std::vector<Slot> slots_;    // a power of two
  size_t count_ = 0;
};

}  // namespace cleave::tok

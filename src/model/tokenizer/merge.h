#pragma once
// The merge loop that byte-level BPE and SentencePiece BPE share: of all neighbouring symbols that
// may merge, the pair with the lowest key does, the leftmost of equals, until none may.
//
// Short words scan their keys (a few cache lines); long ones keep a heap whose outdated entries
// are recognised by their key: n log n whatever the text. Both give the same result.
// Owner of the scratch: one call of Encode. Any thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cleave::tok {

inline constexpr uint32_t kNoMerge = UINT32_MAX;

struct Candidate {
  uint32_t key = kNoMerge;  // rank of the merge, lower first
  int32_t id = -1;          // token that the pair becomes
};

struct Symbol {
  int32_t id = -1;     // -1: no token has this text (SentencePiece only)
  uint32_t begin = 0;  // bytes of the word
  uint32_t size = 0;   // 0 once merged into its left neighbour
  int32_t prev = -1;
  int32_t next = -1;
  Candidate pair;  // with the next symbol
};

struct MergeScratch {
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;  // key and position
  std::string text;
};

// PairOf: Candidate(const Symbol& left, const Symbol& right), neighbours.
template <typename PairOf>
void MergeByScan(std::vector<Symbol>* symbols, const PairOf& pair_of) {
  std::vector<Symbol>& s = *symbols;
  for (size_t i = 0; i + 1 < s.size(); ++i) s[i].pair = pair_of(s[i], s[i + 1]);
  while (s.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < s.size(); ++i) {
      if (s[i].pair.key < s[best].pair.key) best = i;
    }
    if (s[best].pair.key == kNoMerge) return;
    s[best].id = s[best].pair.id;
    s[best].size += s[best + 1].size;
    s.erase(s.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    s[best].pair = best + 1 < s.size() ? pair_of(s[best], s[best + 1]) : Candidate{};
    if (best > 0) s[best - 1].pair = pair_of(s[best - 1], s[best]);
  }
}

template <typename PairOf>
class HeapMerger {
 public:
  HeapMerger(MergeScratch* scratch, const PairOf& pair_of)
      : s_(scratch->symbols), heap_(scratch->heap), pair_of_(pair_of) {}

  void Run() {
    Start();
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const auto key = static_cast<uint32_t>(heap_.back() >> 32U);
      const auto at = static_cast<int32_t>(heap_.back() & UINT32_MAX);
      heap_.pop_back();
      if (s_[at].size == 0 || s_[at].pair.key != key) continue;  // outdated
      Merge(at);
    }
    s_.erase(std::remove_if(s_.begin(), s_.end(), [](const Symbol& x) { return x.size == 0; }),
             s_.end());
  }

 private:
  static uint64_t Entry(uint32_t key, size_t at) { return (uint64_t{key} << 32U) | at; }

  void Start() {
    heap_.clear();
    for (size_t i = 0; i < s_.size(); ++i) {
      s_[i].prev = static_cast<int32_t>(i) - 1;
      s_[i].next = i + 1 < s_.size() ? static_cast<int32_t>(i) + 1 : -1;
      s_[i].pair = i + 1 < s_.size() ? pair_of_(s_[i], s_[i + 1]) : Candidate{};
      if (s_[i].pair.key != kNoMerge) heap_.push_back(Entry(s_[i].pair.key, i));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void Merge(int32_t at) {
    Symbol& left = s_[at];
    Symbol& right = s_[left.next];
    left.id = left.pair.id;
    left.size += right.size;
    right.size = 0;
    left.next = right.next;
    if (left.next >= 0) s_[left.next].prev = at;
    Look(at);
    if (left.prev >= 0) Look(left.prev);
  }

  void Look(int32_t at) {
    Symbol& left = s_[at];
    left.pair = left.next >= 0 ? pair_of_(left, s_[left.next]) : Candidate{};
    if (left.pair.key == kNoMerge) return;
    heap_.push_back(Entry(left.pair.key, static_cast<size_t>(at)));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  std::vector<Symbol>& s_;
  std::vector<uint64_t>& heap_;
  const PairOf& pair_of_;
};

// Merges scratch->symbols; what is left stands in order. At most 2^31 - 1 symbols.
template <typename PairOf>
void MergeSymbols(MergeScratch* scratch, const PairOf& pair_of) {
  constexpr size_t kScanAtMost = 32;
  if (scratch->symbols.size() <= kScanAtMost) {
    MergeByScan(&scratch->symbols, pair_of);
  } else {
    HeapMerger<PairOf>(scratch, pair_of).Run();
  }
}

}  // namespace cleave::tok

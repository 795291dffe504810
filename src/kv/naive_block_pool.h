#pragma once
// NaiveBlockPool: what BlockPool does, in lists and maps, slow and obviously right. Tests compare
// the two, and the scheduler's naive model stands on it. Not linked into any library.

#include <algorithm>
#include <list>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kv/block_pool.h"

namespace cleave {

class NaiveBlockPool {
 public:
  explicit NaiveBlockPool(uint32_t num_blocks, uint32_t partitions = 1)
      : each_(num_blocks / partitions), references_(num_blocks) {
    for (uint32_t i = 0; i < num_blocks; ++i) free_.push_back(static_cast<BlockId>(i));
  }

  [[nodiscard]] uint32_t free_blocks() const { return static_cast<uint32_t>(free_.size()); }
  [[nodiscard]] uint32_t free_blocks(uint32_t partition) const {
    return static_cast<uint32_t>(std::count_if(
        free_.begin(), free_.end(), [&](BlockId block) { return IsIn(block, partition); }));
  }
  [[nodiscard]] uint32_t references(BlockId b) const { return references_[static_cast<size_t>(b)]; }

  BlockId Allocate(uint32_t partition = 0) {
    const auto first = std::find_if(free_.begin(), free_.end(),
                                    [&](BlockId block) { return IsIn(block, partition); });
    if (first == free_.end()) return kNoBlock;
    const BlockId block = *first;
    free_.erase(first);
    std::erase_if(names_, [block](const auto& entry) { return entry.second == block; });
    references_[static_cast<size_t>(block)] = 1;
    return block;
  }
  [[nodiscard]] BlockId Find(const BlockHash& name) const {
    const auto it = names_.find({name.lo, name.hi});
    return it == names_.end() ? kNoBlock : it->second;
  }
  void Acquire(BlockId block) {
    free_.remove(block);
    ++references_[static_cast<size_t>(block)];
  }
  void Publish(BlockId block, const BlockHash& name) {
    if (!HasName(block)) names_.insert({{name.lo, name.hi}, block});
  }
  void Release(std::span<const BlockId> table) {
    for (size_t i = table.size(); i > 0; --i) {
      const BlockId block = table[i - 1];
      if (--references_[static_cast<size_t>(block)] > 0) continue;
      free_.insert(HasName(block) ? free_.end() : free_.begin(), block);
    }
  }

 private:
  [[nodiscard]] bool IsIn(BlockId block, uint32_t partition) const {
    return static_cast<uint32_t>(block) / each_ == partition;
  }
  [[nodiscard]] bool HasName(BlockId block) const {
    for (const auto& [name, owner] : names_) {
      if (owner == block) return true;
    }
    return false;
  }

  const uint32_t each_;  // blocks of a partition
  std::vector<uint32_t> references_;
  std::list<BlockId> free_;
  std::map<std::pair<uint64_t, uint64_t>, BlockId> names_;
};

}  // namespace cleave

#pragma once
// BlockPool: who holds which block of the KV cache, and which free blocks still hold something
// worth finding again. It moves numbers, never bytes: keys and values live with the executor.
//
// A block is used (one or more references) or free. A used or free block may be published under
// the name of its content (kv/block_hash.h); a published block that is free can be found and taken
// again until Allocate needs it. Allocate takes free blocks that hold nothing first, then the
// least recently freed; a sequence's last blocks count as freed before its first, since a prefix
// is useless without its beginning.
//
// Blocks may lie in several partitions of equal size, each with free blocks of its own: the
// memories of ranks that share a sequence by position. Partition p has the ids [p · n, (p + 1) ·
// n), where n = num_blocks / partitions. Names are found over all of them.
//
// Owner: the scheduler; one thread. All memory is taken at construction. Misuse (releasing a free
// block) is a programmer's error and ends the process.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kv/block_hash.h"

namespace cleave {

using BlockId = int32_t;
inline constexpr BlockId kNoBlock = -1;

class BlockPool {
 public:
  // `num_blocks` is a multiple of `partitions`, which is 1 … kMaxPartitions.
  explicit BlockPool(uint32_t num_blocks, uint32_t partitions = 1);
  static constexpr uint32_t kMaxPartitions = 65536;

  [[nodiscard]] uint32_t num_blocks() const { return static_cast<uint32_t>(blocks_.size()); }
  [[nodiscard]] uint32_t partitions() const { return static_cast<uint32_t>(free_.size()); }
  [[nodiscard]] uint32_t partition(BlockId block) const { return At(block).partition; }
  // In all, and of one partition.
  [[nodiscard]] uint32_t free_blocks() const { return free_blocks_; }
  [[nodiscard]] uint32_t free_blocks(uint32_t partition) const { return free_[partition].blocks; }
  [[nodiscard]] uint32_t references(BlockId block) const { return At(block).references; }

  // A block of the partition, with one reference and unknown content; kNoBlock when all are used.
  BlockId Allocate(uint32_t partition = 0);
  // The block published under `name`, used or free; kNoBlock when there is none.
  [[nodiscard]] BlockId Find(const BlockHash& name) const;
  // One more reference to a block that Find returned.
  void Acquire(BlockId block);
  // `block` (used) holds the content of `name` and will not be written again. When another block
  // has that name already, or this one has a name, nothing changes.
  void Publish(BlockId block, const BlockHash& name);
  // One reference less to each block of a sequence's table.
  void Release(std::span<const BlockId> table);

  // References, free list and names agree; names the first fault.
  [[nodiscard]] Status CheckIntegrity() const;

 private:
  struct Block {
    BlockHash name;
    uint32_t references = 0;
    bool published = false;
    uint16_t partition = 0;
    BlockId prev = kNoBlock;  // neighbours in the free list
    BlockId next = kNoBlock;
  };
  struct FreeList {
    BlockId head = kNoBlock;  // next to be allocated
    BlockId tail = kNoBlock;
    uint32_t blocks = 0;
  };

  Block& At(BlockId block) { return blocks_[static_cast<size_t>(block)]; }
  [[nodiscard]] const Block& At(BlockId block) const { return blocks_[static_cast<size_t>(block)]; }
  void PushFree(BlockId block);
  void Unlink(BlockId block);
  void ReleaseOne(BlockId block);
  [[nodiscard]] size_t Home(const BlockHash& name) const { return name.lo & slot_mask_; }
  [[nodiscard]] size_t SlotOf(const BlockHash& name) const;
  void EraseName(const BlockHash& name);
  [[nodiscard]] Status CheckFreeList(uint32_t partition) const;
  [[nodiscard]] Status CheckNames() const;

  std::vector<Block> blocks_;
  std::vector<FreeList> free_;  // by partition
  uint32_t free_blocks_ = 0;    // of all lists
  // Open addressing with linear probing, at most half full: block ids, kNoBlock where empty.
  std::vector<BlockId> slots_;
  size_t slot_mask_ = 0;
};

}  // namespace cleave

#include "kv/block_pool.h"

#include <fmt/format.h>

#include <bit>

namespace cleave {

BlockPool::BlockPool(uint32_t num_blocks)
    : blocks_(num_blocks),
      slots_(std::bit_ceil(2 * static_cast<size_t>(num_blocks) + 1), kNoBlock),
      slot_mask_(slots_.size() - 1) {
  for (uint32_t i = num_blocks; i > 0; --i) PushFree(static_cast<BlockId>(i - 1));
}

BlockId BlockPool::Allocate() {
  const BlockId block = free_head_;
  if (block == kNoBlock) return kNoBlock;
  Unlink(block);
  if (At(block).published) {
    EraseName(At(block).name);
    At(block).published = false;
  }
  At(block).references = 1;
  return block;
}

BlockId BlockPool::Find(const BlockHash& name) const { return slots_[SlotOf(name)]; }

void BlockPool::Acquire(BlockId block) {
  if (At(block).references == 0) Unlink(block);
  ++At(block).references;
}

void BlockPool::Publish(BlockId block, const BlockHash& name) {
  CLEAVE_CHECK(At(block).references > 0);
  if (At(block).published) return;
  BlockId& slot = slots_[SlotOf(name)];
  if (slot != kNoBlock) return;
  slot = block;
  At(block).name = name;
  At(block).published = true;
}

void BlockPool::Release(std::span<const BlockId> table) {
  for (auto block = table.rbegin(); block != table.rend(); ++block) ReleaseOne(*block);
}

void BlockPool::ReleaseOne(BlockId block) {
  CLEAVE_CHECK(At(block).references > 0);
  if (--At(block).references == 0) PushFree(block);
}

// Published blocks go to the end; those that hold nothing to find go first.
void BlockPool::PushFree(BlockId block) {
  Block& b = At(block);
  ++free_blocks_;
  if (b.published) {
    b.prev = free_tail_;
    b.next = kNoBlock;
    (free_tail_ == kNoBlock ? free_head_ : At(free_tail_).next) = block;
    free_tail_ = block;
  } else {
    b.prev = kNoBlock;
    b.next = free_head_;
    (free_head_ == kNoBlock ? free_tail_ : At(free_head_).prev) = block;
    free_head_ = block;
  }
}

void BlockPool::Unlink(BlockId block) {
  Block& b = At(block);
  (b.prev == kNoBlock ? free_head_ : At(b.prev).next) = b.next;
  (b.next == kNoBlock ? free_tail_ : At(b.next).prev) = b.prev;
  b.prev = b.next = kNoBlock;
  --free_blocks_;
}

// The slot that holds `name`, or the empty one where it would go.
size_t BlockPool::SlotOf(const BlockHash& name) const {
  size_t slot = Home(name);
  while (slots_[slot] != kNoBlock && At(slots_[slot]).name != name) slot = (slot + 1) & slot_mask_;
  return slot;
}

// Moves later entries of the probe run back over the hole, so that no run ever has one.
void BlockPool::EraseName(const BlockHash& name) {
  size_t hole = SlotOf(name);
  for (size_t next = (hole + 1) & slot_mask_; slots_[next] != kNoBlock;
       next = (next + 1) & slot_mask_) {
    const size_t home = Home(At(slots_[next]).name);
    const size_t from_home = (next - home) & slot_mask_;
    const size_t from_hole = (next - hole) & slot_mask_;
    if (from_home < from_hole) continue;  // its home lies behind the hole
    slots_[hole] = slots_[next];
    hole = next;
  }
  slots_[hole] = kNoBlock;
}

Status BlockPool::CheckIntegrity() const {
  uint32_t listed = 0;
  BlockId prev = kNoBlock;
  for (BlockId b = free_head_; b != kNoBlock; prev = b, b = At(b).next) {
    if (At(b).prev != prev) return Internal(fmt::format("free list broken before block {}", b));
    if (At(b).references != 0) return Internal(fmt::format("block {} is free and used", b));
    if (++listed > num_blocks()) return Internal("free list has a cycle");
  }
  if (prev != free_tail_) return Internal("free list does not end at its tail");
  uint32_t unused = 0;
  uint32_t published = 0;
  for (BlockId b = 0; b < static_cast<BlockId>(num_blocks()); ++b) {
    unused += At(b).references == 0 ? 1 : 0;
    if (!At(b).published) continue;
    ++published;
    if (Find(At(b).name) != b) return Internal(fmt::format("block {} cannot be found", b));
  }
  uint32_t named = 0;
  for (const BlockId slot : slots_) named += slot != kNoBlock ? 1 : 0;
  if (listed != unused || listed != free_blocks_) {
    return Internal(fmt::format("{} blocks in the free list, {} without references, {} counted",
                                listed, unused, free_blocks_));
  }
  if (named != published) {
    return Internal(fmt::format("{} names for {} published blocks", named, published));
  }
  return OkStatus();
}

}  // namespace cleave

#include "kv/block_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace cleave {

BlockPool::BlockPool(uint32_t num_blocks, uint32_t partitions)
    : blocks_(num_blocks),
      free_(partitions),
      slots_(std::bit_ceil(2 * static_cast<size_t>(num_blocks) + 1), kNoBlock),
      slot_mask_(slots_.size() - 1) {
  CLEAVE_CHECK(partitions > 0 && partitions <= kMaxPartitions && num_blocks % partitions == 0);
  const uint32_t each = num_blocks / partitions;
  for (uint32_t i = num_blocks; i > 0; --i) {
    blocks_[i - 1].partition = static_cast<uint16_t>((i - 1) / each);
    PushFree(static_cast<BlockId>(i - 1));
  }
}

BlockId BlockPool::Allocate(uint32_t partition) {
  const BlockId block = free_[partition].head;
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
  FreeList& list = free_[b.partition];
  ++list.blocks;
  ++free_blocks_;
  if (b.published) {
    b.prev = list.tail;
    b.next = kNoBlock;
    (list.tail == kNoBlock ? list.head : At(list.tail).next) = block;
    list.tail = block;
  } else {
    b.prev = kNoBlock;
    b.next = list.head;
    (list.head == kNoBlock ? list.tail : At(list.head).prev) = block;
    list.head = block;
  }
}

void BlockPool::Unlink(BlockId block) {
  Block& b = At(block);
  FreeList& list = free_[b.partition];
  (b.prev == kNoBlock ? list.head : At(b.prev).next) = b.next;
  (b.next == kNoBlock ? list.tail : At(b.next).prev) = b.prev;
  b.prev = b.next = kNoBlock;
  --list.blocks;
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

Status BlockPool::CheckFreeList(uint32_t partition) const {
  const FreeList& list = free_[partition];
  const uint32_t each = num_blocks() / partitions();
  uint32_t listed = 0;
  BlockId prev = kNoBlock;
  for (BlockId b = list.head; b != kNoBlock; prev = b, b = At(b).next) {
    if (At(b).prev != prev) return Internal(fmt::format("free list broken before block {}", b));
    if (At(b).references != 0) return Internal(fmt::format("block {} is free and used", b));
    if (static_cast<uint32_t>(b) / each != partition) {
      return Internal(fmt::format("block {} is free in partition {}", b, partition));
    }
    if (++listed > each) return Internal("free list has a cycle");
  }
  if (prev != list.tail) return Internal("free list does not end at its tail");
  uint32_t unused = 0;
  for (uint32_t i = partition * each; i < (partition + 1) * each; ++i) {
    if (blocks_[i].partition != partition) {
      return Internal(fmt::format("block {} is in partition {}", i, blocks_[i].partition));
    }
    unused += blocks_[i].references == 0 ? 1 : 0;
  }
  if (listed != unused || listed != list.blocks) {
    return Internal(fmt::format("{} blocks in the free list, {} without references, {} counted",
                                listed, unused, list.blocks));
  }
  return OkStatus();
}

Status BlockPool::CheckNames() const {
  uint32_t published = 0;
  for (BlockId b = 0; b < static_cast<BlockId>(num_blocks()); ++b) {
    if (!At(b).published) continue;
    ++published;
    if (Find(At(b).name) != b) return Internal(fmt::format("block {} cannot be found", b));
  }
  const auto empty = std::count(slots_.begin(), slots_.end(), kNoBlock);
  const auto named = static_cast<uint32_t>(slots_.size()) - static_cast<uint32_t>(empty);
  if (named == published) return OkStatus();
  return Internal(fmt::format("{} names for {} published blocks", named, published));
}

Status BlockPool::CheckIntegrity() const {
  uint32_t free_blocks = 0;
  for (uint32_t p = 0; p < partitions(); ++p) {
    RETURN_IF_ERROR(CheckFreeList(p));
    free_blocks += free_[p].blocks;
  }
  if (free_blocks != free_blocks_) {
    return Internal(
        fmt::format("{} free blocks in all partitions, {} counted", free_blocks, free_blocks_));
  }
  return CheckNames();
}

}  // namespace cleave

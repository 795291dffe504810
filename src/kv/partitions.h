#pragma once
// KvPartitions: which of several memories holds which part of a sequence. Items of a sequence (its
// blocks, or its positions) lie in runs; run r belongs to partition r mod count (split/layout.h
// says which rank that is). So partition 0 never holds fewer than another, and a sequence fits
// equal partitions exactly when it fits partition 0.
//
// Pure; any thread; cannot fail. Values of 0 are a programmer's error.

#include <algorithm>
#include <cstdint>

namespace cleave {

struct KvPartitions {
  uint32_t count = 1;
  uint32_t run = 1;  // items

  // Over blocks, where a run of `run_positions` is a whole number of them, or there is no cut.
  static constexpr KvPartitions OfBlocks(uint32_t count, uint32_t run_positions,
                                         uint32_t block_size) {
    return {.count = count, .run = std::max(1U, run_positions / block_size)};
  }

  // Of item `item`, counted from the sequence's beginning.
  [[nodiscard]] constexpr uint32_t Of(uint32_t item) const {
    return count == 1 ? 0 : item / run % count;
  }
  // How many of the items [0, items) `partition` holds.
  [[nodiscard]] constexpr uint32_t Held(uint32_t items, uint32_t partition) const {
    if (count == 1) return items;
    const uint32_t runs = items / run;
    const uint32_t held = (runs / count + (partition < runs % count ? 1 : 0)) * run;
    return runs % count == partition ? held + items % run : held;
  }
  // In the partition that holds most.
  [[nodiscard]] constexpr uint32_t Fullest(uint32_t items) const { return Held(items, 0); }
  // The longest sequence that partitions of `each` items hold. each · count fits 64 bits.
  [[nodiscard]] constexpr uint64_t Longest(uint64_t each) const {
    return each / run * run * count + each % run;
  }
};

}  // namespace cleave

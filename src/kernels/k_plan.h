#pragma once
// KPlan: how the K (reduction) dimension of a matrix is walked: in blocks of at most 32 elements
// that never cross a unit (a head, 64 FFN columns), gathered into sum groups.
//
// Block borders are the multiples of 32 of the absolute index, the borders of units, and the
// borders of sum groups (every `group` elements counted from a unit's start). So a block lies in
// one weight block of every format, one unit and one group, and does not depend on which rank holds
// it. Packed weights, activations and sums all follow the plan.
// Pure values; any thread.

#include <cstdint>
#include <span>
#include <vector>

namespace cleave {

struct KBlock {
  uint32_t window = 0;  // the block's elements are 32·window + [lo, hi) of the whole matrix
  uint32_t source = 0;  // where element 32·window + lo lies in this rank's activation row
  uint8_t lo = 0;
  uint8_t hi = 0;
};

struct UnitRange {
  uint32_t begin = 0;  // units [begin, end)
  uint32_t end = 0;
};

struct KPlan {
  std::vector<KBlock> blocks;        // ascending
  std::vector<uint32_t> group_ends;  // index into blocks past each sum group's last block
  uint32_t row_elements = 0;         // floats of an activation row on this rank
};

// Column-parallel: all of K on every rank, one chain: one group. Blocks are plain windows.
KPlan ColumnPlan(uint32_t k);

// Row-parallel: K in units of `unit` elements (the last may be shorter), restarted every `group`
// elements; this rank holds the units of `held` (ascending, disjoint), packed in that order in its
// activation row. group is 64, or 128 where docs/arithmetic.md says so.
KPlan RowPlan(uint32_t k, uint32_t unit, uint32_t group, std::span<const UnitRange> held);

}  // namespace cleave

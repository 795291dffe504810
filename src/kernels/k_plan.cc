#include "kernels/k_plan.h"

#include <algorithm>

#include "base/status.h"

namespace cleave {
namespace {

constexpr uint64_t kWindow = 32;

// Appends the blocks of elements [begin, end), cut at the window borders.
void AppendBlocks(uint64_t begin, uint64_t end, KPlan* plan) {
  while (begin < end) {
    const uint64_t window = begin / kWindow;
    const uint64_t stop = std::min(end, (window + 1) * kWindow);
    KBlock block;
    block.window = static_cast<uint32_t>(window);
    block.source = plan->row_elements;
    block.lo = static_cast<uint8_t>(begin - window * kWindow);
    block.hi = static_cast<uint8_t>(stop - window * kWindow);
    plan->blocks.push_back(block);
    plan->row_elements += static_cast<uint32_t>(stop - begin);
    begin = stop;
  }
}

void CloseGroup(KPlan* plan) {
  plan->group_ends.push_back(static_cast<uint32_t>(plan->blocks.size()));
}

}  // namespace

KPlan ColumnPlan(uint32_t k) {
  KPlan plan;
  AppendBlocks(0, k, &plan);
  CloseGroup(&plan);
  return plan;
}

KPlan RowPlan(uint32_t k, uint32_t unit, uint32_t group, std::span<const UnitRange> held) {
  CLEAVE_CHECK(unit > 0 && group > 0);
  KPlan plan;
  uint32_t next = 0;
  for (const UnitRange& range : held) {
    CLEAVE_CHECK(range.begin >= next && range.begin <= range.end);
    next = range.end;
    for (uint64_t u = range.begin; u < range.end; ++u) {
      CLEAVE_CHECK(u * unit < k);
      const uint64_t end = std::min<uint64_t>((u + 1) * unit, k);
      for (uint64_t begin = u * unit; begin < end; begin += group) {
        AppendBlocks(begin, std::min<uint64_t>(begin + group, end), &plan);
        CloseGroup(&plan);
      }
    }
  }
  return plan;
}

}  // namespace cleave

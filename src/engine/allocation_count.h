#pragma once
// Counts the allocations of a test binary: linking allocation_count.cc replaces operator new.

#include <cstdint>

namespace cleave {

// Calls of operator new so far: by this thread, by all.
uint64_t AllocationCount();
uint64_t AllocationCountOfAll();

}  // namespace cleave

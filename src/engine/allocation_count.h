#pragma once
// Counts the allocations of a test binary: linking allocation_count.cc replaces operator new.

#include <cstdint>

namespace cleave {

// Calls of operator new by this thread so far.
uint64_t AllocationCount();

}  // namespace cleave

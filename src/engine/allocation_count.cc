#include "engine/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

thread_local uint64_t allocations = 0;
std::atomic<uint64_t> all_allocations{0};

void* Counted(void* p) {
  ++allocations;
  all_allocations.fetch_add(1, std::memory_order_relaxed);
  if (p != nullptr) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return Counted(std::malloc(bytes == 0 ? 1 : bytes)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  return Counted(std::aligned_alloc(align, (bytes + align) / align * align));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace cleave {

uint64_t AllocationCount() { return allocations; }
uint64_t AllocationCountOfAll() { return all_allocations.load(std::memory_order_relaxed); }

}  // namespace cleave

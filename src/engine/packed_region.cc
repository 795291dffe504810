#include "engine/packed_region.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

namespace cleave {

Result<PackedRegion> PackedRegion::Map(int fd, uint64_t offset, size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (p == MAP_FAILED) return Unavailable(fmt::format("mmap: {}", std::strerror(errno)));
  ::madvise(p, bytes, MADV_HUGEPAGE);  // what is not in memory yet then comes in huge pages
  return PackedRegion(static_cast<std::byte*>(p), bytes, true);
}

Result<PackedRegion> PackedRegion::Memory(size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return ResourceExhausted(fmt::format("{} bytes for packed weights cannot be had", bytes));
  }
  ::madvise(p, bytes, MADV_HUGEPAGE);
  return PackedRegion(static_cast<std::byte*>(p), bytes, false);
}

PackedRegion::PackedRegion(PackedRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(other.mapped_) {}

PackedRegion& PackedRegion::operator=(PackedRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

PackedRegion::~PackedRegion() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

double PackedRegion::HugeShare() const {
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  const uintptr_t end = begin + size_;
  std::ifstream maps("/proc/self/smaps");
  uint64_t resident_kib = 0;
  uint64_t huge_kib = 0;
  bool mine = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    uint64_t kib = 0;
    // Advice may have cut the region, and neighbours of its kind may have joined it.
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
      mine = from < end && to > begin;
    } else if (mine && std::sscanf(line.c_str(), "Rss: %" SCNu64, &kib) == 1) {
      resident_kib += kib;
    } else if (mine && (std::sscanf(line.c_str(), "FilePmdMapped: %" SCNu64, &kib) == 1 ||
                        std::sscanf(line.c_str(), "AnonHugePages: %" SCNu64, &kib) == 1)) {
      huge_kib += kib;
    }
  }
  if (resident_kib == 0) return 0;
  return static_cast<double>(huge_kib) / static_cast<double>(resident_kib);
}

}  // namespace cleave

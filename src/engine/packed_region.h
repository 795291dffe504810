#pragma once
// PackedRegion: the bytes of a file of repacked weights, read-only, as the kernels want them.
//
// Mapped, the pages are the system's one copy, which all processes on the machine share. But
// kernels read at the speed of memory only through huge pages: the same bytes in scattered 4 KiB
// pages come at 0.70 to 0.75 of it (one core, Xeon with AMX, virtual, 768 MiB, best of 24 reads),
// and decode at 0.79 (docs/loading.md). A file is mapped so where its file system keeps it in large
// pages and they were free when it was read: ext4 of Linux 6.18 does, at the speed of memory; tmpfs
// as it is usually set up does not, older systems may not. What is not mapped by huge pages is
// copied into memory that is, and then shared with nobody.
//
// Owner: ModelWeights; movable. Threads: any may read.
// Fails: kUnavailable or kResourceExhausted, with the call and its errno.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace cleave {

class PackedRegion {
 public:
  // `bytes` > 0 from `offset` (a multiple of 4096) on, of a file that is at least so long.
  static Result<PackedRegion> Map(int fd, uint64_t offset, size_t bytes);
  // Zeros, writable by `data`; huge pages where they can be had.
  static Result<PackedRegion> Memory(size_t bytes);

  PackedRegion() = default;
  PackedRegion(PackedRegion&& other) noexcept;
  PackedRegion& operator=(PackedRegion&& other) noexcept;
  PackedRegion(const PackedRegion&) = delete;
  PackedRegion& operator=(const PackedRegion&) = delete;
  ~PackedRegion();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] bool mapped() const { return mapped_; }  // of a file
  // Of the pages that are there, those in huge ones: 0 to 1; 0 where nobody says. It walks the page
  // tables of the process: some milliseconds.
  [[nodiscard]] double HugeShare() const;

 private:
  PackedRegion(std::byte* data, size_t size, bool mapped)
      : data_(data), size_(size), mapped_(mapped) {}

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool mapped_ = false;
};

}  // namespace cleave

#pragma once
// SharedMemory: zeroed pages that the ranks of a replica map together.
//
// Between processes: an anonymous file of sealed size, handed on by descriptor (inherited or over a
// socket), never a name, so that a kill leaves nothing behind. Between threads: anonymous pages of
// the process. Pages take memory when first touched.
// Owner: movable; unmaps and closes. Any thread. Fails: kInvalidArgument (size, descriptor),
// kResourceExhausted (no memory, no descriptor), kInternal (the system call and its errno).

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace cleave {

enum class SharedMemoryKind : uint8_t { kProcesses, kThreads };

class SharedMemory {
 public:
  static Result<SharedMemory> Create(SharedMemoryKind kind, uint64_t size);
  // Maps what Create made in another process; `fd` stays the caller's. Refuses a file whose size
  // could still change: a mapping that shrinks would raise SIGBUS.
  static Result<SharedMemory> Attach(int fd);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] uint64_t size() const { return size_; }
  // The descriptor (close-on-exec) to hand on; -1 between threads.
  [[nodiscard]] int fd() const { return fd_; }

 private:
  SharedMemory(std::byte* data, uint64_t size, int fd) : data_(data), size_(size), fd_(fd) {}

  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  int fd_ = -1;
};

}  // namespace cleave

#pragma once
// LazyArray: room for the worst case, of which only what is written takes memory: an anonymous
// mapping, zero at first. One owner, any thread. data() is null when the room could not be had.

#include <sys/mman.h>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace cleave {

template <typename T>
class LazyArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  LazyArray() = default;
  explicit LazyArray(size_t count) : bytes_(count * sizeof(T)) {
    if (bytes_ == 0) return;
    void* data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data != MAP_FAILED) data_ = static_cast<T*>(data);
  }
  LazyArray(LazyArray&& other) noexcept { *this = std::move(other); }
  LazyArray& operator=(LazyArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  LazyArray(const LazyArray&) = delete;
  LazyArray& operator=(const LazyArray&) = delete;
  ~LazyArray() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  [[nodiscard]] T* data() const { return data_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace cleave

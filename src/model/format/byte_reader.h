#pragma once
// ByteReader: walks little-endian bytes from an untrusted file; every read says whether it fitted.
// Never reads past the end, never allocates. One thread at a time; the bytes belong to the caller.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace cleave {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] uint64_t position() const { return position_; }
  [[nodiscard]] uint64_t left() const { return bytes_.size() - position_; }

  // False, and nothing read, when too few bytes are left.
  template <typename T>
  bool Read(T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (left() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  bool Take(uint64_t size, std::span<const std::byte>* out) {
    if (left() < size) return false;
    *out = bytes_.subspan(position_, size);
    position_ += size;
    return true;
  }

  // u64 length, then bytes.
  bool ReadString(std::string_view* out) {
    uint64_t length = 0;
    std::span<const std::byte> text;
    const uint64_t start = position_;
    if (!Read(&length) || !Take(length, &text)) {
      position_ = start;
      return false;
    }
    *out = {reinterpret_cast<const char*>(text.data()), text.size()};
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

}  // namespace cleave

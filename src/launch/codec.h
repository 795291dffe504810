#pragma once
// ByteWriter and ByteReader: values as bytes, in the order they are written, for processes of one
// host (native byte order). Strings and arrays carry a u32 count in front.
//
// A reader is given bytes that may be anything. A read past the end, a count that the bytes left
// can not hold, or an enum value out of range fails the reader for good: later reads give zero and
// empty values, and Finish tells. Nothing throws; no more is allocated than the bytes could fill.
// Owner: the caller; one thread. Views of a reader's bytes live as long as those.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace cleave {

class ByteWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Put(T value) { Append(&value, sizeof(value)); }
  template <typename T>
  requires std::is_enum_v<T>
  void Put(T value) { Put(static_cast<uint8_t>(value)); }
  void Put(std::string_view text) {
    PutCount(text.size());
    Append(text.data(), text.size());
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Put(const std::vector<T>& values) {
    PutCount(values.size());
    Append(values.data(), values.size() * sizeof(T));
  }
  // Of what follows. A count beyond 32 bits marks the writer; see overflowed.
  void PutCount(size_t count) {
    overflowed_ = overflowed_ || count > UINT32_MAX;
    Put(static_cast<uint32_t>(count));
  }
  void PutRaw(std::span<const std::byte> bytes) { Append(bytes.data(), bytes.size()); }
  // Overwrites what was Put at `offset`.
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Patch(size_t offset, T value) { std::memcpy(bytes_.data() + offset, &value, sizeof(value)); }

  // Forgets all bytes, or all behind `size`; keeps the memory.
  void Clear() { Truncate(0); }
  void Truncate(size_t size) { bytes_.resize(size); }
  void EraseFront(size_t size) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(size));
  }

  [[nodiscard]] bool overflowed() const { return overflowed_; }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void Append(const void* data, size_t size) {
    if (size == 0) return;
    const size_t at = bytes_.size();
    bytes_.resize(at + size);
    std::memcpy(bytes_.data() + at, data, size);
  }

  std::vector<std::byte> bytes_;
  bool overflowed_ = false;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::is_arithmetic_v<T> T Get() {
    T value{};
    const std::span<const std::byte> from = Take(sizeof(T));
    if (from.empty()) return T{};
    if constexpr (std::is_same_v<T, bool>) {
      const auto raw = static_cast<uint8_t>(from[0]);
      if (raw > 1) Fail();
      return raw == 1;
    } else {
      std::memcpy(&value, from.data(), sizeof(T));
      return value;
    }
  }
  // `last` is the enum's largest value.
  template <typename T>
  requires std::is_enum_v<T> T GetEnum(T last) {
    const uint8_t raw = Get<uint8_t>();
    if (raw > static_cast<uint8_t>(last)) {
      Fail();
      return T{};
    }
    return static_cast<T>(raw);
  }
  std::string GetString();
  template <typename T>
  requires std::is_arithmetic_v<T> std::vector<T> GetArray() {
    const uint32_t count = GetCount(sizeof(T));
    const std::span<const std::byte> from = Take(count * sizeof(T));
    std::vector<T> values(from.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), from.data(), from.size());
    return values;
  }
  // A count of things that take at least `min_bytes` (> 0) each; 0 when so many can not follow.
  uint32_t GetCount(size_t min_bytes);
  // The next `size` bytes, as a view.
  std::span<const std::byte> Take(size_t size);

  void Fail() { failed_ = true; }
  [[nodiscard]] bool ok() const { return !failed_; }
  [[nodiscard]] size_t left() const { return failed_ ? 0 : bytes_.size() - at_; }
  // kDataLoss naming `what` unless every byte was read and made sense.
  [[nodiscard]] Status Finish(std::string_view what) const;

 private:
  const std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace cleave

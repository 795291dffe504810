#pragma once
// Sizes read from files and peers: arithmetic that says when it would not fit.
// Pure; any thread. Each returns nothing instead of a wrapped number.

#include <cstddef>
#include <cstdint>
#include <optional>

namespace cleave {

inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

template <typename T>
constexpr T CeilDiv(T a, T b) {
  return static_cast<T>((a + b - 1) / b);
}

template <typename T>
constexpr T RoundUp(T a, T b) {
  return static_cast<T>(CeilDiv(a, b) * b);
}

}  // namespace cleave

// How AMX' tiles are set up and fenced: what the compiler does not know about them. Shared by the
// sources of AMX. Unnamed namespace: see tile_driver.h.

#pragma once

#include <immintrin.h>

#include <cstdint>

namespace cleave {
namespace {  // NOLINT(google-build-namespaces)

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The compiler does not know what memory tiles read and write.
[[gnu::always_inline]] inline void TileFence() { asm volatile("" : : : "memory"); }

// It believes that the instruction reads eight bytes of the configuration only.
[[gnu::always_inline]] inline void LoadTileConfig(const TileConfig& config) {
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

}  // namespace
}  // namespace cleave

// Tile: what the vector kernels work on: activation rows × one group of 16 outputs, walked in
// chunks of blocks. Everything that depends on (row, block) only is put into tables first, so that
// the kernels fetch it by broadcast. How tiles begin, get their tables and end. Unnamed namespace:
// see tile_driver.h.

#pragma once

#include "kernels/matmul_job.h"
#include "kernels/record.h"

namespace cleave {
namespace {  // NOLINT(google-build-namespaces): see above

constexpr uint32_t kLanes = 16;
constexpr uint32_t kChunkBlocks = 64;
constexpr uint32_t kMaxTileRows = 12;
// bf16 activations as fp32, so that they too are fetched by broadcast: few blocks at a time.
constexpr uint32_t kChunkBlocksBf16 = 8;

struct Tile {
  // By (row, block of the chunk); int8 only.
  alignas(64) float scale[kMaxTileRows][kChunkBlocks];         // da · power
  alignas(64) float scaled_sum[kMaxTileRows][kChunkBlocks];    // scale · Σq
  alignas(64) int32_t start[kMaxTileRows][kChunkBlocks];       // -zero · Σq (of the first half)
  alignas(64) int32_t start_high[kMaxTileRows][kChunkBlocks];  // -zero · Σq of the second half
  // By (row, element of the chunk), the bits of an fp32; bf16 by fma only.
  alignas(64) uint32_t expanded[kMaxTileRows][kChunkBlocksBf16 * 32];
  // By (row, output): chains, kept here between chunks, and sums of closed groups.
  alignas(64) float f[kMaxTileRows][kLanes];
  alignas(64) int32_t narrow[kMaxTileRows][kLanes];
  alignas(64) int64_t wide[kMaxTileRows][kLanes];
  alignas(64) float power[kMaxTileRows];  // gate · 2^shift; 1 when column-parallel

  // The chunk.
  const std::byte* records;
  const void* acts;   // of the tile's first row and the chunk's first block
  size_t act_stride;  // elements from a row to the next
  uint32_t first_block;
  uint32_t blocks;
  const uint32_t* ends;  // absolute block indices past the sum groups that end in this chunk
  uint32_t end_count;
  bool any_wide;  // then all rows count in int64, which is the same integer
  bool fetches;   // the first tile of a group's stream, which comes from memory; later ones find it
};

template <typename T>
[[gnu::always_inline]] inline int32_t Load32(const T* p) {
  int32_t v = 0;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

inline float PowerOf(int32_t shift) {
  const uint32_t bits = static_cast<uint32_t>(127 + shift) << 23U;
  float v = 0;
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
}

inline void FillTables(const MatmulJob& job, const RecordLayout& layout, uint32_t row,
                       uint32_t rows, Tile* tile) {
  const int32_t zero = -static_cast<int32_t>(layout.zero);
  const uint32_t blocks = tile->blocks;
  for (uint32_t r = 0; r < rows; ++r) {
    const size_t at = static_cast<size_t>(row + r) * job.act_stride + tile->first_block;
    const float* scale = job.scale + at;
    const int32_t* sum = job.sum + at;
    const int32_t* half = job.half_sum + at;
    const float power = tile->power[r];
    for (uint32_t b = 0; b < blocks; ++b) tile->scale[r][b] = scale[b] * power;
    if (layout.has_min) {
      for (uint32_t b = 0; b < blocks; ++b) {
        tile->scaled_sum[r][b] = tile->scale[r][b] * static_cast<float>(sum[b]);
      }
    }
    if (layout.zero == 0) continue;
    if (layout.scales == 1) {
      for (uint32_t b = 0; b < blocks; ++b) tile->start[r][b] = zero * sum[b];
    } else {
      for (uint32_t b = 0; b < blocks; ++b) {
        tile->start[r][b] = zero * half[b];
        tile->start_high[r][b] = zero * (sum[b] - half[b]);
      }
    }
  }
}

inline int64_t WrappedSum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

// The row of y or totals that row r of the results goes to.
inline size_t OutRow(const MatmulJob& job, uint32_t r) {
  return job.token == nullptr ? r : job.token[r];
}

inline void StoreTile(const MatmulJob& job, uint32_t group, uint32_t row, uint32_t rows,
                      const Tile& tile) {
  const uint32_t left = job.outputs - group * kLanes;
  const uint32_t lanes = left < kLanes ? left : kLanes;
  // Of two terms tiles have an even number of rows; a pair is one row of the result.
  for (uint32_t r = 0; r < rows; r += job.terms) {
    const uint32_t second = r + job.terms - 1;
    const size_t out = OutRow(job, (row + r) / job.terms);
    if (job.totals == nullptr) {
      float* y = job.y + out * job.y_stride + group * kLanes;
      for (uint32_t i = 0; i < lanes; ++i) {
        y[i] = second == r ? tile.f[r][i] : tile.f[r][i] + tile.f[second][i];
      }
      continue;
    }
    int64_t* totals = job.totals + out * job.totals_stride + group * kLanes;
    for (uint32_t i = 0; i < lanes; ++i) {
      const int64_t first = tile.any_wide ? tile.wide[r][i] : tile.narrow[r][i];
      const int64_t more = tile.any_wide ? tile.wide[second][i] : tile.narrow[second][i];
      const int64_t total = second == r ? first : WrappedSum(first, more);
      totals[i] = job.token == nullptr ? total : WrappedSum(totals[i], total);
    }
  }
}

inline void StartTile(const MatmulJob& job, uint32_t row, uint32_t rows, Tile* tile) {
  tile->any_wide = false;
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t i = 0; i < kLanes; ++i) tile->f[r][i] = 0;
    tile->power[r] = 1.0F;
    if (job.totals == nullptr) continue;
    const uint32_t out = (row + r) / job.terms;
    tile->power[r] = PowerOf(job.shift[OutRow(job, out)]);
    if (job.gate != nullptr) tile->power[r] *= job.gate[out];
    if (job.wide[out] != 0) tile->any_wide = true;
  }
  if (job.totals == nullptr) return;
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (tile->any_wide) {
        tile->wide[r][i] = 0;
      } else {
        tile->narrow[r][i] = 0;
      }
    }
  }
}

inline void ExpandBf16(uint32_t rows, Tile* tile) {
  const uint32_t elements = tile->blocks * 32;  // a copy: the stores below might alias it
  for (uint32_t r = 0; r < rows; ++r) {
    const uint16_t* a = static_cast<const uint16_t*>(tile->acts) + r * tile->act_stride;
    uint32_t* bits = tile->expanded[r];
    for (uint32_t i = 0; i < elements; ++i) bits[i] = static_cast<uint32_t>(a[i]) << 16U;
  }
}

}  // namespace
}  // namespace cleave

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
constexpr uint32_t kMaxTileRows = 16;
// bf16 activations as fp32, so that they too are fetched by broadcast: few blocks at a time.
constexpr uint32_t kChunkBlocksBf16 = 8;

// Rows that pass every group before the next ones do. What depends on their (row, block) only is
// computed once, not once a group; a tile's cells lie together, [block][row of the tile].
constexpr uint32_t kMaxPanelRows = 768;
constexpr uint32_t kPanelCells = 2 * kMaxBlocks;  // on the stack: four tables of 48 KiB
struct Panel {
  uint32_t begin;  // of the job's rows
  uint32_t end;
  // int8 only.
  alignas(64) float scale[kPanelCells];         // da · power
  alignas(64) float scaled_sum[kPanelCells];    // scale · Σq
  alignas(64) int32_t start[kPanelCells];       // -zero · Σq (of the first half)
  alignas(64) int32_t start_high[kPanelCells];  // -zero · Σq of the second half
  float power[kMaxPanelRows];                   // gate · 2^shift; 1 when column-parallel
};

// Records that come into the second cache while others are computed: a kernel that unpacks reads a
// stretch of them at once, and would wait for all of it.
struct Ahead {
  const std::byte* at = nullptr;
  const std::byte* end = nullptr;
  size_t bytes_a_piece = 0;

  [[gnu::always_inline]] void FetchPiece() {
    if (at == end) return;
    const bool last = static_cast<size_t>(end - at) <= bytes_a_piece;
    const std::byte* stop = last ? end : at + bytes_a_piece;
    for (; at < stop; at += 64) __builtin_prefetch(at, 0, 2);
    at = stop;
  }
};

struct Tile {
  // Of the tile, from the chunk's first block on: cells of the panel's tables.
  const float* scale;
  const float* scaled_sum;
  const int32_t* start;
  const int32_t* start_high;
  const float* power;  // [row]
  // By (row, element of the chunk), the bits of an fp32; bf16 by fma only.
  alignas(64) uint32_t expanded[kMaxTileRows][kChunkBlocksBf16 * 32];
  // By (row, output), of a second group's outputs after the first's rows: chains, kept here between
  // chunks, and sums of closed groups.
  alignas(64) float f[kMaxTileRows][kLanes];
  alignas(64) int32_t narrow[kMaxTileRows][kLanes];
  alignas(64) int64_t wide[kMaxTileRows][kLanes];

  // The chunk.
  const std::byte* records;   // of the first group
  size_t group_bytes;         // from a group's record to the next group's
  const std::byte* unpacked;  // the group's, where the instruction set unpacks
  std::byte* scratch;         // likewise
  const void* acts;           // of the tile's first row and the chunk's first block
  size_t act_stride;          // elements from a row to the next
  uint32_t first_block;
  uint32_t blocks;
  const uint32_t* ends;  // absolute block indices past the sum groups that end in this chunk
  uint32_t end_count;
  float* y;  // where the chains go, of the first row and group; null: they stay in f
  size_t y_stride;
  Ahead ahead;           // pieces are asked for by kernels that unpack, and by those of pairs
  bool fetches_records;  // of pairs: ask for the records next to be read instead
  bool any_wide;         // then all rows count in int64, which is the same integer
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

// The cells of a tile of `rows` rows from the job's row `row` on, into cells [at, …) of the tables.
inline void FillCells(const MatmulJob& job, const RecordLayout& layout, uint32_t row, uint32_t rows,
                      size_t at, Panel* panel) {
  const int32_t zero = -static_cast<int32_t>(layout.zero);
  for (uint32_t r = 0; r < rows; ++r) {
    const size_t from = static_cast<size_t>(row + r) * job.act_stride;
    const float* scale = job.scale + from;
    const int32_t* sum = job.sum + from;
    const int32_t* half = job.half_sum + from;
    const float power = panel->power[row + r - panel->begin];
    for (size_t b = 0; b < job.blocks; ++b) panel->scale[at + b * rows + r] = scale[b] * power;
    if (layout.has_min) {
      for (size_t b = 0; b < job.blocks; ++b) {
        const size_t cell = at + b * rows + r;
        panel->scaled_sum[cell] = panel->scale[cell] * static_cast<float>(sum[b]);
      }
    }
    if (layout.zero == 0) continue;
    if (layout.scales == 1) {
      for (size_t b = 0; b < job.blocks; ++b) panel->start[at + b * rows + r] = zero * sum[b];
    } else {
      for (size_t b = 0; b < job.blocks; ++b) {
        panel->start[at + b * rows + r] = zero * half[b];
        panel->start_high[at + b * rows + r] = zero * (sum[b] - half[b]);
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

// The lanes of row `at` of the tile, and of its second term if it has one, as int64.
inline void TotalsOf(const MatmulJob& job, const Tile& tile, uint32_t at, int64_t* total) {
  const uint32_t second = at + job.terms - 1;
  if (tile.any_wide) {
    for (uint32_t i = 0; i < kLanes; ++i) total[i] = tile.wide[at][i];
    if (second == at) return;
    for (uint32_t i = 0; i < kLanes; ++i) total[i] = WrappedSum(total[i], tile.wide[second][i]);
    return;
  }
  for (uint32_t i = 0; i < kLanes; ++i) total[i] = tile.narrow[at][i];
  if (second == at) return;
  for (uint32_t i = 0; i < kLanes; ++i) total[i] += tile.narrow[second][i];
}

// Sixteen results, or those of the last group's that are outputs.
template <typename T>
inline void CopyLanes(const T* from, uint32_t lanes, T* to) {
  if (lanes == kLanes) {
    __builtin_memcpy(to, from, kLanes * sizeof(T));
  } else {
    for (uint32_t i = 0; i < lanes; ++i) to[i] = from[i];
  }
}

// Whether a tile's chains are the results as they are, of whole groups.
inline bool LeavesStraight(const MatmulJob& job, uint32_t group, uint32_t groups) {
  return job.blocks > 0 && job.totals == nullptr && job.terms == 1 &&
         (group + groups) * kLanes <= job.outputs;
}

// The results of one group, whose rows are the tile's from `at` on.
inline void StoreTile(const MatmulJob& job, uint32_t group, uint32_t row, uint32_t rows,
                      uint32_t at, Tile* tile) {
  const uint32_t left = job.outputs - group * kLanes;
  const uint32_t lanes = left < kLanes ? left : kLanes;
  // Of two terms tiles have an even number of rows; a pair is one row of the result.
  for (uint32_t r = 0; r < rows; r += job.terms) {
    const size_t out = OutRow(job, (row + r) / job.terms);
    if (job.totals == nullptr) {
      float* f = tile->f[at + r];
      if (job.terms == 2) {
        for (uint32_t i = 0; i < kLanes; ++i) f[i] += tile->f[at + r + 1][i];
      }
      CopyLanes(f, lanes, job.y + out * job.y_stride + group * kLanes);
      continue;
    }
    alignas(64) int64_t total[kLanes];
    TotalsOf(job, *tile, at + r, total);
    int64_t* to = job.totals + out * job.totals_stride + group * kLanes;
    if (job.token == nullptr) {
      CopyLanes(total, lanes, to);
    } else {
      for (uint32_t i = 0; i < lanes; ++i) to[i] = WrappedSum(to[i], total[i]);
    }
  }
}

// The lines that StoreTile will write come while the tile is computed.
inline void FetchResults(const MatmulJob& job, uint32_t group, uint32_t row, uint32_t rows) {
  for (uint32_t r = 0; r < rows; r += job.terms) {
    const size_t out = OutRow(job, (row + r) / job.terms);
    if (job.totals == nullptr) {
      __builtin_prefetch(job.y + out * job.y_stride + group * kLanes, 1);
    } else {
      const int64_t* to = job.totals + out * job.totals_stride + group * kLanes;
      __builtin_prefetch(to, 1);
      __builtin_prefetch(to + kLanes / 2, 1);
    }
  }
}

// Sums of `rows` rows for each of `groups` groups; kernels start the chains, but of no blocks.
inline void StartTile(const MatmulJob& job, uint32_t row, uint32_t rows, uint32_t groups,
                      Tile* tile) {
  const size_t cells = static_cast<size_t>(rows) * groups * kLanes;
  if (job.blocks == 0) __builtin_memset(tile->f, 0, cells * sizeof(float));
  tile->any_wide = false;
  if (job.totals == nullptr) return;
  for (uint32_t r = 0; r < rows; r += job.terms) {
    tile->any_wide = tile->any_wide || job.wide[(row + r) / job.terms] != 0;
  }
  if (tile->any_wide) {
    __builtin_memset(tile->wide, 0, cells * sizeof(int64_t));
  } else {
    __builtin_memset(tile->narrow, 0, cells * sizeof(int32_t));
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

// How a job is walked: which kernels an instruction set has for so many rows, how many rows make a
// panel, and how many groups a stretch. Unnamed namespace: see tile_driver.h.

#pragma once

#include "kernels/matmul_job.h"
#include "kernels/record.h"
#include "kernels/tile.h"

namespace cleave {
namespace {  // NOLINT(google-build-namespaces)

// Rows are walked in panels, groups in stretches, which share the second cache.
constexpr size_t kPanelBytes = static_cast<size_t>(384) << 10;
constexpr size_t kGroupsBytes = static_cast<size_t>(256) << 10;
// Of pairs for few rows: the first stretch is waited for, the others are fetched meanwhile.
constexpr size_t kGroupsBytesOfFew = static_cast<size_t>(64) << 10;
constexpr uint32_t kFewRows = 64;
constexpr uint32_t kMinPanelRows = 48;

using TileKernel = void (*)(Tile*);

// How a kernel wants its tiles.
enum class Tables {
  kInt8,          // scales and sums
  kExpandedBf16,  // activations as fp32
  kNone,
};

struct TileShape {
  RecordLayout layout;
  Tables tables;
  size_t act_bytes;       // of an element
  uint32_t chunk_blocks;  // at most at a time
};

constexpr TileShape ShapeOf(const RecordLayout& layout, Tables tables) {
  const size_t act_bytes = layout.scales > 0 ? 1 : layout.pairs ? 2 : 4;
  const uint32_t chunk = tables == Tables::kExpandedBf16 ? kChunkBlocksBf16 : UINT32_MAX;
  return {layout, tables, act_bytes, chunk};
}

// Kernels by the number of rows, where there is one: for 1 and 2 always, and for no odd number
// above 3, so that an even number of rows makes even tiles. Of one group, and, where an instruction
// set has them, of two groups at once.
struct KernelTable {
  TileKernel by_rows[kMaxTileRows + 1];
  TileKernel pairs[kMaxTileRows + 1];

  [[nodiscard]] constexpr bool TakesPairs() const { return pairs[1] != nullptr; }
};

// Before a stretch of groups is walked, an instruction set may unpack it into memory of its own.
struct Unpacker {
  void (*unpack)(const MatmulJob& job, uint32_t begin, uint32_t end, std::byte* to) = nullptr;
  size_t record_bytes = 0;
  size_t stretch_bytes = 0;
  std::byte* unpacked = nullptr;  // the stretch, or one group that is longer
  std::byte* scratch = nullptr;   // of its kernels
};

inline uint32_t TileRows(const KernelTable& table, uint32_t left) {
  uint32_t rows = left < kMaxTileRows ? left : kMaxTileRows;
  while (table.by_rows[rows] == nullptr) --rows;
  return rows == 6 && (left == 7 || left == 8) ? 4 : rows;  // the rest is better than 1 or 2
}

// How many rows a panel has: their activations stay in the second cache while every group passes,
// their cells fit the tables.
inline uint32_t PanelRows(const MatmulJob& job, const TileShape& shape, const KernelTable& table) {
  const size_t row_bytes = static_cast<size_t>(job.act_stride) * 32 * shape.act_bytes;
  size_t rows = kMaxPanelRows;
  if (rows * row_bytes > kPanelBytes) rows = kPanelBytes / row_bytes;
  if (rows < kMinPanelRows) rows = kMinPanelRows;
  if (shape.tables == Tables::kInt8 && rows * job.blocks > kPanelCells) {
    rows = kPanelCells / job.blocks;
  }
  // Pairs of terms are not parted.
  const uint32_t most = TileRows(table, kMaxTileRows);
  rows -= rows % (rows > most ? most : job.terms);
  return static_cast<uint32_t>(rows);
}

// How a panel's rows pass the groups.
struct Stretches {
  uint32_t groups;  // at a time
  size_t pieces;    // steps of the kernels meanwhile, which fetch a piece of the next stretch each
};

inline Stretches StretchesOf(const MatmulJob& job, const TileShape& shape, const KernelTable& table,
                             const Unpacker& unpacker, uint32_t rows) {
  const bool unpacks = unpacker.unpack != nullptr;
  const uint32_t at_once = table.TakesPairs() && !unpacks ? 2 : 1;
  const size_t record_bytes = unpacks ? unpacker.record_bytes : shape.layout.bytes;
  const bool few = at_once == 2 && rows <= kFewRows;
  const size_t most = unpacks ? unpacker.stretch_bytes : few ? kGroupsBytesOfFew : kGroupsBytes;
  const size_t group_bytes = job.blocks * record_bytes + 1;  // of no blocks: no division by zero
  const size_t steps = most / group_bytes / at_once;
  const size_t taken = steps == 0 ? 1 : steps;
  const size_t tiles = rows / TileRows(table, kMaxTileRows);
  return {static_cast<uint32_t>(taken * at_once), tiles * taken * job.blocks};
}

// The records of the stretch that begins with group `begin`, or of those that there are.
inline Ahead NextStretch(const MatmulJob& job, const TileShape& shape, uint32_t begin,
                         const Stretches& stretches) {
  const uint32_t left = job.group_end - begin;
  const size_t group_bytes = static_cast<size_t>(job.blocks) * shape.layout.bytes;
  Ahead ahead;
  ahead.at = job.records + begin * group_bytes;
  ahead.end = ahead.at + (left < stretches.groups ? left : stretches.groups) * group_bytes;
  const size_t lines = static_cast<size_t>(ahead.end - ahead.at) / 64 + 1;
  ahead.bytes_a_piece = (stretches.pieces == 0 ? lines : lines / stretches.pieces + 1) * 64;
  return ahead;
}

}  // namespace
}  // namespace cleave

// What the vector kernels share: the walk over tiles (kernels/tile.h) of a job, and the choice of
// the format's kernels.
//
// Included once by each source of an instruction set, and nowhere else. Everything is in an unnamed
// namespace on purpose: each source gets its own copy, compiled with its own instructions, and none
// is visible to the linker. A group's stream is walked by all rows before the next group's, so it
// is read from memory once and stays in the first cache.

#pragma once

#include "kernels/matmul_job.h"
#include "kernels/record.h"
#include "kernels/tile.h"
#include "kernels/tile_plan.h"

namespace cleave {
namespace {  // NOLINT(google-build-namespaces): see above

// Results' lines are asked for this many tiles before they are written.
constexpr uint32_t kFetchAhead = 3;

inline void RunTile(const MatmulJob& job, const TileShape& shape, uint32_t group, uint32_t groups,
                    uint32_t row, uint32_t rows, TileKernel kernel, Tile* tile) {
  const std::byte* stream = job.records + group * tile->group_bytes;
  StartTile(job, row, rows, groups, tile);
  for (uint32_t g = group + kFetchAhead; g < group + kFetchAhead + groups; ++g) {
    if (g < job.group_end) FetchResults(job, g, row, rows);
  }
  const std::byte* acts =
      static_cast<const std::byte*>(job.acts) + row * tile->act_stride * shape.act_bytes;
  const bool straight = LeavesStraight(job, group, groups);
  tile->y = nullptr;
  uint32_t sum_group = 0;
  for (uint32_t first = 0; first < job.blocks;) {
    const uint32_t left = job.blocks - first;
    tile->first_block = first;
    tile->blocks = left < shape.chunk_blocks ? left : shape.chunk_blocks;
    tile->records = stream + static_cast<size_t>(first) * shape.layout.bytes;
    tile->acts = acts + static_cast<size_t>(first) * 32 * shape.act_bytes;
    tile->ends = job.sum_groups + sum_group;
    tile->end_count = 0;
    while (sum_group < job.sum_group_count && job.sum_groups[sum_group] <= first + tile->blocks) {
      ++tile->end_count;
      ++sum_group;
    }
    if (shape.tables == Tables::kExpandedBf16) ExpandBf16(rows, tile);
    first += tile->blocks;
    if (straight && first == job.blocks) {
      tile->y = job.y + row * job.y_stride + static_cast<size_t>(group) * kLanes;
    }
    kernel(tile);
  }
  if (straight) return;
  for (uint32_t g = 0; g < groups; ++g) StoreTile(job, group + g, row, rows, g * rows, tile);
}

inline void FillPanel(const MatmulJob& job, const TileShape& shape, const KernelTable& table,
                      Panel* panel) {
  for (uint32_t row = panel->begin; row < panel->end; ++row) {
    float power = 1.0F;
    if (job.totals != nullptr) {
      const uint32_t out = row / job.terms;
      power = PowerOf(job.shift[OutRow(job, out)]);
      if (job.gate != nullptr) power *= job.gate[out];
    }
    panel->power[row - panel->begin] = power;
  }
  if (shape.tables != Tables::kInt8) return;
  for (uint32_t row = panel->begin; row < panel->end;) {
    const uint32_t rows = TileRows(table, panel->end - row);
    const size_t at = static_cast<size_t>(row - panel->begin) * job.blocks;
    FillCells(job, shape.layout, row, rows, at, panel);
    row += rows;
  }
}

// Groups [begin, end) for all rows of a panel: a tile's activations stay in the first cache, the
// groups' streams in the second.
inline void RunGroups(const MatmulJob& job, const TileShape& shape, const KernelTable& table,
                      const Unpacker& unpacker, const Panel& panel, uint32_t begin, uint32_t end,
                      Tile* tile) {
  for (uint32_t row = panel.begin; row < panel.end;) {
    const uint32_t rows = TileRows(table, panel.end - row);
    const TileKernel pair = table.pairs[rows];
    const size_t at = static_cast<size_t>(row - panel.begin) * job.blocks;
    tile->scale = panel.scale + at;
    tile->scaled_sum = panel.scaled_sum + at;
    tile->start = panel.start + at;
    tile->start_high = panel.start_high + at;
    tile->power = panel.power + (row - panel.begin);
    tile->unpacked = unpacker.unpacked;
    for (uint32_t group = begin; group < end;) {
      const uint32_t groups = pair != nullptr && end - group > 1 ? 2 : 1;
      const TileKernel kernel = groups == 2 ? pair : table.by_rows[rows];
      RunTile(job, shape, group, groups, row, rows, kernel, tile);
      tile->unpacked += groups * job.blocks * unpacker.record_bytes;
      group += groups;
    }
    tile->fetches_records = false;
    row += rows;
  }
}

inline void RunPanel(const MatmulJob& job, const TileShape& shape, const KernelTable& table,
                     const Unpacker& unpacker, const Panel& panel, Tile* tile) {
  const Stretches stretches = StretchesOf(job, shape, table, unpacker, panel.end - panel.begin);
  for (uint32_t group = job.group_begin; group < job.group_end;) {
    const uint32_t left = job.group_end - group;
    const uint32_t end = group + (left < stretches.groups ? left : stretches.groups);
    const bool unpacks = unpacker.unpack != nullptr;
    if (unpacks) unpacker.unpack(job, group, end, unpacker.unpacked);
    tile->ahead = NextStretch(job, shape, end, stretches);
    tile->fetches_records = !unpacks && group == job.group_begin;
    RunGroups(job, shape, table, unpacker, panel, group, end, tile);
    group = end;
  }
}

inline void RunJob(const MatmulJob& job, const TileShape& shape, const KernelTable& table,
                   const Unpacker& unpacker = {}) {
  Panel panel;
  Tile tile;
  tile.act_stride = static_cast<size_t>(job.act_stride) * 32;
  tile.y_stride = job.y_stride;
  tile.group_bytes = static_cast<size_t>(job.blocks) * shape.layout.bytes;
  tile.scratch = unpacker.scratch;
  const uint32_t rows = PanelRows(job, shape, table);
  for (uint32_t begin = 0; begin < job.rows; begin += rows) {
    panel.begin = begin;
    panel.end = job.rows - begin < rows ? job.rows : begin + rows;
    FillPanel(job, shape, table, &panel);
    RunPanel(job, shape, table, unpacker, panel, &tile);
  }
}

// Which formats an instruction set has: Int8<type> for quantised types, Float<type> for f32 and
// f16, Bf16, and their kernels, Kernels<Format>::TableOf(rows of the job).
template <template <DType> class Int8, template <DType> class Float, class Bf16,
          template <class> class Kernels>
struct Formats {
  static void Run(const MatmulJob& job) {
    switch (job.dtype) {
      case DType::kF32:
        return RunAs<Float<DType::kF32>>(job);
      case DType::kF16:
        return RunAs<Float<DType::kF16>>(job);
      case DType::kBF16:
        return RunAs<Bf16>(job);
      case DType::kQ40:
        return RunAs<Int8<DType::kQ40>>(job);
      case DType::kQ41:
        return RunAs<Int8<DType::kQ41>>(job);
      case DType::kQ50:
        return RunAs<Int8<DType::kQ50>>(job);
      case DType::kQ51:
        return RunAs<Int8<DType::kQ51>>(job);
      case DType::kQ80:
        return RunAs<Int8<DType::kQ80>>(job);
      case DType::kQ4K:
        return RunAs<Int8<DType::kQ4K>>(job);
      case DType::kQ5K:
        return RunAs<Int8<DType::kQ5K>>(job);
      case DType::kQ6K:
        return RunAs<Int8<DType::kQ6K>>(job);
    }
  }

  template <class Format>
  static void RunAs(const MatmulJob& job) {
    RunJob(job, ShapeOf(Format::kLayout, Format::kTables), Kernels<Format>::TableOf(job.rows));
  }
};

}  // namespace
}  // namespace cleave

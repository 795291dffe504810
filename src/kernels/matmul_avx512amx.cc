// Int8 products of many rows by AMX: the dots of sixteen rows and sixteen outputs over a block of K
// are one tile instruction, exact as vpdpbusd's, so everything after them is the same.
//
// A stretch of groups is unpacked first: codes less their zero point, as tdpbssd's signed operand,
// and scales as fp32. Then, for each tile of rows and group, the dots of a batch of blocks go to
// memory before the first is used: a store of a tile that is read at once holds up both.

#include <immintrin.h>

#include "kernels/amx_tiles.h"
#include "kernels/int8_avx512.h"
#include "kernels/matmul_job.h"
#include "kernels/tile_avx512.h"

namespace cleave {
namespace {

// Blocks whose dots are made before the first is used.
constexpr uint32_t kBatch = 16;

// A block unpacked: codes as in a record of 8 bits, but signed; scales, a second time for the other
// half if there are two; minimums.
struct Unpacked {
  alignas(64) int8_t codes[512];
  alignas(64) float scale[2][kLanes];
  alignas(64) float min[kLanes];
};

constexpr size_t kStretchBytes = static_cast<size_t>(96) << 10;

struct Scratch {
  alignas(64) int32_t dots[kBatch][kAmxRows][kLanes];
};

// Tiles 0 and 1: dots; 2 and 3: activations, 4 and 5: codes. Half a block at a time where halves
// have their own scales.
inline void Configure(uint32_t scales) {
  TileConfig config;
  for (int t = 0; t < 2; ++t) {
    config.row_bytes[t] = 64;
    config.rows[t] = kAmxRows;
    config.row_bytes[2 + t] = static_cast<uint16_t>(32 / scales);
    config.rows[2 + t] = kAmxRows;
    config.row_bytes[4 + t] = 64;
    config.rows[4 + t] = static_cast<uint8_t>(8 / scales);
  }
  LoadTileConfig(config);
}

template <DType kType>
void UnpackGroups(const MatmulJob& job, uint32_t begin, uint32_t end, std::byte* to) {
  constexpr RecordLayout kLayout = LayoutOf(kType);
  const size_t count = static_cast<size_t>(end - begin) * job.blocks;
  const std::byte* record = job.records + static_cast<size_t>(begin) * job.blocks * kLayout.bytes;
  auto* block = reinterpret_cast<Unpacked*>(to);
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(kLayout.zero));
  for (size_t i = 0; i < count; ++i, record += kLayout.bytes, ++block) {
    PrefetchRecord<Int8Format<kType>>(record);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m512i codes = Quad<kLayout.code_bits>(record, j);
      _mm512_store_si512(block->codes + 64 * j, _mm512_sub_epi8(codes, zero));
    }
    _mm512_store_ps(block->scale[0], LoadLanes<kLayout>(record, kLayout.scale_at));
    if (kLayout.scales == 2) {
      _mm512_store_ps(block->scale[1], LoadLanes<kLayout>(record, kLayout.scale_at + 64));
    }
    if (kLayout.has_min) {
      _mm512_store_ps(block->min, LoadLanes<kLayout>(record, kLayout.min_at));
    }
  }
  TileFence();
}

// dots[i] of `count` blocks from `block` on, for elements [16·half, …) of each.
[[gnu::always_inline]] inline void MakeDots(const Tile& t, const Unpacked* block,
                                            const int8_t* acts, uint32_t count, uint32_t half,
                                            Scratch* scratch) {
  acts += 16 * static_cast<size_t>(half);
  const size_t stride = t.act_stride;
  const size_t codes = 256 * static_cast<size_t>(half);
  uint32_t i = 0;
#pragma GCC unroll 1  // unrolled, addresses would not fit the registers
  for (; i + 2 <= count; i += 2) {
    _tile_zero(0);
    _tile_loadd(2, acts + static_cast<size_t>(32) * i, stride);
    _tile_loadd(4, block[i].codes + codes, 64);
    _tile_dpbssd(0, 2, 4);
    _tile_zero(1);
    _tile_loadd(3, acts + static_cast<size_t>(32) * i + 32, stride);
    _tile_loadd(5, block[i + 1].codes + codes, 64);
    _tile_dpbssd(1, 3, 5);
    _tile_stored(0, scratch->dots[i], 64);
    _tile_stored(1, scratch->dots[i + 1], 64);
  }
  if (i < count) {
    _tile_zero(0);
    _tile_loadd(2, acts + static_cast<size_t>(32) * i, stride);
    _tile_loadd(4, block[i].codes + codes, 64);
    _tile_dpbssd(0, 2, 4);
    _tile_stored(0, scratch->dots[i], 64);
  }
  TileFence();
}

[[gnu::always_inline]] inline void AddDots(const int32_t (*dots)[kLanes], const float* scale,
                                           const float* act_scale, Chains<kAmxRows>* c) {
  const __m512 weight = _mm512_load_ps(scale);
#pragma GCC unroll 16
  for (uint32_t r = 0; r < kAmxRows; ++r) {
    const __m512 product = _mm512_mul_ps(weight, _mm512_set1_ps(act_scale[r]));
    const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots[r]));
    c->f[r] = _mm512_fmadd_ps(dot, product, c->f[r]);
  }
}

template <bool kMin>
[[gnu::always_inline]] inline void AddMin(const float* min, const float* scaled_sum,
                                          Chains<kAmxRows>* c) {
  if (!kMin) return;
  const __m512 m = _mm512_load_ps(min);
#pragma GCC unroll 16
  for (uint32_t r = 0; r < kAmxRows; ++r) {
    c->f[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(scaled_sum[r]), c->f[r]);
  }
}

// Where each half of a block has its scale, the dots of both one after the other, as of twice as
// many blocks.
template <uint32_t kScales, bool kMin>
void AmxTile(Tile* t) {
  auto* scratch = reinterpret_cast<Scratch*>(t->scratch);
  const auto* block = reinterpret_cast<const Unpacked*>(t->unpacked);
  const auto* acts = static_cast<const int8_t*>(t->acts);
  const uint32_t* end = t->ends;
  const uint32_t* last_end = t->ends + t->end_count;
  Chains<kAmxRows> c;
  LoadChains(*t, &c);
  for (uint32_t first = 0; first < t->blocks; first += kBatch) {
    const uint32_t left = t->blocks - first;
    const uint32_t count = left < kBatch ? left : kBatch;
    for (uint32_t half = 0; half < kScales; ++half) {
      MakeDots(*t, block + first, acts + static_cast<size_t>(32) * first, count, half,
               scratch + half);
    }
#pragma GCC unroll 1
    for (uint32_t i = 0; i < kScales * count; ++i) {
      const uint32_t half = i % kScales;
      const uint32_t b = first + i / kScales;
      const size_t cell = static_cast<size_t>(b) * kAmxRows;
      t->ahead.FetchPiece();
      AddDots(scratch[half].dots[i / kScales], block[b].scale[half], t->scale + cell, &c);
      AddMin<kMin>(block[b].min, t->scaled_sum + cell, &c);
      if (half + 1 == kScales && end != last_end && b + 1 == *end) {
        CloseSumGroup<false>(t, &c);
        ++end;
      }
    }
  }
  StoreChains(c, t);
}

template <DType kType>
constexpr KernelTable TableOf() {
  constexpr RecordLayout kLayout = LayoutOf(kType);
  static_assert(kLayout.scales == 1 || !kLayout.has_min);  // else a minimum would be added twice
  KernelTable table = Kernels<Int8Format<kType>>::kTable;
  table.by_rows[kAmxRows] = AmxTile<kLayout.scales, kLayout.has_min>;
  return table;
}

template <DType kType>
void Run(const MatmulJob& job) {
  static constexpr KernelTable kTable = TableOf<kType>();
  constexpr RecordLayout kLayout = LayoutOf(kType);
  alignas(64) std::byte unpacked[kMaxAmxBlocks * sizeof(Unpacked)];
  alignas(64) Scratch scratch[2];
  Configure(kLayout.scales);
  RunJob(job, ShapeOf(kLayout, Tables::kInt8), kTable,
         {.unpack = UnpackGroups<kType>,
          .record_bytes = sizeof(Unpacked),
          .stretch_bytes = kStretchBytes,
          .unpacked = unpacked,
          .scratch = reinterpret_cast<std::byte*>(scratch)});
  _tile_release();
}

}  // namespace

void MatmulAvx512Amx(const MatmulJob& job) {
  switch (job.dtype) {
    case DType::kQ40:
      return Run<DType::kQ40>(job);
    case DType::kQ41:
      return Run<DType::kQ41>(job);
    case DType::kQ50:
      return Run<DType::kQ50>(job);
    case DType::kQ51:
      return Run<DType::kQ51>(job);
    case DType::kQ80:
      return Run<DType::kQ80>(job);
    case DType::kQ4K:
      return Run<DType::kQ4K>(job);
    case DType::kQ5K:
      return Run<DType::kQ5K>(job);
    case DType::kQ6K:
      return Run<DType::kQ6K>(job);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return;  // not asked for
  }
}

}  // namespace cleave

// Int8 products of many rows by AMX: the dots of sixteen rows and sixteen outputs over a block of K
// are one tile instruction, exact as vpdpbusd's, so everything after them is the same.
//
// Records are unpacked first: codes less their zero point, as tdpbssd's signed operand, and scales
// as fp32. A stretch of groups at a time, which many tiles of rows then read from the second cache;
// for few, a group, and for one, a batch of blocks, which stay in the first. For each tile and
// group, the dots of a batch of blocks go to memory before the first is used: a store of a tile
// that is read at once holds up both.

#include <immintrin.h>

#include "kernels/amx_tiles.h"
#include "kernels/int8_avx512.h"
#include "kernels/matmul_job.h"
#include "kernels/tile_avx512.h"

namespace cleave {
namespace {

// Blocks whose dots are made before the first is used: with activations and codes in the first
// cache (16 at a time leave too little of it: 7 % less with 32 rows).
constexpr uint32_t kBatch = 8;

// A block unpacked: codes as in a record of 8 bits, but signed; scales, a second time for the other
// half if there are two; minimums.
struct Unpacked {
  alignas(64) int8_t codes[512];
  alignas(64) float scale[2][kLanes];
  alignas(64) float min[kLanes];
};

// At most so many tiles of rows read what was unpacked a few times only.
constexpr uint32_t kFewTiles = 4;
constexpr size_t kStretchBytes = static_cast<size_t>(96) << 10;
constexpr size_t kStretchBytesOfFew = static_cast<size_t>(16) << 10;

using Dots = int32_t[kBatch][kAmxRows][kLanes];

struct Scratch {
  alignas(64) Dots dots[2];
  Unpacked batch[kBatch];
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
[[gnu::always_inline]] inline void UnpackBlock(const std::byte* record, Unpacked* block) {
  constexpr RecordLayout kLayout = LayoutOf(kType);
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(kLayout.zero));
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m512i codes = Quad<kLayout.code_bits>(record, j);
    _mm512_store_si512(block->codes + 64 * j, _mm512_sub_epi8(codes, zero));
  }
  _mm512_store_ps(block->scale[0], LoadLanes<kLayout>(record, kLayout.scale_at));
  if (kLayout.scales == 2) {
    _mm512_store_ps(block->scale[1], LoadLanes<kLayout>(record, kLayout.scale_at + 64));
  }
  if (kLayout.has_min) _mm512_store_ps(block->min, LoadLanes<kLayout>(record, kLayout.min_at));
}

template <DType kType>
void UnpackGroups(const MatmulJob& job, uint32_t begin, uint32_t end, std::byte* to) {
  constexpr size_t kBytes = LayoutOf(kType).bytes;
  const size_t count = static_cast<size_t>(end - begin) * job.blocks;
  const std::byte* record = job.records + static_cast<size_t>(begin) * job.blocks * kBytes;
  auto* block = reinterpret_cast<Unpacked*>(to);
  for (size_t i = 0; i < count; ++i, record += kBytes, ++block) {
    PrefetchRecord<Int8Format<kType>>(record);
    UnpackBlock<kType>(record, block);
  }
  TileFence();
}

// Where a tile's blocks come from. Batch: those from `first` on. Fetch: while block b is computed.
struct FromStretch {
  static const Unpacked* Batch(const Tile& t, uint32_t first, uint32_t /*count*/,
                               Scratch* /*scratch*/) {
    return reinterpret_cast<const Unpacked*>(t.unpacked) + first;
  }
  static void Fetch(Tile* t, uint32_t /*b*/) { t->ahead.FetchPiece(); }
};

template <DType kType>
struct FromRecords {
  static constexpr size_t kBytes = LayoutOf(kType).bytes;

  static const Unpacked* Batch(const Tile& t, uint32_t first, uint32_t count, Scratch* scratch) {
    const std::byte* record = t.records + first * kBytes;
    for (uint32_t i = 0; i < count; ++i, record += kBytes) {
      UnpackBlock<kType>(record, scratch->batch + i);
    }
    TileFence();
    return scratch->batch;
  }
  // The record a batch on, in the next group too.
  static void Fetch(Tile* t, uint32_t b) {
    const auto* record = reinterpret_cast<const char*>(t->records + (b + kBatch) * kBytes);
    for (size_t at = 0; at < kBytes; at += 64) _mm_prefetch(record + at, _MM_HINT_T1);
  }
};

// dots[i] of `count` blocks from `block` on, for elements [16·half, …) of each.
[[gnu::always_inline]] inline void MakeDots(const Tile& t, const Unpacked* block,
                                            const int8_t* acts, uint32_t count, uint32_t half,
                                            Dots* dots) {
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
    _tile_stored(0, (*dots)[i], 64);
    _tile_stored(1, (*dots)[i + 1], 64);
  }
  if (i < count) {
    _tile_zero(0);
    _tile_loadd(2, acts + static_cast<size_t>(32) * i, stride);
    _tile_loadd(4, block[i].codes + codes, 64);
    _tile_dpbssd(0, 2, 4);
    _tile_stored(0, (*dots)[i], 64);
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
template <uint32_t kScales, bool kMin, class Source>
void AmxTile(Tile* t) {
  auto* scratch = reinterpret_cast<Scratch*>(t->scratch);
  const auto* acts = static_cast<const int8_t*>(t->acts);
  const uint32_t* end = t->ends;
  const uint32_t* last_end = t->ends + t->end_count;
  Chains<kAmxRows> c;
  LoadChains(*t, &c);
  for (uint32_t first = 0; first < t->blocks; first += kBatch) {
    const uint32_t left = t->blocks - first;
    const uint32_t count = left < kBatch ? left : kBatch;
    const Unpacked* block = Source::Batch(*t, first, count, scratch);
    for (uint32_t half = 0; half < kScales; ++half) {
      MakeDots(*t, block, acts + static_cast<size_t>(32) * first, count, half,
               scratch->dots + half);
    }
#pragma GCC unroll 1
    for (uint32_t i = 0; i < kScales * count; ++i) {
      const uint32_t half = i % kScales;
      const uint32_t b = first + i / kScales;
      const size_t cell = static_cast<size_t>(b) * kAmxRows;
      Source::Fetch(t, b);
      AddDots(scratch->dots[half][i / kScales], block[b - first].scale[half], t->scale + cell, &c);
      AddMin<kMin>(block[b - first].min, t->scaled_sum + cell, &c);
      if (half + 1 == kScales && end != last_end && b + 1 == *end) {
        CloseSumGroup<false>(t, &c);
        ++end;
      }
    }
  }
  StoreChains(c, t);
}

template <DType kType, class Source>
constexpr KernelTable TableOf() {
  constexpr RecordLayout kLayout = LayoutOf(kType);
  static_assert(kLayout.scales == 1 || !kLayout.has_min);  // else a minimum would be added twice
  KernelTable table = Kernels<Int8Format<kType>>::kOfMany;
  table.by_rows[kAmxRows] = AmxTile<kLayout.scales, kLayout.has_min, Source>;
  return table;
}

template <DType kType>
void Run(const MatmulJob& job) {
  static constexpr KernelTable kOfStretch = TableOf<kType, FromStretch>();
  static constexpr KernelTable kOfRecords = TableOf<kType, FromRecords<kType>>();
  constexpr RecordLayout kLayout = LayoutOf(kType);
  constexpr TileShape kShape = ShapeOf(kLayout, Tables::kInt8);
  alignas(64) std::byte unpacked[kMaxAmxBlocks * sizeof(Unpacked)];
  alignas(64) Scratch scratch;
  auto* scratch_bytes = reinterpret_cast<std::byte*>(&scratch);
  Configure(kLayout.scales);
  if (job.rows < 2 * kAmxRows) {
    RunJob(job, kShape, kOfRecords, {.unpacked = unpacked, .scratch = scratch_bytes});
  } else {
    RunJob(job, kShape, kOfStretch,
           {.unpack = UnpackGroups<kType>,
            .record_bytes = sizeof(Unpacked),
            .stretch_bytes = job.rows <= kFewTiles * kAmxRows ? kStretchBytesOfFew : kStretchBytes,
            .unpacked = unpacked,
            .scratch = scratch_bytes});
  }
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

#pragma once
// Rows of integer sums on the wire: packing into a slot, exact sums over slots, conversion to fp32.
//
// A narrow row travels as int32, a wide one as int64. Sums are exact: of int32 in doubles (2^53
// holds 2^21 of them), of int64 in int64; the one rounding is that to fp32, to nearest even, so all
// instruction sets, orders and widths give the same bits. Pure; any thread. No allocation.

#include <cstddef>
#include <cstdint>

namespace cleave {

inline constexpr uint32_t kMaxGroupSize = 64;
// From so many bytes on it may pay to write past the caches, so that readers fetch from memory and
// not another core's modified lines: it does between caches that are far apart, it costs double
// where cores share one. comm/crossover.h tries it.
inline constexpr uint64_t kStreamFromBytes = 8192;

enum class StoreKind : uint8_t { kOrdinary, kStreaming };

// A peer's row: n int32 or n int64.
struct PeerRow {
  const std::byte* data = nullptr;
  bool wide = false;
};

struct RowCodec {
  // to[i] = from[i], all of which fit.
  void (*narrow)(const int64_t* from, uint32_t n, int32_t* to, StoreKind store);
  // out[i] = float(mine[i] + Σ peers[p][i]) · scale, peers narrow and mine fitting int32.
  void (*sum_narrow)(const int64_t* mine, const PeerRow* peers, uint32_t peer_count, uint32_t n,
                     float scale, float* out);
  // out[i] = float(sums[i]) · scale.
  void (*to_float)(const int64_t* sums, uint32_t n, float scale, float* out);
};

// The fastest of this processor; all give the same bits.
const RowCodec& BestRowCodec();
// Each that this processor runs, for tests: scalar, AVX2, AVX-512; null past the last.
const RowCodec* RowCodecOf(uint32_t index);

// out[i] = float(mine[i] + Σ peers[p][i]) · 2^-shift over peers of either width.
void SumRow(const RowCodec& codec, const int64_t* mine, bool mine_wide, const PeerRow* peers,
            uint32_t peer_count, uint32_t n, int32_t shift, float* out);

// memcpy, past the caches when asked. Streamed bytes are ordered by StreamFence before a signal.
void CopyTo(std::byte* to, const std::byte* from, size_t n, StoreKind store);
void StreamFence();

// 2^-shift for |shift| ≤ kMaxShift.
inline constexpr int32_t kMaxShift = 120;
float QuantumOf(int32_t shift);

}  // namespace cleave

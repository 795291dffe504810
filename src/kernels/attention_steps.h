#pragma once
// The steps of Attention that an instruction set provides, on plain pointers.
//
// A tile is up to kTileRows query head rows (tokens × heads that share a KV head). For each chunk
// of 128 positions that some row of the tile sees, `chunk_step` updates every row's online softmax;
// at the end of a run of 512 its partial is rounded into the row's bins. Per row the order of every
// operation is that of attention_scalar.cc, whatever the tile.
//
// Sources of an instruction set include this, attention_lanes.h and their lanes, and nothing that
// holds inline functions the linker could pick for others.

#include <cstddef>
#include <cstdint>

#include "kernels/kv_type.h"

namespace cleave::attention {

inline constexpr uint32_t kChunk = 128;  // positions that share one update of the maximum
inline constexpr uint32_t kRun = 512;    // positions that share one partial
inline constexpr uint32_t kLanes = 16;
inline constexpr uint32_t kChunkGroups = kChunk / kLanes;
inline constexpr uint32_t kTileRows = 48;

inline constexpr int32_t kBinBits = 16;
inline constexpr int32_t kFractionBits = 36;
inline constexpr uint32_t kBins = 3;
// Scores this far under the maximum have no mass.
inline constexpr float kScoreFloor = -100.0F;
// Maxima are clamped to ±2^29; -2^29 also stands for "no score yet".
inline constexpr float kMaximumLimit = 536870912.0F;
inline constexpr float kLargestElement = 0x1p72F;

// One tile's rows.
struct Rows {
  uint32_t count;
  uint32_t head_dim;    // d
  uint32_t padded_dim;  // d rounded up to 16
  uint32_t stride;      // of `o`: padded_dim + 16; l goes to o[padded_dim] for the bins
  float* q;             // [rows][padded_dim], scaled
  float* o;             // [rows][stride]; zero past d
  float* p;             // [rows][128]: scores, then probabilities
  float* l;             // [rows][16]
  float* m;             // [rows]: the running maximum, whole
  uint32_t* begin;      // [rows]: positions seen, [begin, end)
  uint32_t* end;
};

// Whether a score is multiplied by its key's scale and a probability by its value's.
enum class Scaling : uint8_t { kNone, kPerToken };

// One chunk of K and V. Only groups that hold a position of the tile's range have pointers.
struct Chunk {
  KvType type;                               // of keys and values; what was widened is kF32
  Scaling scaling;                           // as the cache has it
  uint32_t first_position;                   // of the chunk; a multiple of 128
  const std::byte* keys[kChunkGroups];       // [d][16]
  const std::byte* values[kChunkGroups];     // [16][padded_dim]
  const std::byte* next_keys[kChunkGroups];  // of the chunk after this one: to bring them in early
  const float* key_scales[kChunkGroups];     // [16] where there is scaling
  const float* value_scales[kChunkGroups];   // [16] where there is scaling
};

struct Steps {
  // out[i] = in[i]·scale, d of them.
  void (*scale_query)(const float* in, float scale, uint32_t d, float* out);
  // One group of 16 positions to fp32: keys [d][16] as they are, values [16][d] to
  // [16][padded_dim].
  void (*widen_group)(KvType type, const std::byte* keys, const std::byte* values, uint32_t d,
                      uint32_t padded_dim, float* keys_out, float* values_out);
  void (*chunk_step)(const Chunk& chunk, const Rows& rows);
  // The tree 8-4-2-1 over l [16].
  float (*sum_lanes)(const float* l);
  // The largest |x[i]| of n; infinity and then NaN are the largest.
  float (*largest)(const float* x, uint32_t n);
  // counts[i] = rne(x[i]·unit), n a multiple of 16, |x[i]·unit| < 2^62; `add` adds to what is
  // there.
  void (*set_quanta)(const float* x, float unit, uint32_t n, int64_t* counts);
  void (*add_quanta)(const float* x, float unit, uint32_t n, int64_t* counts);
  // out[i] = float(N_i·2^-36) / float(N_mass·2^-36), d of them; N = high + middle·2^-16 + low·2^-32
  // in double, null counts being zero.
  void (*finish)(const int64_t* high, const int64_t* middle, const int64_t* low, uint32_t d,
                 uint32_t mass_index, float* out);
  // x rounded to a two-byte cache type.
  void (*to_cache)(KvType type, const float* x, uint32_t n, uint16_t* out);
  // out[i] = rne(x[i]·inverse), |x[i]·inverse| < 127.5.
  void (*to_int8)(const float* x, float inverse, uint32_t n, int8_t* out);
};

extern const Steps kStepsAvx2;
extern const Steps kStepsAvx512;

}  // namespace cleave::attention

#pragma once
// What the parts of Attention share: the buffers of a thread, and the steps that an instruction set
// provides.
//
// A tile is up to kTileRows query head rows (tokens × heads that share a KV head). For each chunk
// of 128 positions that some row of the tile sees, `chunk_step` updates every row's online softmax;
// at the end of a run of 512 its partial is rounded into the row's bins. Per row the order of every
// operation is that of attention_scalar.cc, whatever the tile.
// One thread's; no allocation outside the constructor.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_bins.h"

namespace cleave::attention {

inline constexpr uint32_t kTileRows = 48;
inline constexpr uint32_t kChunkGroups = kChunk / kLanes;

// One tile's rows; pointers into AttentionScratch::Buffers.
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

// One chunk of K and V. Only groups that hold a position of the tile's range have pointers.
struct Chunk {
  DType dtype;
  uint32_t first_position;                // of the chunk; a multiple of 128
  const std::byte* keys[kChunkGroups];    // [d][16]
  const std::byte* values[kChunkGroups];  // [16][value_stride]
  uint32_t value_stride;                  // elements
};

struct Steps {
  // out[i] = in[i]·scale, d of them.
  void (*scale_query)(const float* in, float scale, uint32_t d, float* out);
  // One group of 16 positions to fp32: keys [d][16] and values [16][padded_dim].
  void (*widen_group)(DType dtype, const std::byte* keys, const std::byte* values, uint32_t d,
                      uint32_t padded_dim, float* keys_out, float* values_out);
  void (*chunk_step)(const Chunk& chunk, const Rows& rows);
  // l summed by the tree 8-4-2-1.
  float (*sum_lanes)(const float* l);
  // The largest |x[i]| over n (a multiple of 16) elements; infinity and NaN compare as largest.
  float (*largest)(const float* x, uint32_t n);
  // counts[i] += rne(x[i]·unit), or = when `fresh`; n a multiple of 16; |x[i]·unit| < 2^62.
  void (*add_quanta)(const float* x, float unit, uint32_t n, bool fresh, int64_t* counts);
  // out[i] = float(Σ_b counts[b][i]·2^-(36 + 16b)) / float(the same at n); null counts are zero.
  void (*finish)(const int64_t* const counts[kBins], uint32_t d, uint32_t mass_index, float* out);
};

extern const Steps kStepsAvx2;
extern const Steps kStepsAvx512;

// The truth: one row at a time, straight from the definition.
void AttentionScalar(const KvShape& shape, const AttentionJob& job,
                     AttentionScratch::Buffers* buffers);
void StoreKvPlain(const KvShape& shape, const float* key, const float* value, uint32_t offset,
                  std::byte* head_block);

}  // namespace cleave::attention

namespace cleave {

struct AttentionScratch::Buffers {
  explicit Buffers(uint32_t head_dim);

  uint32_t head_dim;
  uint32_t padded_dim;
  uint32_t stride;
  std::vector<float> q;  // shapes as in attention::Rows
  std::vector<float> o;
  std::vector<float> p;
  std::vector<float> l;
  std::vector<float> m;
  std::vector<uint32_t> begin;
  std::vector<uint32_t> end;
  std::vector<float> keys;    // a chunk in fp32: [8][d][16]
  std::vector<float> values;  // [8][16][padded_dim]

  // Bins of a row while its counts fit 64 bits: [row][3][stride].
  struct Narrow {
    int32_t top = 0;
    uint32_t present = 0;  // bit b mod 3 of a bin whose counts are set
    bool wide = false;     // the row continues in `wide[row]`
    float reach = 0;       // bound of any count, in units of 2^36 quanta
  };
  std::vector<int64_t> counts;
  std::vector<Narrow> narrow;       // [rows]
  std::vector<AttentionBins> wide;  // [rows]
};

}  // namespace cleave

#pragma once
// The buffers of one thread's Attention, and the plain version that is its truth.
// No allocation outside the constructor.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_bins.h"
#include "kernels/attention_steps.h"

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

  // Bins of a row while its counts fit 64 bits.
  struct Narrow {
    int32_t top = 0;
    uint32_t present = 0;  // bit b mod 3 of each bin b whose counts are set
    bool wide = false;     // the row goes on in `wide[row]`
    float reach = 0;       // no count is larger than this times 2^36
  };
  std::vector<int64_t> counts;      // [rows][3][stride], as `o`
  std::vector<Narrow> narrow;       // [rows]
  std::vector<AttentionBins> wide;  // [rows]
};

namespace attention {

// One row at a time, straight from the definition.
void AttentionScalar(const KvShape& shape, const AttentionJob& job,
                     AttentionScratch::Buffers* buffers);
void StoreKvScalar(const KvShape& shape, const float* key, const float* value, uint32_t offset,
                   std::byte* head_block);

}  // namespace attention
}  // namespace cleave

#pragma once
// The buffers of one thread's Attention, and the plain version that is its truth.
// No allocation outside the constructor.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_bins.h"
#include "kernels/attention_partial.h"
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
    KeptBins bins;
    bool wide = false;  // the row goes on in `wide[row]`
    float reach = 0;    // no count is larger than this times 2^36
  };
  std::vector<int64_t> counts;      // [rows][3][stride], as `o`
  std::vector<Narrow> narrow;       // [rows]
  std::vector<AttentionBins> wide;  // [rows]
};

namespace attention {

// Of a vector instruction set.
inline const Steps& StepsFor(Isa isa) { return isa == Isa::kAvx2 ? kStepsAvx2 : kStepsAvx512; }

// Counts stay below 2^61 while a row's reach stays below this.
inline constexpr float kNarrowReach = 0x1p25F;

// What a row's bins hold as a record of PartialRows, in 64 bits (int64_t: they fit) or 128.
template <typename Count>
PartialCode ExportBins(const AttentionBins& bins, uint32_t head_dim, Count* record) {
  if (bins.broken()) return PartialCode::Broken();
  if (bins.bins().empty()) return {};
  const int32_t top = bins.bins().top();
  for (uint32_t slot = 0; slot < kBins; ++slot) {
    const Int128* counts = bins.CountsOf(top - static_cast<int32_t>(slot));
    Count* out = record + slot * (size_t{head_dim} + 1);
    if (counts == nullptr) continue;
    for (uint32_t i = 0; i <= head_dim; ++i) out[i] = static_cast<Count>(counts[i]);
  }
  if constexpr (sizeof(Count) == sizeof(int64_t)) {
    return PartialCode::Narrow(top, bins.bins().UnderTop());
  } else {
    return PartialCode::Wide(top, bins.bins().UnderTop());
  }
}

// One row at a time, straight from the definition.
void AttentionScalar(const KvShape& shape, const AttentionJob& job,
                     AttentionScratch::Buffers* buffers);
void AttentionPartialScalar(const KvShape& shape, const AttentionJob& job, AttentionRuns runs,
                            const PartialRows& rows, AttentionScratch::Buffers* buffers);
void StoreKvScalar(const KvShape& shape, const float* key, const float* value, uint32_t offset,
                   std::byte* head_block);

}  // namespace attention
}  // namespace cleave

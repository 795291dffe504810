#include "kernels/attention.h"

#include "base/checked.h"
#include "kernels/attention_kernel.h"

namespace cleave {

using attention::kBins;
using attention::kChunk;
using attention::kChunkGroups;
using attention::kLanes;
using attention::kTileRows;

AttentionScratch::Buffers::Buffers(uint32_t d)
    : head_dim(d),
      padded_dim(RoundUp(d, kLanes)),
      stride(padded_dim + kLanes),
      q(static_cast<size_t>(kTileRows) * padded_dim),
      o(static_cast<size_t>(kTileRows) * stride),
      p(static_cast<size_t>(kTileRows) * kChunk),
      l(static_cast<size_t>(kTileRows) * kLanes),
      m(kTileRows),
      begin(kTileRows),
      end(kTileRows),
      keys(static_cast<size_t>(kChunk) * d),
      values(static_cast<size_t>(kChunk) * padded_dim),
      counts(static_cast<size_t>(kTileRows) * kBins * stride),
      narrow(kTileRows),
      wide(kTileRows, AttentionBins(d)) {}

AttentionScratch::AttentionScratch(uint32_t head_dim, uint32_t /*max_heads_per_kv*/)
    : buffers_(std::make_unique<Buffers>(head_dim)) {}
AttentionScratch::~AttentionScratch() = default;
AttentionScratch::AttentionScratch(AttentionScratch&&) noexcept = default;

void StoreKv(Isa /*isa*/, const KvShape& shape, const float* key, const float* value,
             uint32_t offset, std::byte* head_block) {
  attention::StoreKvPlain(shape, key, value, offset, head_block);
}

void Attention(Isa /*isa*/, const KvShape& shape, const AttentionJob& job,
               AttentionScratch* scratch) {
  attention::AttentionScalar(shape, job, &scratch->buffers());
}

}  // namespace cleave

#pragma once
// Attention over a paged KV cache, in an order that no batch, chunking, tile or owner changes.
//
// Scores are one fma chain over d. Positions are taken in chunks of 128 and runs of 512 at absolute
// positions: inside a run an online softmax in base 2 with an integer running maximum (every
// rescale is an exact power of two); across runs partials are rounded once into absolute bins (bin
// ⌈m/16⌉, quantum 2^(16b-36)), integers that add in any order; the three highest bins count. One
// token and many, one run and many, take the same path.
//
// KV block of one layer and one KV head (head_bytes): keys as [block_tokens/16][d][16] (sixteen
// positions side by side, so scores have positions in lanes), then values as [block_tokens][d],
// both in the cache's type; of an int8 cache then the keys' scales [block_tokens] and the values'.
// block_tokens is 16, 32, 64 or 128.
// Of an int8 cache the chain of a score runs over the integers, and its sum times the key's scale,
// rounded once, is the score; a probability times the value's scale, rounded once, is what the
// integers of the value are multiplied with.
// A query head row whose scores or values are not finite, or whose sums reach 2^72, becomes NaN.
// Threads split (sequence, KV head) jobs or query rows; scratch is one per thread. No allocation.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/isa.h"
#include "kernels/kv_type.h"

namespace cleave {

// As the flag --kv-cache-dtype and the metrics have it.
std::string_view NameOf(KvType type);

struct KvShape {
  KvType type = KvType::kF16;
  uint32_t head_dim = 0;
  uint32_t block_tokens = 16;

  [[nodiscard]] size_t element_bytes() const {
    return type == KvType::kF32 ? 4 : type == KvType::kInt8 ? 1 : 2;
  }
  // Key and value of one token and one KV head, and their scales.
  [[nodiscard]] size_t token_bytes() const {
    return 2 * (head_dim * element_bytes() + (type == KvType::kInt8 ? sizeof(float) : 0));
  }
  // The same of one block: one piece.
  [[nodiscard]] size_t head_bytes() const { return block_tokens * token_bytes(); }
  // Where the scales are in it.
  [[nodiscard]] size_t key_scales_at() const {
    return 2 * static_cast<size_t>(block_tokens) * head_dim * element_bytes();
  }
  [[nodiscard]] size_t value_scales_at() const {
    return key_scales_at() + block_tokens * sizeof(float);
  }
};

// Rounds one token's key and value [d] to the cache's type and stores them at position `offset` of
// a head's block.
void StoreKv(Isa isa, const KvShape& shape, const float* key, const float* value, uint32_t offset,
             std::byte* head_block);

struct AttentionJob {
  const float* q = nullptr;  // token t, query head h of this KV head: q + t·q_stride + h·d
  size_t q_stride = 0;
  float* out = nullptr;  // same shape as q
  size_t out_stride = 0;
  uint32_t tokens = 0;  // consecutive query positions first_position, …
  uint32_t first_position = 0;
  uint32_t heads = 0;   // query heads that share this KV head
  uint32_t window = 0;  // positions seen, the query's own included; 0 = all
  float scale = 0;      // q is multiplied by scale · log2(e), rounded once, before the scores
  std::span<const int32_t> block_table;  // block of positions [i·block_tokens, …)
  int32_t first_block = 0;               // what the table calls the block at `kv`
  const std::byte* kv = nullptr;         // of this layer and KV head
  size_t block_stride = 0;               // bytes from a block to the next
};

class AttentionScratch {
 public:
  explicit AttentionScratch(uint32_t head_dim);
  ~AttentionScratch();
  AttentionScratch(AttentionScratch&&) noexcept;

  struct Buffers;
  [[nodiscard]] Buffers& buffers() const { return *buffers_; }

 private:
  std::unique_ptr<Buffers> buffers_;
};

void Attention(Isa isa, const KvShape& shape, const AttentionJob& job, AttentionScratch* scratch);

}  // namespace cleave

#pragma once
// KvCache: the memory behind the block pool: keys and values of every layer, KV head and block.
//
// Layout: [layer][KV head][block][head_bytes] (attention.h has a head's block), one anonymous
// mapping of exactly the declared size; pages become resident when a block is first written.
// Owner: the executor. Threads: workers write disjoint (layer, head, position)s.

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/attention.h"
#include "model/config.h"

namespace cleave {

class KvCache {
 public:
  // Fails with kResourceExhausted, naming the bytes and --kv-cache-memory-bytes.
  // Holds blocks [first_block, first_block + num_blocks) of the replica's pool.
  static Result<KvCache> Create(const KvShape& shape, uint32_t layers, uint32_t kv_heads,
                                uint32_t num_blocks, int32_t first_block = 0);
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  ~KvCache();

  [[nodiscard]] const KvShape& shape() const { return shape_; }
  [[nodiscard]] uint32_t num_blocks() const { return num_blocks_; }
  [[nodiscard]] int32_t first_block() const { return first_block_; }
  [[nodiscard]] size_t block_stride() const { return shape_.head_bytes(); }
  // The first block of a layer and KV head.
  [[nodiscard]] std::byte* head_base(uint32_t layer, uint32_t head) const {
    return data_ + (static_cast<size_t>(layer) * kv_heads_ + head) * num_blocks_ * block_stride();
  }
  // Bytes of one block over all layers and KV heads.
  static uint64_t BlockBytes(const KvShape& shape, uint32_t layers, uint32_t kv_heads) {
    return static_cast<uint64_t>(layers) * kv_heads * shape.head_bytes();
  }

 private:
  KvCache() = default;

  KvShape shape_;
  uint32_t kv_heads_ = 0;
  uint32_t num_blocks_ = 0;
  int32_t first_block_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace cleave

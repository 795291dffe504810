#include "engine/kv_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/checked.h"

namespace cleave {

Result<KvCache> KvCache::Create(const KvShape& shape, uint32_t layers, uint32_t kv_heads,
                                uint32_t num_blocks, int32_t first_block) {
  const auto bytes = CheckedMul(BlockBytes(shape, layers, kv_heads), num_blocks);
  if (!bytes || *bytes == 0) {
    return InvalidArgument(fmt::format("a KV cache of {} blocks has no valid size", num_blocks));
  }
  void* data = ::mmap(nullptr, *bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted(
        fmt::format("cannot map {} bytes for the KV cache: {}; lower --kv-cache-memory-bytes or "
                    "--gpu-memory-utilization",
                    *bytes, std::strerror(errno)));
  }
  KvCache cache;
  cache.shape_ = shape;
  cache.kv_heads_ = kv_heads;
  cache.num_blocks_ = num_blocks;
  cache.first_block_ = first_block;
  cache.data_ = static_cast<std::byte*>(data);
  cache.bytes_ = *bytes;
  return cache;
}

KvCache::KvCache(KvCache&& other) noexcept
    : shape_(other.shape_),
      kv_heads_(other.kv_heads_),
      num_blocks_(other.num_blocks_),
      first_block_(other.first_block_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

KvCache& KvCache::operator=(KvCache&& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(kv_heads_, other.kv_heads_);
  std::swap(num_blocks_, other.num_blocks_);
  std::swap(first_block_, other.first_block_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

KvCache::~KvCache() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace cleave

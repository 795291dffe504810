#pragma once
// What the tests and the benchmark of Attention share: a paged cache of one KV head, queries over
// it, and a softmax in double. One thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_partial.h"

namespace cleave::attention_test {

std::vector<std::byte> Bytes(const std::vector<float>& x);
bool SameOrBothNan(const std::vector<float>& a, const std::vector<float>& b);

// Random keys and values at positions [0, context), in blocks that lie in a random order among
// blocks full of NaN. The same seed gives the same contents whatever the block size and placement.
class PagedHead {
 public:
  PagedHead(KvShape shape, uint32_t context, uint64_t seed, uint64_t placement = 0,
            float value_scale = 1.0F);

  void OverwriteKey(uint32_t position, float x);
  void OverwriteValue(uint32_t position, float x);
  void SetKey(uint32_t position, const std::vector<float>& key);
  // Entries of blocks [0, block) become -1, and their bytes NaN.
  void ForgetBlocksBefore(uint32_t block);
  // Blocks of other runs get entries far outside the cache, and their bytes become NaN.
  void KeepRuns(AttentionRuns runs);

  [[nodiscard]] const KvShape& shape() const { return shape_; }
  [[nodiscard]] uint32_t context() const { return context_; }
  // As given, before rounding to the cache's type.
  [[nodiscard]] const std::vector<float>& key(uint32_t position) const { return keys_[position]; }
  [[nodiscard]] float StoredKey(uint32_t position, uint32_t i) const;
  [[nodiscard]] float StoredValue(uint32_t position, uint32_t i) const;
  [[nodiscard]] double largest_value() const;
  // The cache's part of a job.
  void Describe(AttentionJob* job) const;

 private:
  void Store(uint32_t position);
  [[nodiscard]] float Read(uint32_t position, size_t element) const;
  // Of an int8 cache, at its scales `at`; 1 in others.
  [[nodiscard]] float Scale(uint32_t position, size_t at) const;

  KvShape shape_;
  uint32_t context_;
  size_t block_stride_;
  std::vector<std::vector<float>> keys_;    // [context][d]
  std::vector<std::vector<float>> values_;  // [context][d]
  std::vector<int32_t> table_;
  std::vector<std::byte> pool_;
};

// Queries of `tokens` tokens × `heads` heads from position `first` on.
class Query {
 public:
  Query(uint32_t d, uint32_t heads, uint32_t tokens, uint32_t first, uint64_t seed);

  // Outputs [tokens][heads][d], `at_once` tokens a call.
  [[nodiscard]] std::vector<float> Run(Isa isa, const PagedHead& head, uint32_t window,
                                       uint32_t at_once) const;
  // Tokens [token, token + count), without out.
  [[nodiscard]] AttentionJob Job(const PagedHead& head, uint32_t window, uint32_t token,
                                 uint32_t count) const;
  [[nodiscard]] std::vector<double> Double(const PagedHead& head, uint32_t window) const;
  // The largest sum of magnitudes of a query head.
  [[nodiscard]] double LargestNorm1() const;
  // Moves every key along the first query so that scores change by `bits` a position.
  void AddDriftTo(PagedHead* head, float bits) const;

  [[nodiscard]] uint32_t heads() const { return heads_; }
  [[nodiscard]] uint32_t tokens() const { return tokens_; }
  [[nodiscard]] uint32_t first() const { return first_; }

 private:
  uint32_t d_;
  uint32_t heads_;
  uint32_t tokens_;
  uint32_t first_;
  float scale_;
  std::vector<float> q_;  // [tokens][heads][d]
};

}  // namespace cleave::attention_test

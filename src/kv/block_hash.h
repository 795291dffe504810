#pragma once
// The prefix cache's names: a full block of tokens is named by everything before it and itself,
// so that two sequences share a block exactly when they share every token up to its end.
//
//   name(block i) = SHA-256(name(block i-1) ‖ token ids, 4 bytes each ‖ salt if i = 0)[0, 16)
//
// Block 0's parent is the root, drawn once per process so that names mean nothing outside it. The
// ids have a fixed length, so the salt behind them is unambiguous; as later names contain the
// first, different salts never share a block.
//
// BlockHasher: owned by one thread (it keeps a digest context); cannot fail after construction.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace cleave {

struct BlockHash {
  uint64_t lo = 0;
  uint64_t hi = 0;
  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

class BlockHasher {
 public:
  explicit BlockHasher(const BlockHash& root);
  ~BlockHasher();
  BlockHasher(const BlockHasher&) = delete;
  BlockHasher& operator=(const BlockHasher&) = delete;

  [[nodiscard]] const BlockHash& root() const { return root_; }
  // The name of the first block of a sequence, and of one behind `parent`.
  BlockHash First(std::span<const int32_t> tokens, std::string_view salt);
  BlockHash Next(const BlockHash& parent, std::span<const int32_t> tokens);

 private:
  struct Context;
  BlockHash root_;
  std::unique_ptr<Context> context_;
};

}  // namespace cleave

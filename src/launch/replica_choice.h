#pragma once
// ReplicaChoice: which of the dp replicas takes a request, by load and matched prefix together.
//
//   score(replica) = prompt tokens its prefix cache is believed to hold
//                    - tokens of what waits and runs there
//
// and the highest score wins, ties by the lower index: computing a prompt token again costs about
// as much as standing behind one. What a cache holds is an estimate: the blocks of the prompts that
// were sent there, least recently sent forgotten first. A wrong estimate costs time, never an
// answer.
// A decision: no clock, no I/O. Owner: the replica set, one thread at a time. Memory: bounded by
// max_blocks entries of about 100 bytes. Deterministic.

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cleave {

struct ReplicaLoad {
  bool alive = true;
  uint64_t tokens = 0;  // prompt and output tokens of what waits and runs
};

class ReplicaChoice {
 public:
  // Replicas above 64 are chosen by load alone.
  ReplicaChoice(uint32_t replicas, uint32_t block_size, size_t max_blocks);

  // The replica for a prompt; nothing when none lives. `loads` has one entry a replica.
  std::optional<uint32_t> Choose(std::span<const int32_t> prompt, std::string_view cache_salt,
                                 std::span<const ReplicaLoad> loads) const;
  // A prompt went there.
  void Sent(std::span<const int32_t> prompt, std::string_view cache_salt, uint32_t replica);
  // Its cache is gone.
  void Forget(uint32_t replica);

  // Prompt tokens believed to be held by each replica.
  [[nodiscard]] std::vector<uint64_t> Matched(std::span<const int32_t> prompt,
                                              std::string_view cache_salt) const;
  [[nodiscard]] size_t blocks() const { return blocks_.size(); }

 private:
  struct Block {
    uint64_t holders = 0;               // bit i: replica i
    std::list<uint64_t>::iterator age;  // in by_age_
  };

  [[nodiscard]] uint64_t Root(std::string_view cache_salt) const;
  [[nodiscard]] uint64_t Next(uint64_t parent, std::span<const int32_t> block) const;

  const uint32_t replicas_;
  const uint32_t block_size_;
  const size_t max_blocks_;
  std::unordered_map<uint64_t, Block> blocks_;  // by the hash of everything up to the block's end
  std::list<uint64_t> by_age_;                  // least recently sent first
};

}  // namespace cleave

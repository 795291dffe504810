#include "launch/replica_choice.h"

#include <algorithm>
#include <bit>

#include "base/rng.h"

namespace cleave {
namespace {

constexpr uint32_t kMostTracked = 64;

}  // namespace

ReplicaChoice::ReplicaChoice(uint32_t replicas, uint32_t block_size, size_t max_blocks)
    : replicas_(replicas), block_size_(std::max(block_size, 1U)), max_blocks_(max_blocks) {}

uint64_t ReplicaChoice::Root(std::string_view cache_salt) const {
  uint64_t hash = MixBits(cache_salt.size() + 1);
  for (const char c : cache_salt) hash = MixBits(hash ^ static_cast<uint8_t>(c)) + 1;
  return hash;
}

uint64_t ReplicaChoice::Next(uint64_t parent, std::span<const int32_t> block) const {
  uint64_t hash = parent;
  for (const int32_t token : block) hash = MixBits(hash ^ static_cast<uint32_t>(token)) + 1;
  return hash;
}

std::vector<uint64_t> ReplicaChoice::Matched(std::span<const int32_t> prompt,
                                             std::string_view cache_salt) const {
  std::vector<uint64_t> matched(replicas_, 0);
  uint64_t holders = ~uint64_t{0};
  uint64_t hash = Root(cache_salt);
  for (; prompt.size() >= block_size_ && holders != 0; prompt = prompt.subspan(block_size_)) {
    hash = Next(hash, prompt.first(block_size_));
    const auto found = blocks_.find(hash);
    if (found == blocks_.end()) break;
    holders &= found->second.holders;
    for (uint64_t bits = holders; bits != 0; bits &= bits - 1) {
      matched[static_cast<size_t>(std::countr_zero(bits))] += block_size_;
    }
  }
  return matched;
}

std::optional<uint32_t> ReplicaChoice::Choose(std::span<const int32_t> prompt,
                                              std::string_view cache_salt,
                                              std::span<const ReplicaLoad> loads) const {
  const std::vector<uint64_t> matched = Matched(prompt, cache_salt);
  std::optional<uint32_t> best;
  int64_t best_score = 0;
  for (uint32_t i = 0; i < replicas_ && i < loads.size(); ++i) {
    if (!loads[i].alive) continue;
    const int64_t score = static_cast<int64_t>(matched[i]) - static_cast<int64_t>(loads[i].tokens);
    if (!best || score > best_score) {
      best = i;
      best_score = score;
    }
  }
  return best;
}

void ReplicaChoice::Sent(std::span<const int32_t> prompt, std::string_view cache_salt,
                         uint32_t replica) {
  if (replica >= std::min(replicas_, kMostTracked)) return;
  uint64_t hash = Root(cache_salt);
  for (; prompt.size() >= block_size_; prompt = prompt.subspan(block_size_)) {
    hash = Next(hash, prompt.first(block_size_));
    const auto [entry, added] = blocks_.try_emplace(hash);
    if (added) {
      entry->second.age = by_age_.insert(by_age_.end(), hash);
    } else {
      by_age_.splice(by_age_.end(), by_age_, entry->second.age);
    }
    entry->second.holders |= uint64_t{1} << replica;
    if (blocks_.size() > max_blocks_) {
      blocks_.erase(by_age_.front());
      by_age_.pop_front();
    }
  }
}

void ReplicaChoice::Forget(uint32_t replica) {
  if (replica >= kMostTracked) return;
  const uint64_t keep = ~(uint64_t{1} << replica);
  for (auto entry = blocks_.begin(); entry != blocks_.end();) {
    entry->second.holders &= keep;
    if (entry->second.holders == 0) {
      by_age_.erase(entry->second.age);
      entry = blocks_.erase(entry);
    } else {
      ++entry;
    }
  }
}

}  // namespace cleave

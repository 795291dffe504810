#include "engine/scheduler/naive_scheduler.h"

#include <algorithm>

namespace cleave {

size_t NaiveScheduler::MostDecodes() const {
  if (!awaits()) return config_.max_num_seqs;
  size_t decoding = 0;
  for (const Rank& rank : Running()) {
    const One& one = all_.at(rank);
    if (one.pending > 0 || Wanted(one) == 1) ++decoding;
  }
  const size_t plans = config_.max_plans_in_flight;
  return decoding / plans + (decoding % plans > 0 ? 1 : 0);
}

// The worst at most as good as `rank` that has a block there; else `rank`.
NaiveScheduler::Rank NaiveScheduler::VictimFor(const Rank& rank, uint32_t partition) const {
  Rank victim = rank;
  for (const Rank& r : Running()) {
    if (r > rank && HasBlockIn(all_.at(r), partition)) victim = r;
  }
  return victim;
}

bool NaiveScheduler::GetBlock(const Rank& rank, Step* step, bool* stalled) {
  One& one = all_[rank];
  while (one.scheduled / bs() >= one.table.size()) {
    const uint32_t partition = PartitionOf(one.table.size());
    if (pool_.free_blocks(partition) > 0) {
      one.table.push_back(pool_.Allocate(partition));
      continue;
    }
    const Rank victim = VictimFor(rank, partition);
    One& worst = all_[victim];
    const bool best_of_many = victim == Running().front() && Running().size() > 1;
    if (AnyDrains() || best_of_many || worst.known + worst.pending >= worst.facts.limit) {
      *stalled = true;
      return false;
    }
    step->preempted.emplace_back(worst.facts.tag, worst.computed);
    if (worst.flights == 0) {
      Requeue(&worst);
    } else {
      worst.phase = Phase::kDrains;
    }
    if (one.phase != Phase::kRuns) return false;
  }
  return true;
}

void NaiveScheduler::Put(One* one, uint32_t tokens, Step* step) {
  uint32_t n = std::min(tokens, left_);
  const uint32_t chunk = config_.long_prefill_token_threshold;
  if (chunk > 0) n = std::min(n, chunk);
  left_ -= n;
  const uint32_t first = one->scheduled;
  one->scheduled += n;
  const bool samples = one->scheduled == one->known + one->pending;
  const auto blocks = static_cast<std::ptrdiff_t>((one->scheduled + bs() - 1) / bs());
  step->entries.push_back(
      {one->facts.tag, first, n, samples, {one->table.begin(), one->table.begin() + blocks}});
  one->pending += samples ? 1 : 0;
  ++one->flights;
}

void NaiveScheduler::Admit(Step* step) {
  std::vector<Rank> lacking;
  uint32_t shared = 0;
  for (const Rank& rank : In(Phase::kWaits)) {
    const bool barred = std::any_of(lacking.begin(), lacking.end(), [this](const Rank& r) {
      return all_[r].passed >= config_.max_bypasses;
    });
    if (barred || lacking.size() == Scheduler::kScanWindow || left_ == 0) return;
    if (Running().size() == config_.max_num_seqs || shared == Scheduler::kScanShared) return;
    if (IsComputedElsewhere(all_[rank])) {
      ++shared;
      continue;
    }
    if (!AdmitOne(&all_[rank], step)) {
      lacking.push_back(rank);
      continue;
    }
    for (const Rank& r : lacking) ++all_[r].passed;
  }
}

std::vector<BlockId> NaiveScheduler::Found(const One& one) const {
  std::vector<BlockId> found;
  for (uint32_t i = 0; i < one.names.size() && i < (one.known - 1) / bs(); ++i) {
    const BlockId block = pool_.Find(one.names[i]);
    if (block == kNoBlock || one.facts.lookup == CacheLookup::kNo) break;
    found.push_back(block);
  }
  return found;
}

bool NaiveScheduler::IsComputedElsewhere(const One& one) {
  const size_t next = Found(one).size();
  if (one.facts.lookup == CacheLookup::kNo || next >= one.names.size()) return false;
  if (next == (one.known - 1) / bs()) return false;
  for (const Rank& rank : Running()) {
    const One& other = all_[rank];
    const bool has = next < other.names.size() && other.names[next] == one.names[next];
    if (has && other.published <= next) return true;
  }
  return false;
}

bool NaiveScheduler::AdmitOne(One* one, Step* step) {
  const std::vector<BlockId> found = Found(*one);
  const uint32_t total = (one->known + bs() - 1) / bs();
  std::vector<size_t> needed(config_.kv_partitions, 0);
  for (size_t i = found.size(); i < total; ++i) ++needed[PartitionOf(i)];
  for (size_t i = 0; i < found.size(); ++i) {
    needed[PartitionOf(i)] += pool_.references(found[i]) == 0 ? 1 : 0;
  }
  for (const Rank& rank : Running()) {
    const size_t next = all_[rank].table.size();
    if (next < MostBlocks(all_[rank])) ++needed[PartitionOf(next)];
  }
  const bool grows_at_once = one->known % bs() == 0 && total < MostBlocks(*one);
  if (!Running().empty() && grows_at_once) ++needed[PartitionOf(total)];
  for (uint32_t p = 0; p < needed.size(); ++p) {
    if (needed[p] > pool_.free_blocks(p)) return false;
  }
  for (const BlockId b : found) pool_.Acquire(b);
  one->table = found;
  while (one->table.size() < total) {
    one->table.push_back(pool_.Allocate(PartitionOf(one->table.size())));
  }
  one->scheduled = one->computed = static_cast<uint32_t>(found.size()) * bs();
  one->published = found.size();
  one->phase = Phase::kRuns;
  one->passed = 0;
  step->admitted.emplace_back(one->facts.tag, one->computed);
  Put(one, Wanted(*one), step);
  return true;
}

}  // namespace cleave

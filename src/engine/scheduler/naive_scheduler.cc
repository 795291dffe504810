#include "engine/scheduler/naive_scheduler.h"

#include <algorithm>

namespace cleave {

size_t NaiveScheduler::MostDecodes(uint32_t team) const {
  if (!awaits()) return config_.max_num_seqs;
  size_t decoding = 0;
  for (const Rank& rank : In(Phase::kRuns, team)) {
    const One& one = all_.at(rank);
    if (one.pending > 0 || Wanted(one) == 1) ++decoding;
  }
  const size_t plans = config_.max_plans_in_flight;
  return decoding / plans + (decoding % plans > 0 ? 1 : 0);
}

// False when it preempted somebody or stalled.
bool NaiveScheduler::ScheduleDecodes(uint32_t team, Step* step) {
  left_[team] = config_.max_num_batched_tokens;
  bool stalled = false;
  size_t most = MostDecodes(team);
  const size_t before = step->preempted.size();
  for (const Rank& rank : In(Phase::kRuns, team)) {
    if (most == 0 || left_[team] == 0) break;
    One& one = all_[rank];
    if (one.phase != Phase::kRuns || Wanted(one) != 1) continue;
    if (!GetBlock(rank, step, &stalled)) continue;
    Put(&one, 1, step);
    --most;
  }
  return !stalled && step->preempted.size() == before;
}

// The worst of the team at most as good as `rank` that has a block there; else `rank`.
NaiveScheduler::Rank NaiveScheduler::VictimFor(const Rank& rank, uint32_t partition) const {
  Rank victim = rank;
  for (const Rank& r : In(Phase::kRuns, all_.at(rank).team)) {
    if (r > rank && HasBlockIn(all_.at(r), partition)) victim = r;
  }
  return victim;
}

bool NaiveScheduler::GetBlock(const Rank& rank, Step* step, bool* stalled) {
  One& one = all_[rank];
  while (one.scheduled / bs() >= one.table.size()) {
    const uint32_t partition = PartitionOf(one.table.size());
    if (PoolOf(one).free_blocks(partition) > 0) {
      one.table.push_back(PoolOf(one).Allocate(partition));
      continue;
    }
    const Rank victim = VictimFor(rank, partition);
    One& worst = all_[victim];
    const std::vector<Rank> running = In(Phase::kRuns, one.team);
    const bool best_of_many = victim == running.front() && running.size() > 1;
    if (!In(Phase::kDrains, one.team).empty() || best_of_many ||
        worst.known + worst.pending >= worst.facts.limit) {
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
  uint32_t n = std::min(tokens, left_[one->team]);
  const uint32_t chunk = config_.long_prefill_token_threshold;
  if (chunk > 0) n = std::min(n, chunk);
  left_[one->team] -= n;
  const uint32_t first = one->scheduled;
  one->scheduled += n;
  const bool samples = one->scheduled == one->known + one->pending;
  const auto blocks = static_cast<std::ptrdiff_t>((one->scheduled + bs() - 1) / bs());
  step->entries.push_back({one->facts.tag,
                           first,
                           n,
                           samples,
                           one->team,
                           {one->table.begin(), one->table.begin() + blocks}});
  one->pending += samples ? 1 : 0;
  ++one->flights;
}

void NaiveScheduler::Admit(const std::vector<bool>& calm, Step* step) {
  std::vector<Rank> lacking;
  uint32_t shared = 0;
  for (const Rank& rank : In(Phase::kWaits)) {
    std::vector<uint32_t> open;
    for (uint32_t team = 0; team < config_.teams; ++team) {
      const bool barred = std::any_of(lacking.begin(), lacking.end(), [&](const Rank& r) {
        return all_[r].passed >= config_.max_bypasses && MayRunIn(all_[r], team);
      });
      const bool has_place = In(Phase::kRuns, team).size() < config_.max_num_seqs;
      const bool drains = !In(Phase::kDrains, team).empty();
      if (calm[team] && !barred && !drains && has_place && left_[team] > 0) open.push_back(team);
    }
    if (open.empty() || lacking.size() == Scheduler::kScanWindow) return;
    if (shared == Scheduler::kScanShared) return;
    One& one = all_[rank];
    std::erase_if(open, [&](uint32_t team) { return !MayRunIn(one, team); });
    const auto computed = std::stable_partition(
        open.begin(), open.end(), [&](uint32_t team) { return !IsComputedElsewhere(one, team); });
    const auto full = std::stable_partition(open.begin(), computed,
                                            [&](uint32_t team) { return HasBlocks(one, team); });
    if (open.begin() == full) {
      const bool waits = computed != open.end() || open.empty();
      waits ? static_cast<void>(++shared) : lacking.push_back(rank);
      continue;
    }
    // Cached beyond what is used; then few that run.
    const uint32_t team = *std::max_element(open.begin(), full, [&](uint32_t a, uint32_t b) {
      const auto value = [&](uint32_t t) {
        const auto runs = static_cast<int64_t>(In(Phase::kRuns, t).size());
        const int64_t cached = std::ssize(Found(one, t));
        return std::pair(cached + int64_t{pools_[t].free_blocks()}, -runs);
      };
      return value(a) < value(b);
    });
    AdmitOne(&one, team, step);
    for (const Rank& r : lacking) all_[r].passed += MayRunIn(all_[r], team) ? 1 : 0;
  }
}

std::vector<BlockId> NaiveScheduler::Found(const One& one, uint32_t team) const {
  std::vector<BlockId> found;
  for (uint32_t i = 0; i < one.names.size() && i < (one.known - 1) / bs(); ++i) {
    const BlockId block = pools_[team].Find(one.names[i]);
    if (block == kNoBlock || one.facts.lookup == CacheLookup::kNo) break;
    found.push_back(block);
  }
  return found;
}

bool NaiveScheduler::IsComputedElsewhere(const One& one, uint32_t team) {
  const size_t next = Found(one, team).size();
  if (one.facts.lookup == CacheLookup::kNo || next >= one.names.size()) return false;
  if (next == (one.known - 1) / bs()) return false;
  for (const Rank& rank : In(Phase::kRuns, team)) {
    const One& other = all_[rank];
    const bool has = next < other.names.size() && other.names[next] == one.names[next];
    if (has && other.published <= next) return true;
  }
  return false;
}

bool NaiveScheduler::HasBlocks(const One& one, uint32_t team) {
  const NaiveBlockPool& pool = pools_[team];
  const std::vector<BlockId> found = Found(one, team);
  const uint32_t total = (one.known + bs() - 1) / bs();
  std::vector<size_t> needed(config_.kv_partitions, 0);
  for (size_t i = found.size(); i < total; ++i) ++needed[PartitionOf(i)];
  for (size_t i = 0; i < found.size(); ++i) {
    needed[PartitionOf(i)] += pool.references(found[i]) == 0 ? 1 : 0;
  }
  const std::vector<Rank> running = In(Phase::kRuns, team);
  for (const Rank& rank : running) {
    const size_t next = all_[rank].table.size();
    if (next < MostBlocks(all_[rank])) ++needed[PartitionOf(next)];
  }
  const bool grows_at_once = one.known % bs() == 0 && total < MostBlocks(one);
  if (!running.empty() && grows_at_once) ++needed[PartitionOf(total)];
  for (uint32_t p = 0; p < needed.size(); ++p) {
    if (needed[p] > pool.free_blocks(p)) return false;
  }
  return true;
}

void NaiveScheduler::AdmitOne(One* one, uint32_t team, Step* step) {
  const std::vector<BlockId> found = Found(*one, team);
  one->team = team;
  for (const BlockId b : found) PoolOf(*one).Acquire(b);
  one->table = found;
  while (one->table.size() < (one->known + bs() - 1) / bs()) {
    one->table.push_back(PoolOf(*one).Allocate(PartitionOf(one->table.size())));
  }
  one->scheduled = one->computed = static_cast<uint32_t>(found.size()) * bs();
  one->published = found.size();
  one->phase = Phase::kRuns;
  one->passed = 0;
  step->admitted.emplace_back(one->facts.tag, one->computed);
  Put(one, Wanted(*one), step);
}

}  // namespace cleave

#pragma once
// NaiveScheduler: the rules of scheduler.h once more, over one ordered map, with everything found
// by searching. Tests compare the plans of both. Not linked into any library.

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "kv/naive_block_pool.h"

namespace cleave {

class NaiveScheduler {
 public:
  using Rank = std::tuple<int32_t, int64_t, uint64_t>;
  enum class Phase { kWaits, kRuns, kDrains };

  struct Entry {
    uint64_t tag;
    uint32_t first;
    uint32_t tokens;
    bool samples;
    uint32_t team;
    std::vector<BlockId> table;
    bool operator==(const Entry&) const = default;
  };
  struct Step {
    std::vector<Entry> entries;
    std::vector<std::pair<uint64_t, uint32_t>> admitted;   // tag, cached tokens
    std::vector<std::pair<uint64_t, uint32_t>> preempted;  // tag, computed tokens
  };

  explicit NaiveScheduler(const SchedulerConfig& config)
      : config_(config),
        pools_(config.teams,
               NaiveBlockPool(config.num_blocks / config.teams, config.kv_partitions)),
        left_(config.teams) {}

  void Add(const SequenceFacts& f) {
    One one;
    one.facts = f;
    one.names.assign(f.names.begin(), f.names.end());
    one.known = f.tokens;
    all_[{f.priority, f.arrival, order_++}] = one;
  }
  void AppendName(uint64_t tag, const BlockHash& name) { Get(tag).names.push_back(name); }
  void End(uint64_t tag) {
    const auto it = Where(tag);
    if (it->second.flights == 0) {
      PoolOf(it->second).Release(it->second.table);
    } else {
      ghosts_.push_back(it->second);  // blocks stay until the last flight lands
    }
    all_.erase(it);
  }

  Step Schedule() {
    Step step;
    // Teams whose decodes got the blocks they needed without taking them from others.
    std::vector<bool> calm(config_.teams);
    for (uint32_t team = 0; team < config_.teams; ++team) calm[team] = ScheduleDecodes(team, &step);
    // The teams' entries stand in the order of rank.
    std::sort(step.entries.begin(), step.entries.end(),
              [this](const Entry& a, const Entry& b) { return Place(a.tag) < Place(b.tag); });
    for (uint32_t& left : left_) {
      if (config_.max_prefill_tokens > 0) left = std::min(left, config_.max_prefill_tokens);
    }
    for (const Rank& rank : Running()) {
      One& one = all_[rank];
      if (Wanted(one) > 1 && left_[one.team] > 0) Put(&one, Wanted(one), &step);
    }
    Admit(calm, &step);
    return step;
  }

  // `ends` names the tags whose entry ended them.
  void Commit(const Step& step, const std::vector<uint64_t>& ends) {
    for (const Entry& e : step.entries) {
      if (Where(e.tag) == all_.end()) {
        Land(e.tag);
        continue;
      }
      One& one = Get(e.tag);
      --one.flights;
      one.computed = e.first + e.tokens;
      if (e.samples) {
        --one.pending;
        ++one.known;
      }
      for (; one.published < std::min<size_t>(one.names.size(), one.computed / bs());
           ++one.published) {
        PoolOf(one).Publish(one.table[one.published], one.names[one.published]);
      }
      if (std::find(ends.begin(), ends.end(), e.tag) != ends.end()) {
        End(e.tag);
      } else if (one.phase == Phase::kDrains && one.flights == 0) {
        Requeue(&one);
      }
    }
  }

  [[nodiscard]] const NaiveBlockPool& pool(uint32_t team) const { return pools_[team]; }
  [[nodiscard]] size_t sequences() const { return all_.size(); }

 private:
  struct One {
    SequenceFacts facts;
    std::vector<BlockHash> names;
    std::vector<BlockId> table;
    Phase phase = Phase::kWaits;
    uint32_t team = 0;
    uint32_t known = 0, pending = 0, scheduled = 0, computed = 0, flights = 0, passed = 0;
    size_t published = 0;
  };

  [[nodiscard]] uint32_t bs() const { return config_.block_size; }
  [[nodiscard]] uint32_t MostBlocks(const One& one) const {
    return (one.facts.limit - 1 + bs() - 1) / bs();
  }
  // Of block `index` of a table.
  [[nodiscard]] uint32_t PartitionOf(size_t index) const {
    return static_cast<uint32_t>(index * bs() / config_.run_positions % config_.kv_partitions);
  }
  [[nodiscard]] bool HasBlockIn(const One& one, uint32_t partition) const {
    for (size_t i = 0; i < one.table.size(); ++i) {
      if (PartitionOf(i) == partition) return true;
    }
    return false;
  }
  [[nodiscard]] bool awaits() const { return config_.samples_in_flight == SamplesInFlight::kAwait; }
  [[nodiscard]] uint32_t Wanted(const One& one) const {
    if (awaits() && one.pending > 0) return 0;
    const uint32_t length = one.known + one.pending;
    return length < one.facts.limit ? length - one.scheduled : 0;
  }
  std::map<Rank, One>::iterator Where(uint64_t tag) {
    return std::find_if(all_.begin(), all_.end(),
                        [tag](const auto& e) { return e.second.facts.tag == tag; });
  }
  One& Get(uint64_t tag) { return Where(tag)->second; }
  std::vector<Rank> In(Phase phase) const {
    std::vector<Rank> ranks;
    for (const auto& [rank, one] : all_) {
      if (one.phase == phase) ranks.push_back(rank);
    }
    return ranks;
  }
  std::vector<Rank> Running() const { return In(Phase::kRuns); }
  std::vector<Rank> In(Phase phase, uint32_t team) const {
    std::vector<Rank> ranks = In(phase);
    std::erase_if(ranks, [&](const Rank& r) { return all_.at(r).team != team; });
    return ranks;
  }
  Rank Place(uint64_t tag) { return Where(tag)->first; }
  NaiveBlockPool& PoolOf(const One& one) { return pools_[one.team]; }
  static bool MayRunIn(const One& one, uint32_t team) {
    return one.facts.team < 0 || static_cast<uint32_t>(one.facts.team) == team;
  }

  void Requeue(One* one) {
    PoolOf(*one).Release(one->table);
    one->table.clear();
    one->scheduled = one->computed = 0;
    one->published = 0;
    one->phase = Phase::kWaits;
  }
  void Land(uint64_t tag) {
    for (auto it = ghosts_.begin(); it != ghosts_.end(); ++it) {
      if (it->facts.tag != tag) continue;
      if (--it->flights == 0) {
        PoolOf(*it).Release(it->table);
        ghosts_.erase(it);
      }
      return;
    }
  }

  [[nodiscard]] size_t MostDecodes(uint32_t team) const;
  bool ScheduleDecodes(uint32_t team, Step* step);
  [[nodiscard]] Rank VictimFor(const Rank& rank, uint32_t partition) const;
  bool GetBlock(const Rank& rank, Step* step, bool* stalled);
  void Put(One* one, uint32_t tokens, Step* step);
  void Admit(const std::vector<bool>& calm, Step* step);
  [[nodiscard]] std::vector<BlockId> Found(const One& one, uint32_t team) const;
  bool IsComputedElsewhere(const One& one, uint32_t team);
  bool HasBlocks(const One& one, uint32_t team);
  void AdmitOne(One* one, uint32_t team, Step* step);

  const SchedulerConfig config_;
  std::vector<NaiveBlockPool> pools_;  // [teams]
  std::map<Rank, One> all_;
  std::vector<One> ghosts_;  // ended, but still in flight
  uint64_t order_ = 0;
  std::vector<uint32_t> left_;  // [teams]
};

}  // namespace cleave

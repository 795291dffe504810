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
    std::vector<BlockId> table;
    bool operator==(const Entry&) const = default;
  };
  struct Step {
    std::vector<Entry> entries;
    std::vector<std::pair<uint64_t, uint32_t>> admitted;   // tag, cached tokens
    std::vector<std::pair<uint64_t, uint32_t>> preempted;  // tag, computed tokens
  };

  explicit NaiveScheduler(const SchedulerConfig& config)
      : config_(config), pool_(config.num_blocks, config.kv_partitions) {}

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
      pool_.Release(it->second.table);
    } else {
      ghosts_.push_back(it->second);  // blocks stay until the last flight lands
    }
    all_.erase(it);
  }

  Step Schedule() {
    Step step;
    left_ = config_.max_num_batched_tokens;
    bool stalled = false;
    const size_t most = MostDecodes();
    for (const Rank& rank : Running()) {
      if (step.entries.size() == most) break;
      if (!all_.contains(rank) || all_[rank].phase != Phase::kRuns) continue;
      if (Wanted(all_[rank]) != 1 || left_ == 0) continue;
      if (GetBlock(rank, &step, &stalled)) Put(&all_[rank], 1, &step);
    }
    if (config_.max_prefill_tokens > 0) left_ = std::min(left_, config_.max_prefill_tokens);
    for (const Rank& rank : Running()) {
      if (Wanted(all_[rank]) > 1 && left_ > 0) Put(&all_[rank], Wanted(all_[rank]), &step);
    }
    if (step.preempted.empty() && !stalled && !AnyDrains()) Admit(&step);
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
        pool_.Publish(one.table[one.published], one.names[one.published]);
      }
      if (std::find(ends.begin(), ends.end(), e.tag) != ends.end()) {
        End(e.tag);
      } else if (one.phase == Phase::kDrains && one.flights == 0) {
        Requeue(&one);
      }
    }
  }

  [[nodiscard]] uint32_t free_blocks() const { return pool_.free_blocks(); }
  [[nodiscard]] uint32_t free_blocks(uint32_t partition) const {
    return pool_.free_blocks(partition);
  }
  [[nodiscard]] size_t sequences() const { return all_.size(); }

 private:
  struct One {
    SequenceFacts facts;
    std::vector<BlockHash> names;
    std::vector<BlockId> table;
    Phase phase = Phase::kWaits;
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
  bool AnyDrains() const { return !In(Phase::kDrains).empty(); }

  void Requeue(One* one) {
    pool_.Release(one->table);
    one->table.clear();
    one->scheduled = one->computed = 0;
    one->published = 0;
    one->phase = Phase::kWaits;
  }
  void Land(uint64_t tag) {
    for (auto it = ghosts_.begin(); it != ghosts_.end(); ++it) {
      if (it->facts.tag != tag) continue;
      if (--it->flights == 0) {
        pool_.Release(it->table);
        ghosts_.erase(it);
      }
      return;
    }
  }

  [[nodiscard]] size_t MostDecodes() const;
  [[nodiscard]] Rank VictimFor(const Rank& rank, uint32_t partition) const;
  bool GetBlock(const Rank& rank, Step* step, bool* stalled);
  void Put(One* one, uint32_t tokens, Step* step);
  void Admit(Step* step);
  [[nodiscard]] std::vector<BlockId> Found(const One& one) const;
  bool IsComputedElsewhere(const One& one);
  bool AdmitOne(One* one, Step* step);

  const SchedulerConfig config_;
  NaiveBlockPool pool_;
  std::map<Rank, One> all_;
  std::vector<One> ghosts_;  // ended, but still in flight
  uint64_t order_ = 0;
  uint32_t left_ = 0;
};

}  // namespace cleave

#pragma once
// Scheduler: which tokens of which sequences the next step computes, and in which KV blocks.
// Continuous batching with recompute preemption, as a deterministic state machine: no clock,
// thread or random device; it sees token counts and block names, never tokens.
//
// Order. Sequences are ranked by (priority, arrival, order of Add); first is best. Fairness,
// preemption and admission all follow this one order, which a preempted sequence keeps.
//
// Teams. Sequences are shared out over teams of ranks (split/split.h), each with blocks and prefix
// cache of its own, a budget of max_num_batched_tokens and max_num_seqs places. What follows holds
// in each team; one plan takes all along.
//
// A step, under one budget of max_num_batched_tokens:
//   1. Running sequences that need one token (decode), best first. So prefill never delays them.
//   2. Running sequences in prefill, best first, in chunks of at most
//      long_prefill_token_threshold (0: what the budget leaves).
//   3. Waiting sequences, best first, if nobody was preempted or stalled in this step. Admission
//      takes the blocks of all known tokens at once (so a prefill never needs to preempt) and
//      leaves one free block for every running sequence that may still need one, so that a
//      newcomer does not push out what runs; alone, a sequence needs only its own blocks. Admission
//      never preempts: a better sequence that arrives late waits for blocks and for a place.
//
// Partitions. The ranks of context parallelism keep a sequence in runs of run_positions, each rank
// in a memory of its own: block i of a table is of the partition that kv/partitions.h names, and
// everything said of free blocks holds in each. All sequences begin in partition 0, which therefore
// holds most of any: what fits there alone fits.
//
// Which team. A sequence is admitted where it finds most of its blocks in the cache beyond those
// that are used there, of the teams that have room for it (ties: fewer running, then the first);
// after a preemption anew. One that names a team waits for that.
//
// Shared prompts. A waiting sequence whose next block a running one is computing just now is passed
// over until that is published, and then finds it: n choices of one prompt, or many requests with
// one system prompt, compute it once. It waits for a prefill that runs, so not for ever.
//
// Passing. A waiting sequence that lacks blocks may be passed by worse ones that fit, at most
// max_bypasses times in all; then nobody behind it is admitted before it is, where it could be. At
// most kScanWindow that lack blocks, and kScanShared that wait for a shared prompt or for the team
// they name, are looked at in a step.
//
// Preemption. A decode that finds no block of its next partition takes those of the worst running
// sequence that has one there (without a cut, each has), and of the next, until one is free; never
// of a better one than itself: when only better ones have any, it is the victim. A victim waits at
// its rank and recomputes. The best running sequence is never a victim while others run: others'
// victims are no better than they, and its own are worse, or it stalls. It needs blocks only that
// fit the pool alone (Add), so what it lacks is held by worse running ones, which it takes, or by
// sequences in flight that ended or were preempted, whose commit is to come. So it always ends,
// then the next: no livelock. A victim that is in a plan in flight keeps its blocks until that is
// committed; until then whoever needed them stalls, and nobody else is preempted.
//
// Plans in flight. Up to max_plans_in_flight plans may be scheduled before the first is committed;
// commits come in order. Blocks of ended sequences return when no plan in flight uses them.
// A sequence with a sample in flight is scheduled for the next position at once (kAhead), or only
// when the sample is known (kAwait): for pipelines, whose plans then share the decodes out evenly,
// a plan taking at most ⌈decoding sequences / max_plans_in_flight⌉.
//
// Memory: Add and admission may allocate; Schedule without admissions and Commit do not.
// Owner: the engine core; one thread. Misuse ends the process (CLEAVE_CHECK).

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/scheduler/plan.h"
#include "engine/scheduler/scheduler_config.h"
#include "kv/block_hash.h"
#include "kv/block_pool.h"
#include "kv/partitions.h"

namespace cleave {

// Lookups of a sequence in the prefix cache; its blocks are published either way.
enum class CacheLookup : uint8_t { kYes, kNo };

inline constexpr int32_t kAnyTeam = -1;

struct SequenceFacts {
  uint64_t tag = 0;     // the caller's name for it; returned in plans
  uint32_t tokens = 0;  // known: prompt and carried output; at least 1
  uint32_t limit = 0;   // tokens it has when it ends at the latest; above `tokens`
  int32_t priority = 0;
  int64_t arrival = 0;  // any monotonic unit
  int32_t team = kAnyTeam;
  CacheLookup lookup = CacheLookup::kYes;
  std::span<const BlockHash> names;  // of the full blocks of the known tokens; empty: not cached
};

class Scheduler {
 public:
  static constexpr uint32_t kScanWindow = 16;
  static constexpr uint32_t kScanShared = 64;

  explicit Scheduler(const SchedulerConfig& config);

  // Blocks a sequence of `limit` tokens holds at its end: its last token is never computed.
  [[nodiscard]] static uint32_t BlocksFor(uint32_t limit, uint32_t block_size);
  // Of these, the ones of a partition.
  [[nodiscard]] static uint32_t BlocksFor(uint32_t limit, const SchedulerConfig& config,
                                          uint32_t partition);
  // Whether it could ever run, and the longest limit that could.
  [[nodiscard]] static bool FitsAlone(uint32_t limit, const SchedulerConfig& config);
  [[nodiscard]] static uint64_t LongestLimit(const SchedulerConfig& config);

  // The sequence waits. FitsAlone(limit) must hold.
  SequenceHandle Add(const SequenceFacts& facts);
  // The name of the sequence's next full block, as soon as all its tokens are known.
  void AppendName(SequenceHandle sequence, const BlockHash& name);
  // The sequence ends now; plans in flight may still hold entries of it, whose results are ignored.
  void Abort(SequenceHandle sequence);

  // Writes the next plan. False when it computes nothing (then it is not in flight and must not be
  // committed); `preempted` counts even so.
  bool Schedule(Plan* plan);
  // The oldest plan in flight was computed; results[i] belongs to entries[i].
  void Commit(const Plan& plan, std::span<const EntryResult> results);

  [[nodiscard]] uint32_t running() const;  // preempted ones still in flight included
  [[nodiscard]] uint32_t waiting() const { return static_cast<uint32_t>(waiting_.size()); }
  [[nodiscard]] uint64_t waiting_tokens() const { return waiting_tokens_; }
  [[nodiscard]] uint32_t free_blocks() const;  // of all teams
  [[nodiscard]] const BlockPool& pool(uint32_t team = 0) const { return teams_[team].pool; }

  // Everything agrees with everything; names the first fault. For tests and idle checks.
  [[nodiscard]] Status CheckIntegrity() const;

 private:
  // kDraining: preempted, but a plan in flight still uses its blocks. kEnded: likewise, but over.
  enum class State : uint8_t { kFree, kWaiting, kRunning, kDraining, kEnded };

  struct Sequence {
    State state = State::kFree;
    CacheLookup lookup = CacheLookup::kYes;
    bool ran = false;  // admitted before
    uint64_t tag = 0;
    int32_t priority = 0;
    int64_t arrival = 0;
    uint64_t order = 0;
    int32_t wanted_team = kAnyTeam;
    uint32_t team = 0;  // of its blocks
    uint32_t limit = 0;
    uint32_t known = 0;      // tokens whose values exist
    uint32_t pending = 0;    // samples in flight
    uint32_t scheduled = 0;  // positions [0, scheduled) are computed or in flight
    uint32_t computed = 0;   // positions [0, computed) are in their blocks
    uint32_t in_flight = 0;  // plans
    uint32_t passed = 0;     // times worse ones were admitted before it
    uint32_t published = 0;  // blocks
    std::vector<BlockId> blocks;
    std::vector<BlockHash> names;

    [[nodiscard]] uint32_t length() const { return known + pending; }
    [[nodiscard]] bool MayRunIn(uint32_t t) const {
      return wanted_team == kAnyTeam || wanted_team == static_cast<int32_t>(t);
    }
  };

  struct Team {
    explicit Team(const SchedulerConfig& config)
        : pool(config.blocks_each() * config.kv_partitions, config.kv_partitions) {}

    BlockPool pool;
    uint32_t running = 0;
    uint32_t draining = 0;  // sequences in kDraining
    // Of the plan that is being written.
    uint32_t budget_left = 0;
    uint32_t decodes_left = 0;
    bool disturbed = false;  // a decode preempted somebody, or waits for blocks in flight
    bool barred = false;     // somebody waits who was passed too often
  };

  // What comes of a waiting sequence in this step.
  struct Outlook {
    enum class Kind : uint8_t { kFits, kLacksBlocks, kWaits };
    Kind kind = Kind::kWaits;  // for a shared prompt, or for the team it names
    uint32_t team = 0;
    uint32_t cached = 0;  // blocks
  };

  // Positions that could be scheduled now. The token at limit - 1 is sampled, never computed.
  [[nodiscard]] uint32_t Wanted(const Sequence& s) const {
    if (config_.samples_in_flight == SamplesInFlight::kAwait && s.pending > 0) return 0;
    return s.length() < s.limit ? s.length() - s.scheduled : 0;
  }
  void StartPlan(Plan* plan);
  [[nodiscard]] uint32_t MostDecodes(uint32_t team) const;
  [[nodiscard]] bool Better(SequenceHandle a, SequenceHandle b) const;
  void InsertRanked(std::vector<SequenceHandle>* list, SequenceHandle h) const;
  void EraseRanked(std::vector<SequenceHandle>* list, SequenceHandle h) const;
  SequenceHandle TakeSlot();

  void ScheduleDecodes(Plan* plan);
  void SchedulePrefills(Plan* plan);
  void AdmitWaiting(Plan* plan);
  [[nodiscard]] bool IsOpen(const Team& team) const;
  void BarTeamsOf(const Sequence& s);
  Outlook LookAt(const Sequence& s);
  void Admit(SequenceHandle h, const Outlook& where, Plan* plan);
  [[nodiscard]] bool AwaitsPrefix(const Sequence& s, uint32_t team, uint32_t cached) const;
  [[nodiscard]] uint32_t MostCachedBlocks(const Sequence& s) const;
  [[nodiscard]] uint32_t CachedBlocks(const Sequence& s, const BlockPool& pool) const;
  bool Fits(const Sequence& s, uint32_t team, uint32_t cached);
  bool EnsureBlock(SequenceHandle h, Plan* plan);
  [[nodiscard]] size_t VictimFor(SequenceHandle h, uint32_t partition) const;
  [[nodiscard]] bool IsBestOfSeveral(SequenceHandle h) const;
  bool PreemptFor(SequenceHandle h, uint32_t partition, Plan* plan);
  void AddEntry(SequenceHandle h, uint32_t tokens, Plan* plan);

  void CommitEntry(const PlanEntry& entry, EntryResult result);
  void PublishComputed(Sequence* s);
  void End(SequenceHandle h);
  void GiveUpBlocks(Sequence* s);
  void ReturnToWaiting(SequenceHandle h);
  void FreeSlot(SequenceHandle h);
  [[nodiscard]] BlockPool& PoolOf(const Sequence& s) { return teams_[s.team].pool; }
  [[nodiscard]] Status CheckSequence(const Sequence& s) const;
  [[nodiscard]] Status CheckTeam(uint32_t team) const;

  const SchedulerConfig config_;
  const KvPartitions partitions_;
  std::vector<Team> teams_;
  std::vector<uint32_t> needed_;  // blocks of each partition, while Fits adds them up
  std::vector<Sequence> sequences_;
  std::vector<SequenceHandle> free_slots_;
  std::vector<SequenceHandle> waiting_;  // by rank
  std::vector<SequenceHandle> running_;  // by rank
  uint64_t waiting_tokens_ = 0;
  uint64_t next_order_ = 0;
  uint64_t next_serial_ = 0;
  uint64_t next_commit_ = 0;
};

}  // namespace cleave

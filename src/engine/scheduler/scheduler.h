#pragma once
// Scheduler: which tokens of which sequences the next step computes, and in which KV blocks.
// Continuous batching with recompute preemption, as a deterministic state machine: no clock,
// thread or random device; it sees token counts and block names, never tokens.
//
// Order. Sequences are ranked by (priority, arrival, order of Add); first is best. Fairness,
// preemption and admission all follow this one order, which a preempted sequence keeps.
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
// Shared prompts. A waiting sequence whose next block a running one is computing just now is passed
// over until that is published, and then finds it: n choices of one prompt, or many requests with
// one system prompt, compute it once. It waits for a prefill that runs, so not for ever.
//
// Passing. A waiting sequence that lacks blocks may be passed by worse ones that fit, at most
// max_bypasses times in all; then nobody behind it is admitted before it is. At most kScanWindow
// that lack blocks, and kScanShared that wait for a shared prompt, are looked at in a step.
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
#include "kv/block_hash.h"
#include "kv/block_pool.h"
#include "kv/partitions.h"
#include "split/layout.h"

namespace cleave {

enum class SamplesInFlight : uint8_t { kAhead, kAwait };

struct SchedulerConfig {
  uint32_t max_num_seqs = 64;
  uint32_t max_num_batched_tokens = 512;
  uint32_t long_prefill_token_threshold = 0;
  uint32_t max_prefill_tokens = 0;  // of a plan, beside its decodes; 0: what the budget leaves
  uint32_t block_size = 16;
  uint32_t num_blocks = 0;                 // of all partitions; a multiple of kv_partitions
  uint32_t kv_partitions = 1;              // memories that share a sequence by position
  uint32_t run_positions = kRunPositions;  // with more than one: a multiple of block_size
  uint32_t max_plans_in_flight = 1;
  SamplesInFlight samples_in_flight = SamplesInFlight::kAhead;
  uint32_t max_bypasses = 64;
  uint32_t max_waiting = 1024;  // room taken at construction; more may wait

  // Over the blocks of a sequence.
  [[nodiscard]] KvPartitions partitions() const {
    return KvPartitions::OfBlocks(kv_partitions, run_positions, block_size);
  }
};

// Lookups of a sequence in the prefix cache; its blocks are published either way.
enum class CacheLookup : uint8_t { kYes, kNo };

struct SequenceFacts {
  uint64_t tag = 0;     // the caller's name for it; returned in plans
  uint32_t tokens = 0;  // known: prompt and carried output; at least 1
  uint32_t limit = 0;   // tokens it has when it ends at the latest; above `tokens`
  int32_t priority = 0;
  int64_t arrival = 0;  // any monotonic unit
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
  [[nodiscard]] const BlockPool& pool() const { return pool_; }

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
  };

  // Positions that could be scheduled now. The token at limit - 1 is sampled, never computed.
  [[nodiscard]] uint32_t Wanted(const Sequence& s) const {
    if (config_.samples_in_flight == SamplesInFlight::kAwait && s.pending > 0) return 0;
    return s.length() < s.limit ? s.length() - s.scheduled : 0;
  }
  [[nodiscard]] uint32_t MostDecodes() const;
  [[nodiscard]] bool Better(SequenceHandle a, SequenceHandle b) const;
  void InsertRanked(std::vector<SequenceHandle>* list, SequenceHandle h) const;
  void EraseRanked(std::vector<SequenceHandle>* list, SequenceHandle h) const;
  SequenceHandle TakeSlot();

  void ScheduleDecodes(Plan* plan);
  void SchedulePrefills(Plan* plan);
  void AdmitWaiting(Plan* plan);
  void Admit(SequenceHandle h, uint32_t cached, Plan* plan);
  [[nodiscard]] bool AwaitsPrefix(const Sequence& s, uint32_t cached) const;
  [[nodiscard]] uint32_t MostCachedBlocks(const Sequence& s) const;
  [[nodiscard]] uint32_t CachedBlocks(const Sequence& s) const;
  bool Fits(const Sequence& s, uint32_t cached);
  bool EnsureBlock(SequenceHandle h, Plan* plan);
  bool PreemptFor(SequenceHandle h, uint32_t partition, Plan* plan);
  void AddEntry(SequenceHandle h, uint32_t tokens, Plan* plan);

  void CommitEntry(const PlanEntry& entry, EntryResult result);
  void PublishComputed(Sequence* s);
  void End(SequenceHandle h);
  void GiveUpBlocks(Sequence* s);
  void ReturnToWaiting(SequenceHandle h);
  void FreeSlot(SequenceHandle h);
  [[nodiscard]] Status CheckSequence(const Sequence& s) const;

  const SchedulerConfig config_;
  const KvPartitions partitions_;
  BlockPool pool_;
  std::vector<uint32_t> needed_;  // blocks of each partition, while Fits adds them up
  std::vector<Sequence> sequences_;
  std::vector<SequenceHandle> free_slots_;
  std::vector<SequenceHandle> waiting_;  // by rank
  std::vector<SequenceHandle> running_;  // by rank
  uint64_t waiting_tokens_ = 0;
  uint32_t draining_ = 0;     // sequences in kDraining
  uint32_t budget_left_ = 0;  // of the plan that is being written
  bool stalled_ = false;      // a decode of this step waits for blocks in flight
  uint64_t next_order_ = 0;
  uint64_t next_serial_ = 0;
  uint64_t next_commit_ = 0;
};

}  // namespace cleave

#include "engine/scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/checked.h"

namespace cleave {

namespace {

const SchedulerConfig& Checked(const SchedulerConfig& config) {
  CLEAVE_CHECK(config.block_size > 0 && config.max_num_seqs > 0);
  CLEAVE_CHECK(config.max_num_batched_tokens > 0 && config.max_plans_in_flight > 0);
  CLEAVE_CHECK(config.kv_partitions == 1 ||
               (config.run_positions > 0 && config.run_positions % config.block_size == 0));
  return config;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(Checked(config)),
      partitions_(config.partitions()),
      pool_(config.num_blocks, config.kv_partitions),
      needed_(config.kv_partitions) {
  const size_t room = static_cast<size_t>(config.max_waiting) + 2 * config.max_num_seqs;
  sequences_.reserve(room);
  free_slots_.reserve(room);
  waiting_.reserve(room);
  running_.reserve(config.max_num_seqs);
}

uint32_t Scheduler::BlocksFor(uint32_t limit, uint32_t block_size) {
  return limit == 0 ? 0 : CeilDiv(limit - 1, block_size);
}

uint32_t Scheduler::BlocksFor(uint32_t limit, const SchedulerConfig& config, uint32_t partition) {
  return config.partitions().Held(BlocksFor(limit, config.block_size), partition);
}

bool Scheduler::FitsAlone(uint32_t limit, const SchedulerConfig& config) {
  return BlocksFor(limit, config, 0) <= config.num_blocks / config.kv_partitions;
}

uint64_t Scheduler::LongestLimit(const SchedulerConfig& config) {
  const uint32_t each = config.num_blocks / config.kv_partitions;
  return config.partitions().Longest(each) * config.block_size + 1;
}

uint32_t Scheduler::running() const { return static_cast<uint32_t>(running_.size()) + draining_; }

SequenceHandle Scheduler::TakeSlot() {
  if (free_slots_.empty()) {
    sequences_.emplace_back();
    return static_cast<SequenceHandle>(sequences_.size() - 1);
  }
  const SequenceHandle h = free_slots_.back();
  free_slots_.pop_back();
  return h;
}

SequenceHandle Scheduler::Add(const SequenceFacts& facts) {
  CLEAVE_CHECK(facts.tokens > 0 && facts.tokens < facts.limit);
  CLEAVE_CHECK(FitsAlone(facts.limit, config_));
  const SequenceHandle h = TakeSlot();
  Sequence& s = sequences_[h];
  s.state = State::kWaiting;
  s.lookup = facts.lookup;
  s.tag = facts.tag;
  s.priority = facts.priority;
  s.arrival = facts.arrival;
  s.order = next_order_++;
  s.limit = facts.limit;
  s.known = facts.tokens;
  s.names.assign(facts.names.begin(), facts.names.end());
  InsertRanked(&waiting_, h);
  waiting_tokens_ += s.known;
  return h;
}

void Scheduler::AppendName(SequenceHandle sequence, const BlockHash& name) {
  sequences_[sequence].names.push_back(name);
}

void Scheduler::Abort(SequenceHandle sequence) { End(sequence); }

bool Scheduler::Better(SequenceHandle a, SequenceHandle b) const {
  const Sequence& x = sequences_[a];
  const Sequence& y = sequences_[b];
  return std::tie(x.priority, x.arrival, x.order) < std::tie(y.priority, y.arrival, y.order);
}

void Scheduler::InsertRanked(std::vector<SequenceHandle>* list, SequenceHandle h) const {
  const auto better = [this](SequenceHandle a, SequenceHandle b) { return Better(a, b); };
  list->insert(std::lower_bound(list->begin(), list->end(), h, better), h);
}

void Scheduler::EraseRanked(std::vector<SequenceHandle>* list, SequenceHandle h) const {
  const auto better = [this](SequenceHandle a, SequenceHandle b) { return Better(a, b); };
  const auto it = std::lower_bound(list->begin(), list->end(), h, better);
  CLEAVE_CHECK(it != list->end() && *it == h);
  list->erase(it);
}

// ---- Schedule

bool Scheduler::Schedule(Plan* plan) {
  CLEAVE_CHECK(next_serial_ - next_commit_ < config_.max_plans_in_flight);
  plan->Clear();
  stalled_ = false;
  budget_left_ = config_.max_num_batched_tokens;
  ScheduleDecodes(plan);
  if (config_.max_prefill_tokens > 0) {
    budget_left_ = std::min(budget_left_, config_.max_prefill_tokens);
  }
  SchedulePrefills(plan);
  if (plan->preempted.empty() && !stalled_ && draining_ == 0) AdmitWaiting(plan);
  if (plan->entries.empty()) return false;
  plan->serial = next_serial_++;
  return true;
}

// Preemption takes the sequence that is served or ones behind it: the entries already written
// stand.
void Scheduler::ScheduleDecodes(Plan* plan) {
  const uint32_t most = MostDecodes();
  for (size_t i = 0; i < running_.size() && budget_left_ > 0;) {
    if (plan->entries.size() == most) return;
    const SequenceHandle h = running_[i];
    if (Wanted(sequences_[h]) == 1 && EnsureBlock(h, plan)) AddEntry(h, 1, plan);
    if (i < running_.size() && running_[i] == h) ++i;  // else it was the victim
  }
}

// Of one plan: an even share of the sequences that decode.
uint32_t Scheduler::MostDecodes() const {
  if (config_.samples_in_flight == SamplesInFlight::kAhead) return config_.max_num_seqs;
  const auto decoding = std::count_if(running_.begin(), running_.end(), [this](SequenceHandle h) {
    return Wanted(sequences_[h]) == 1 || sequences_[h].pending > 0;
  });
  return CeilDiv(static_cast<uint32_t>(decoding), config_.max_plans_in_flight);
}

void Scheduler::SchedulePrefills(Plan* plan) {
  for (size_t i = 0; i < running_.size() && budget_left_ > 0; ++i) {
    const uint32_t wanted = Wanted(sequences_[running_[i]]);
    if (wanted > 1) AddEntry(running_[i], wanted, plan);
  }
}

// Whether position `scheduled` has a block; takes one, by preemption if it must.
bool Scheduler::EnsureBlock(SequenceHandle h, Plan* plan) {
  Sequence& s = sequences_[h];
  if (s.scheduled / config_.block_size < s.blocks.size()) return true;
  const uint32_t partition = partitions_.Of(static_cast<uint32_t>(s.blocks.size()));
  for (;;) {
    const BlockId block = pool_.Allocate(partition);
    if (block != kNoBlock) {
      s.blocks.push_back(block);
      return true;
    }
    if (!PreemptFor(h, partition, plan)) {
      stalled_ = true;
      return false;
    }
    if (s.state != State::kRunning) return false;
  }
}

// Preempts the worst that has a block of the partition, `h` at the best. False when blocks are
// about to come back by themselves: a victim is still in flight, or its last sample is, or what the
// best lacks is held only by ended sequences in flight.
bool Scheduler::PreemptFor(SequenceHandle h, uint32_t partition, Plan* plan) {
  if (draining_ > 0) return false;
  size_t worst = running_.size() - 1;
  const auto has_one = [&](const Sequence& r) {
    return partitions_.Held(static_cast<uint32_t>(r.blocks.size()), partition) > 0;
  };
  while (running_[worst] != h && !has_one(sequences_[running_[worst]])) --worst;
  if (worst == 0 && running_.size() > 1) return false;
  const SequenceHandle victim = running_[worst];
  Sequence& s = sequences_[victim];
  if (s.length() >= s.limit) return false;
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(worst));
  plan->preempted.push_back({victim, s.tag, s.computed});
  if (s.in_flight == 0) {
    ReturnToWaiting(victim);
  } else {
    s.state = State::kDraining;
    ++draining_;
  }
  return true;
}

// Schedules up to `tokens` positions; blocks are there.
void Scheduler::AddEntry(SequenceHandle h, uint32_t tokens, Plan* plan) {
  Sequence& s = sequences_[h];
  uint32_t n = std::min(tokens, budget_left_);
  if (config_.long_prefill_token_threshold > 0) {
    n = std::min(n, config_.long_prefill_token_threshold);
  }
  PlanEntry entry;
  entry.sequence = h;
  entry.tag = s.tag;
  entry.first_position = s.scheduled;
  entry.tokens = n;
  s.scheduled += n;
  entry.samples = s.scheduled == s.length();
  entry.block_table = std::span(s.blocks).first(CeilDiv(s.scheduled, config_.block_size));
  if (entry.samples) ++s.pending;
  ++s.in_flight;
  budget_left_ -= n;
  plan->tokens += n;
  plan->entries.push_back(entry);
}

void Scheduler::AdmitWaiting(Plan* plan) {
  std::array<SequenceHandle, kScanWindow> lacking;
  uint32_t lack = 0;
  uint32_t shared = 0;
  size_t scanned = 0;
  bool barred = false;
  while (scanned < waiting_.size() && !barred && lack < kScanWindow && shared < kScanShared &&
         budget_left_ > 0 && running_.size() < config_.max_num_seqs) {
    const SequenceHandle h = waiting_[scanned++];
    const uint32_t cached = CachedBlocks(sequences_[h]);
    if (AwaitsPrefix(sequences_[h], cached)) {
      ++shared;
    } else if (Fits(sequences_[h], cached)) {
      Admit(h, cached, plan);
      for (uint32_t i = 0; i < lack; ++i) {
        barred = ++sequences_[lacking[i]].passed >= config_.max_bypasses || barred;
      }
    } else {
      lacking[lack++] = h;
      barred = sequences_[h].passed >= config_.max_bypasses;
    }
  }
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(scanned);
  const auto stay = std::remove_if(waiting_.begin(), end, [this](SequenceHandle h) {
    return sequences_[h].state != State::kWaiting;
  });
  waiting_.erase(stay, end);
}

void Scheduler::Admit(SequenceHandle h, uint32_t cached, Plan* plan) {
  Sequence& s = sequences_[h];
  s.blocks.reserve(BlocksFor(s.limit, config_.block_size));
  s.names.reserve(s.limit / config_.block_size);
  for (uint32_t i = 0; i < cached; ++i) {
    s.blocks.push_back(pool_.Find(s.names[i]));
    pool_.Acquire(s.blocks.back());
  }
  while (s.blocks.size() < CeilDiv(s.known, config_.block_size)) {
    s.blocks.push_back(pool_.Allocate(partitions_.Of(static_cast<uint32_t>(s.blocks.size()))));
  }
  s.scheduled = s.computed = cached * config_.block_size;
  s.published = cached;
  plan->admitted.push_back({h, s.tag, s.known, s.computed, s.ran});
  s.state = State::kRunning;
  s.ran = true;
  s.passed = 0;
  waiting_tokens_ -= s.known;
  InsertRanked(&running_, h);
  AddEntry(h, Wanted(s), plan);
}

// Whether a running sequence is about to publish the first block that `s` did not find.
bool Scheduler::AwaitsPrefix(const Sequence& s, uint32_t cached) const {
  if (cached == MostCachedBlocks(s)) return false;
  return std::any_of(running_.begin(), running_.end(), [&](SequenceHandle h) {
    const Sequence& r = sequences_[h];
    return r.published <= cached && cached < r.names.size() && r.names[cached] == s.names[cached];
  });
}

// The last known token is always computed again, for its logits, and its block may not be shared.
uint32_t Scheduler::MostCachedBlocks(const Sequence& s) const {
  if (s.lookup == CacheLookup::kNo) return 0;
  return std::min(static_cast<uint32_t>(s.names.size()), (s.known - 1) / config_.block_size);
}

// Leading full blocks found in the cache.
uint32_t Scheduler::CachedBlocks(const Sequence& s) const {
  const uint32_t most = MostCachedBlocks(s);
  uint32_t cached = 0;
  while (cached < most && pool_.Find(s.names[cached]) != kNoBlock) ++cached;
  return cached;
}

bool Scheduler::Fits(const Sequence& s, uint32_t cached) {
  const uint32_t total = CeilDiv(s.known, config_.block_size);
  for (uint32_t p = 0; p < partitions_.count; ++p) {
    needed_[p] = partitions_.Held(total, p) - partitions_.Held(cached, p);
  }
  for (uint32_t i = 0; i < cached; ++i) {
    needed_[partitions_.Of(i)] += pool_.references(pool_.Find(s.names[i])) == 0 ? 1 : 0;
  }
  if (!running_.empty()) {
    const auto add_next = [this](const Sequence& r, uint32_t blocks) {
      if (blocks < BlocksFor(r.limit, config_.block_size)) ++needed_[partitions_.Of(blocks)];
    };
    for (const SequenceHandle r : running_) {
      add_next(sequences_[r], static_cast<uint32_t>(sequences_[r].blocks.size()));
    }
    // Its own first decode, when the known tokens fill their blocks.
    if (s.known % config_.block_size == 0) add_next(s, total);
  }
  for (uint32_t p = 0; p < partitions_.count; ++p) {
    if (needed_[p] > pool_.free_blocks(p)) return false;
  }
  return true;
}

// ---- Commit

void Scheduler::Commit(const Plan& plan, std::span<const EntryResult> results) {
  CLEAVE_CHECK(plan.serial == next_commit_ && next_commit_ < next_serial_);
  CLEAVE_CHECK(results.size() == plan.entries.size());
  ++next_commit_;
  for (size_t i = 0; i < results.size(); ++i) CommitEntry(plan.entries[i], results[i]);
}

void Scheduler::CommitEntry(const PlanEntry& entry, EntryResult result) {
  const SequenceHandle h = entry.sequence;
  Sequence& s = sequences_[h];
  --s.in_flight;
  if (s.state == State::kEnded) {
    if (s.in_flight == 0) FreeSlot(h);
    return;
  }
  s.computed = entry.first_position + entry.tokens;
  if (entry.samples) {
    --s.pending;
    ++s.known;
  }
  CLEAVE_CHECK(s.known < s.limit || result == EntryResult::kEnded);
  PublishComputed(&s);
  if (result == EntryResult::kEnded) return End(h);
  if (s.state == State::kDraining && s.in_flight == 0) {
    --draining_;
    ReturnToWaiting(h);
  }
}

void Scheduler::PublishComputed(Sequence* s) {
  const uint32_t full =
      std::min(static_cast<uint32_t>(s->names.size()), s->computed / config_.block_size);
  for (; s->published < full; ++s->published) {
    pool_.Publish(s->blocks[s->published], s->names[s->published]);
  }
}

void Scheduler::End(SequenceHandle h) {
  Sequence& s = sequences_[h];
  switch (s.state) {
    case State::kWaiting:
      EraseRanked(&waiting_, h);
      waiting_tokens_ -= s.known;
      break;
    case State::kRunning:
      EraseRanked(&running_, h);
      break;
    case State::kDraining:
      --draining_;
      break;
    case State::kFree:
    case State::kEnded:
      CLEAVE_CHECK(false);
  }
  s.state = State::kEnded;
  if (s.in_flight == 0) FreeSlot(h);
}

void Scheduler::GiveUpBlocks(Sequence* s) {
  pool_.Release(s->blocks);
  s->blocks.clear();
  s->scheduled = s->computed = s->published = 0;
}

void Scheduler::ReturnToWaiting(SequenceHandle h) {
  Sequence& s = sequences_[h];
  GiveUpBlocks(&s);
  s.state = State::kWaiting;
  waiting_tokens_ += s.known;
  InsertRanked(&waiting_, h);
}

// The vectors of a slot go with its sequence: what one long prompt took is not kept for ever.
void Scheduler::FreeSlot(SequenceHandle h) {
  GiveUpBlocks(&sequences_[h]);
  sequences_[h] = Sequence();
  free_slots_.push_back(h);
}

// ---- Checks

Status Scheduler::CheckSequence(const Sequence& s) const {
  const auto fault = [&s](const char* what) {
    return Internal(fmt::format("sequence with tag {}: {}", s.tag, what));
  };
  if (s.computed > s.scheduled || s.scheduled > s.length()) return fault("counts out of order");
  if (s.length() > s.limit) return fault("longer than its limit");
  if (s.scheduled > s.blocks.size() * config_.block_size) return fault("scheduled past its blocks");
  if (s.published > s.blocks.size()) return fault("published more blocks than it has");
  for (uint32_t i = 0; i < s.blocks.size(); ++i) {
    if (pool_.partition(s.blocks[i]) != partitions_.Of(i)) return fault("a block is elsewhere");
  }
  if (s.state == State::kWaiting && (!s.blocks.empty() || s.in_flight > 0 || s.pending > 0)) {
    return fault("waits with blocks or plans");
  }
  if (s.state == State::kDraining && s.in_flight == 0) return fault("drains without a plan");
  if (s.state == State::kEnded && s.in_flight == 0) return fault("ended and still here");
  return OkStatus();
}

Status Scheduler::CheckIntegrity() const {
  RETURN_IF_ERROR(pool_.CheckIntegrity());
  uint64_t references = 0;
  uint32_t draining = 0;
  uint64_t waiting_tokens = 0;
  size_t listed = free_slots_.size() + waiting_.size() + running_.size();
  for (const Sequence& s : sequences_) {
    if (s.state == State::kFree) continue;
    RETURN_IF_ERROR(CheckSequence(s));
    references += s.blocks.size();
    draining += s.state == State::kDraining ? 1 : 0;
    listed += s.state == State::kDraining || s.state == State::kEnded ? 1 : 0;
    waiting_tokens += s.state == State::kWaiting ? s.known : 0;
  }
  for (BlockId b = 0; b < static_cast<BlockId>(pool_.num_blocks()); ++b) {
    references -= pool_.references(b);
  }
  if (references != 0) return Internal("references of tables and pool differ");
  if (draining != draining_ || waiting_tokens != waiting_tokens_) {
    return Internal("counts of draining sequences or waiting tokens are off");
  }
  if (listed != sequences_.size()) return Internal("a sequence is lost or listed twice");
  const auto better = [this](SequenceHandle a, SequenceHandle b) { return Better(a, b); };
  if (!std::is_sorted(running_.begin(), running_.end(), better) ||
      !std::is_sorted(waiting_.begin(), waiting_.end(), better)) {
    return Internal("a list is not in order of rank");
  }
  return OkStatus();
}

}  // namespace cleave

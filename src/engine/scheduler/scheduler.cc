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
  CLEAVE_CHECK(config.teams > 0 && config.kv_partitions > 0);
  CLEAVE_CHECK(config.num_blocks == config.blocks_each() * config.teams * config.kv_partitions);
  CLEAVE_CHECK(config.kv_partitions == 1 ||
               (config.run_positions > 0 && config.run_positions % config.block_size == 0));
  return config;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(Checked(config)),
      partitions_(config.partitions()),
      teams_(config.teams, Team(config)),
      needed_(config.kv_partitions) {
  const size_t places = size_t{config.teams} * config.max_num_seqs;
  const size_t room = config.max_waiting + 2 * places;
  sequences_.reserve(room);
  free_slots_.reserve(room);
  waiting_.reserve(room);
  running_.reserve(places);
}

uint32_t Scheduler::BlocksFor(uint32_t limit, uint32_t block_size) {
  return limit == 0 ? 0 : CeilDiv(limit - 1, block_size);
}

uint32_t Scheduler::BlocksFor(uint32_t limit, const SchedulerConfig& config, uint32_t partition) {
  return config.partitions().Held(BlocksFor(limit, config.block_size), partition);
}

bool Scheduler::FitsAlone(uint32_t limit, const SchedulerConfig& config) {
  return BlocksFor(limit, config, 0) <= config.blocks_each();
}

uint64_t Scheduler::LongestLimit(const SchedulerConfig& config) {
  return config.partitions().Longest(config.blocks_each()) * config.block_size + 1;
}

uint32_t Scheduler::running() const {
  uint32_t running = 0;
  for (const Team& team : teams_) running += team.running + team.draining;
  return running;
}

uint32_t Scheduler::free_blocks() const {
  uint32_t blocks = 0;
  for (const Team& team : teams_) blocks += team.pool.free_blocks();
  return blocks;
}

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
  CLEAVE_CHECK(facts.team < static_cast<int32_t>(config_.teams));
  const SequenceHandle h = TakeSlot();
  Sequence& s = sequences_[h];
  s.state = State::kWaiting;
  s.lookup = facts.lookup;
  s.tag = facts.tag;
  s.priority = facts.priority;
  s.arrival = facts.arrival;
  s.order = next_order_++;
  s.wanted_team = std::max(facts.team, kAnyTeam);
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
  StartPlan(plan);
  ScheduleDecodes(plan);
  for (Team& team : teams_) {
    if (config_.max_prefill_tokens == 0) break;
    team.budget_left = std::min(team.budget_left, config_.max_prefill_tokens);
  }
  SchedulePrefills(plan);
  AdmitWaiting(plan);
  if (plan->entries.empty()) return false;
  plan->serial = next_serial_++;
  return true;
}

void Scheduler::StartPlan(Plan* plan) {
  plan->Clear();
  for (uint32_t t = 0; t < teams_.size(); ++t) {
    teams_[t].budget_left = config_.max_num_batched_tokens;
    teams_[t].decodes_left = MostDecodes(t);
    teams_[t].disturbed = false;
    teams_[t].barred = false;
  }
}

// Preemption takes the sequence that is served or ones behind it: the entries already written
// stand.
void Scheduler::ScheduleDecodes(Plan* plan) {
  for (size_t i = 0; i < running_.size();) {
    const SequenceHandle h = running_[i];
    Team& team = teams_[sequences_[h].team];
    const bool has_room = team.decodes_left > 0 && team.budget_left > 0;
    if (has_room && Wanted(sequences_[h]) == 1 && EnsureBlock(h, plan)) {
      AddEntry(h, 1, plan);
      --team.decodes_left;
    }
    if (i < running_.size() && running_[i] == h) ++i;  // else it was the victim
  }
}

// Of one plan: an even share of the team's sequences that decode.
uint32_t Scheduler::MostDecodes(uint32_t team) const {
  if (config_.samples_in_flight == SamplesInFlight::kAhead) return config_.max_num_seqs;
  const auto decoding = std::count_if(running_.begin(), running_.end(), [&](SequenceHandle h) {
    const Sequence& s = sequences_[h];
    return s.team == team && (Wanted(s) == 1 || s.pending > 0);
  });
  return CeilDiv(static_cast<uint32_t>(decoding), config_.max_plans_in_flight);
}

void Scheduler::SchedulePrefills(Plan* plan) {
  for (const SequenceHandle h : running_) {
    const uint32_t wanted = Wanted(sequences_[h]);
    if (wanted > 1 && teams_[sequences_[h].team].budget_left > 0) AddEntry(h, wanted, plan);
  }
}

// Whether position `scheduled` has a block; takes one, by preemption if it must.
bool Scheduler::EnsureBlock(SequenceHandle h, Plan* plan) {
  Sequence& s = sequences_[h];
  if (s.scheduled / config_.block_size < s.blocks.size()) return true;
  const uint32_t partition = partitions_.Of(static_cast<uint32_t>(s.blocks.size()));
  for (;;) {
    const BlockId block = PoolOf(s).Allocate(partition);
    if (block != kNoBlock) {
      s.blocks.push_back(block);
      return true;
    }
    teams_[s.team].disturbed = true;
    if (!PreemptFor(h, partition, plan) || s.state != State::kRunning) return false;
  }
}

// In running_: the worst of its team that has a block of the partition, `h` at the best.
size_t Scheduler::VictimFor(SequenceHandle h, uint32_t partition) const {
  size_t worst = running_.size() - 1;
  for (; running_[worst] != h; --worst) {
    const Sequence& r = sequences_[running_[worst]];
    const auto blocks = static_cast<uint32_t>(r.blocks.size());
    if (r.team == sequences_[h].team && partitions_.Held(blocks, partition) > 0) break;
  }
  return worst;
}

// Of those that run in its team.
bool Scheduler::IsBestOfSeveral(SequenceHandle h) const {
  const uint32_t team = sequences_[h].team;
  const auto first = std::find_if(running_.begin(), running_.end(),
                                  [&](SequenceHandle r) { return sequences_[r].team == team; });
  return *first == h && teams_[team].running > 1;
}

// False when blocks are about to come back by themselves: a victim is still in flight, or its last
// sample is, or what the best lacks is held only by ended sequences in flight.
bool Scheduler::PreemptFor(SequenceHandle h, uint32_t partition, Plan* plan) {
  Team& team = teams_[sequences_[h].team];
  if (team.draining > 0) return false;
  const size_t worst = VictimFor(h, partition);
  const SequenceHandle victim = running_[worst];
  if (victim == h && IsBestOfSeveral(h)) return false;
  Sequence& s = sequences_[victim];
  if (s.length() >= s.limit) return false;
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(worst));
  --team.running;
  plan->preempted.push_back({victim, s.tag, s.computed});
  if (s.in_flight == 0) {
    ReturnToWaiting(victim);
  } else {
    s.state = State::kDraining;
    ++team.draining;
  }
  return true;
}

// Schedules up to `tokens` positions; blocks are there.
void Scheduler::AddEntry(SequenceHandle h, uint32_t tokens, Plan* plan) {
  Sequence& s = sequences_[h];
  Team& team = teams_[s.team];
  uint32_t n = std::min(tokens, team.budget_left);
  if (config_.long_prefill_token_threshold > 0) {
    n = std::min(n, config_.long_prefill_token_threshold);
  }
  PlanEntry entry;
  entry.sequence = h;
  entry.tag = s.tag;
  entry.first_position = s.scheduled;
  entry.tokens = n;
  entry.team = s.team;
  s.scheduled += n;
  entry.samples = s.scheduled == s.length();
  entry.block_table = std::span(s.blocks).first(CeilDiv(s.scheduled, config_.block_size));
  if (entry.samples) ++s.pending;
  ++s.in_flight;
  team.budget_left -= n;
  plan->tokens += n;
  plan->entries.push_back(entry);
}

bool Scheduler::IsOpen(const Team& team) const {
  return !team.disturbed && team.draining == 0 && !team.barred && team.budget_left > 0 &&
         team.running < config_.max_num_seqs;
}

void Scheduler::BarTeamsOf(const Sequence& s) {
  for (uint32_t t = 0; t < teams_.size(); ++t) {
    if (s.MayRunIn(t)) teams_[t].barred = true;
  }
}

void Scheduler::AdmitWaiting(Plan* plan) {
  const auto is_open = [this](const Team& team) { return IsOpen(team); };
  std::array<SequenceHandle, kScanWindow> lacking;
  uint32_t lack = 0;
  uint32_t wait = 0;
  size_t scanned = 0;
  while (scanned < waiting_.size() && lack < kScanWindow && wait < kScanShared &&
         std::any_of(teams_.begin(), teams_.end(), is_open)) {
    const SequenceHandle h = waiting_[scanned++];
    const Outlook outlook = LookAt(sequences_[h]);
    if (outlook.kind == Outlook::Kind::kWaits) {
      ++wait;
    } else if (outlook.kind == Outlook::Kind::kFits) {
      Admit(h, outlook, plan);
      for (uint32_t i = 0; i < lack; ++i) {
        Sequence& passed = sequences_[lacking[i]];
        if (!passed.MayRunIn(outlook.team)) continue;
        if (++passed.passed >= config_.max_bypasses) BarTeamsOf(passed);
      }
    } else {
      lacking[lack++] = h;
      if (sequences_[h].passed >= config_.max_bypasses) BarTeamsOf(sequences_[h]);
    }
  }
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(scanned);
  const auto stay = std::remove_if(waiting_.begin(), end, [this](SequenceHandle h) {
    return sequences_[h].state != State::kWaiting;
  });
  waiting_.erase(stay, end);
}

Scheduler::Outlook Scheduler::LookAt(const Sequence& s) {
  Outlook best;
  bool awaits = false;
  bool lacks = false;
  int64_t best_score = 0;
  for (uint32_t t = 0; t < teams_.size(); ++t) {
    const Team& team = teams_[t];
    if (!s.MayRunIn(t) || !IsOpen(team)) continue;
    const uint32_t cached = CachedBlocks(s, team.pool);
    if (AwaitsPrefix(s, t, cached)) {
      awaits = true;
      continue;
    }
    if (!Fits(s, t, cached)) {
      lacks = true;
      continue;
    }
    const int64_t used = team.pool.num_blocks() - team.pool.free_blocks();
    const int64_t score = int64_t{cached} - used;
    const bool better =
        score > best_score || (score == best_score && team.running < teams_[best.team].running);
    if (best.kind == Outlook::Kind::kFits && !better) continue;
    best = {.kind = Outlook::Kind::kFits, .team = t, .cached = cached};
    best_score = score;
  }
  if (best.kind != Outlook::Kind::kFits && lacks && !awaits) {
    best.kind = Outlook::Kind::kLacksBlocks;
  }
  return best;
}

void Scheduler::Admit(SequenceHandle h, const Outlook& where, Plan* plan) {
  Sequence& s = sequences_[h];
  BlockPool& pool = teams_[where.team].pool;
  s.team = where.team;
  s.blocks.reserve(BlocksFor(s.limit, config_.block_size));
  s.names.reserve(s.limit / config_.block_size);
  for (uint32_t i = 0; i < where.cached; ++i) {
    s.blocks.push_back(pool.Find(s.names[i]));
    pool.Acquire(s.blocks.back());
  }
  while (s.blocks.size() < CeilDiv(s.known, config_.block_size)) {
    s.blocks.push_back(pool.Allocate(partitions_.Of(static_cast<uint32_t>(s.blocks.size()))));
  }
  s.scheduled = s.computed = where.cached * config_.block_size;
  s.published = where.cached;
  plan->admitted.push_back({h, s.tag, s.known, s.computed, s.ran});
  s.state = State::kRunning;
  s.ran = true;
  s.passed = 0;
  waiting_tokens_ -= s.known;
  InsertRanked(&running_, h);
  ++teams_[where.team].running;
  AddEntry(h, Wanted(s), plan);
}

// Whether a running sequence is about to publish the first block that `s` did not find there.
bool Scheduler::AwaitsPrefix(const Sequence& s, uint32_t team, uint32_t cached) const {
  if (cached == MostCachedBlocks(s)) return false;
  return std::any_of(running_.begin(), running_.end(), [&](SequenceHandle h) {
    const Sequence& r = sequences_[h];
    return r.team == team && r.published <= cached && cached < r.names.size() &&
           r.names[cached] == s.names[cached];
  });
}

// The last known token is always computed again, for its logits, and its block may not be shared.
uint32_t Scheduler::MostCachedBlocks(const Sequence& s) const {
  if (s.lookup == CacheLookup::kNo) return 0;
  return std::min(static_cast<uint32_t>(s.names.size()), (s.known - 1) / config_.block_size);
}

// Leading full blocks found in the cache.
uint32_t Scheduler::CachedBlocks(const Sequence& s, const BlockPool& pool) const {
  const uint32_t most = MostCachedBlocks(s);
  uint32_t cached = 0;
  while (cached < most && pool.Find(s.names[cached]) != kNoBlock) ++cached;
  return cached;
}

bool Scheduler::Fits(const Sequence& s, uint32_t team, uint32_t cached) {
  const BlockPool& pool = teams_[team].pool;
  const uint32_t total = CeilDiv(s.known, config_.block_size);
  for (uint32_t p = 0; p < partitions_.count; ++p) {
    needed_[p] = partitions_.Held(total, p) - partitions_.Held(cached, p);
  }
  for (uint32_t i = 0; i < cached; ++i) {
    needed_[partitions_.Of(i)] += pool.references(pool.Find(s.names[i])) == 0 ? 1 : 0;
  }
  if (teams_[team].running > 0) {
    const auto add_next = [this](const Sequence& r, uint32_t blocks) {
      if (blocks < BlocksFor(r.limit, config_.block_size)) ++needed_[partitions_.Of(blocks)];
    };
    for (const SequenceHandle r : running_) {
      if (sequences_[r].team != team) continue;
      add_next(sequences_[r], static_cast<uint32_t>(sequences_[r].blocks.size()));
    }
    // Its own first decode, when the known tokens fill their blocks.
    if (s.known % config_.block_size == 0) add_next(s, total);
  }
  for (uint32_t p = 0; p < partitions_.count; ++p) {
    if (needed_[p] > pool.free_blocks(p)) return false;
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
    --teams_[s.team].draining;
    ReturnToWaiting(h);
  }
}

void Scheduler::PublishComputed(Sequence* s) {
  const uint32_t full =
      std::min(static_cast<uint32_t>(s->names.size()), s->computed / config_.block_size);
  for (; s->published < full; ++s->published) {
    PoolOf(*s).Publish(s->blocks[s->published], s->names[s->published]);
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
      --teams_[s.team].running;
      break;
    case State::kDraining:
      --teams_[s.team].draining;
      break;
    case State::kFree:
    case State::kEnded:
      CLEAVE_CHECK(false);
  }
  s.state = State::kEnded;
  if (s.in_flight == 0) FreeSlot(h);
}

void Scheduler::GiveUpBlocks(Sequence* s) {
  PoolOf(*s).Release(s->blocks);
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
    if (pool(s.team).partition(s.blocks[i]) != partitions_.Of(i)) {
      return fault("a block is elsewhere");
    }
  }
  if (s.state == State::kRunning && !s.MayRunIn(s.team)) return fault("runs in another team");
  if (s.state == State::kWaiting && (!s.blocks.empty() || s.in_flight > 0 || s.pending > 0)) {
    return fault("waits with blocks or plans");
  }
  if (s.state == State::kDraining && s.in_flight == 0) return fault("drains without a plan");
  if (s.state == State::kEnded && s.in_flight == 0) return fault("ended and still here");
  return OkStatus();
}

Status Scheduler::CheckTeam(uint32_t team) const {
  const BlockPool& blocks = pool(team);
  RETURN_IF_ERROR(blocks.CheckIntegrity());
  uint64_t references = 0;
  uint32_t draining = 0;
  uint32_t running = 0;
  for (const Sequence& s : sequences_) {
    if (s.team != team) continue;
    references += s.blocks.size();
    draining += s.state == State::kDraining ? 1 : 0;
    running += s.state == State::kRunning ? 1 : 0;
  }
  for (BlockId b = 0; b < static_cast<BlockId>(blocks.num_blocks()); ++b) {
    references -= blocks.references(b);
  }
  if (references != 0) return Internal("references of tables and pool differ");
  if (draining != teams_[team].draining || running != teams_[team].running) {
    return Internal("counts of draining or running sequences are off");
  }
  return OkStatus();
}

Status Scheduler::CheckIntegrity() const {
  for (uint32_t team = 0; team < teams_.size(); ++team) RETURN_IF_ERROR(CheckTeam(team));
  uint64_t waiting_tokens = 0;
  size_t listed = free_slots_.size() + waiting_.size() + running_.size();
  for (const Sequence& s : sequences_) {
    if (s.state == State::kFree) continue;
    RETURN_IF_ERROR(CheckSequence(s));
    listed += s.state == State::kDraining || s.state == State::kEnded ? 1 : 0;
    waiting_tokens += s.state == State::kWaiting ? s.known : 0;
  }
  if (waiting_tokens != waiting_tokens_) return Internal("the count of waiting tokens is off");
  if (listed != sequences_.size()) return Internal("a sequence is lost or listed twice");
  const auto better = [this](SequenceHandle a, SequenceHandle b) { return Better(a, b); };
  if (!std::is_sorted(running_.begin(), running_.end(), better) ||
      !std::is_sorted(waiting_.begin(), waiting_.end(), better)) {
    return Internal("a list is not in order of rank");
  }
  return OkStatus();
}

}  // namespace cleave

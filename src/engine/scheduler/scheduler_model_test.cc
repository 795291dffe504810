// The scheduler under long random lives: beside its naive model, plan for plan, and against a
// memory that notices when a block is read that does not hold what the sequence computed.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/scheduler/naive_scheduler.h"
#include "engine/scheduler/scheduler.h"

namespace cleave {
namespace {

struct Life {
  SequenceHandle handle = 0;
  uint32_t prompt = 0;
  uint32_t limit = 0;
  uint64_t family = 0;  // sequences of a family share the tokens of their prompts
  bool looks_up = true;
  int32_t team = kAnyTeam;
  uint32_t known = 0;
  uint32_t named = 0;
};

class Simulation {
 public:
  Simulation(const SchedulerConfig& config, uint64_t seed, uint64_t families = 4)
      : config_(config),
        families_(families),
        scheduler_(config),
        naive_(config),
        random_(seed),
        memory_(static_cast<size_t>(config.num_blocks) * config.block_size),
        entries_(config.teams) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) Event();
    for (int i = 0; !lives_.empty(); ++i) {  // no new ones: everything must end
      ASSERT_LT(i, 100000) << "sequences are stuck";
      if (testing::Test::HasFatalFailure()) return;
      ScheduleOrCommit();
    }
    while (!flights_.empty()) Commit();
    ASSERT_EQ(scheduler_.running() + scheduler_.waiting(), 0U);
    ASSERT_EQ(scheduler_.waiting_tokens(), 0U);
    ASSERT_EQ(scheduler_.free_blocks(), config_.num_blocks);
    ASSERT_EQ(ended_, added_);
  }
  [[nodiscard]] uint64_t preemptions() const { return preemptions_; }
  [[nodiscard]] uint64_t cached() const { return cached_; }
  [[nodiscard]] size_t runs() const { return runs_; }
  [[nodiscard]] const std::vector<uint64_t>& entries() const { return entries_; }

 private:
  struct Flight {
    Plan plan;
    NaiveScheduler::Step step;
  };

  void Event() {
    const uint64_t dice = random_.Below(20);
    if (dice < 5 && lives_.size() < 40) Add();
    if (dice == 5 && !lives_.empty()) Abort();
    if (dice > 5) ScheduleOrCommit();
    const Status integrity = scheduler_.CheckIntegrity();
    ASSERT_TRUE(integrity.ok()) << integrity.ToString();
    for (uint32_t team = 0; team < config_.teams; ++team) {
      for (uint32_t p = 0; p < config_.kv_partitions; ++p) {
        ASSERT_EQ(scheduler_.pool(team).free_blocks(p), naive_.pool(team).free_blocks(p));
      }
    }
    ASSERT_EQ(scheduler_.running() + scheduler_.waiting(), lives_.size());
    ASSERT_EQ(naive_.sequences(), lives_.size());
  }

  // Stands for everything up to and including `position`: what its key and value depend on.
  static uint64_t Content(const Life& life, uint64_t tag, uint32_t position) {
    return position < life.prompt ? MixBits(life.family * 1000003 + position)
                                  : MixBits(tag * 7919 + (uint64_t{position} << 40U));
  }
  [[nodiscard]] BlockHash Name(const Life& life, uint64_t tag, uint32_t block) const {
    const uint32_t last = (block + 1) * config_.block_size - 1;
    return {Content(life, tag, last), last};
  }

  void Add() {
    const uint64_t tag = ++added_;
    Life life;
    const auto most = static_cast<uint32_t>(Scheduler::LongestLimit(config_));
    const uint32_t usual = std::max(30U, most / 8);
    life.limit = 2 + static_cast<uint32_t>(random_.Below(random_.Below(4) == 0 ? most - 1 : usual));
    life.limit = std::min(life.limit, most);
    life.prompt = 1 + static_cast<uint32_t>(random_.Below(life.limit - 1));
    life.family = random_.Below(families_);
    life.looks_up = random_.Below(8) != 0;
    life.known = life.prompt;
    SequenceFacts facts;
    facts.tag = tag;
    facts.tokens = life.prompt;
    facts.limit = life.limit;
    facts.priority = static_cast<int32_t>(random_.Below(3));
    facts.arrival = static_cast<int64_t>(random_.Below(1000));
    facts.lookup = life.looks_up ? CacheLookup::kYes : CacheLookup::kNo;
    if (config_.teams > 1 && random_.Below(4) == 0) {
      facts.team = life.team = static_cast<int32_t>(random_.Below(config_.teams));
    }
    std::vector<BlockHash> names;
    for (; (life.named + 1) * config_.block_size <= life.prompt; ++life.named) {
      names.push_back(Name(life, tag, life.named));
    }
    facts.names = names;
    life.handle = scheduler_.Add(facts);
    naive_.Add(facts);
    lives_[tag] = life;
  }

  void Abort() {
    auto it = lives_.begin();
    std::advance(it, random_.Below(lives_.size()));
    scheduler_.Abort(it->second.handle);
    naive_.End(it->first);
    lives_.erase(it);
    ++ended_;
  }

  void ScheduleOrCommit() {
    const bool full = flights_.size() == config_.max_plans_in_flight;
    if (full || (!flights_.empty() && random_.Below(3) == 0)) return Commit();
    Flight flight;
    const bool any = scheduler_.Schedule(&flight.plan);
    flight.step = naive_.Schedule();
    ComparePlans(flight);
    if (testing::Test::HasFatalFailure()) return;
    preemptions_ += flight.plan.preempted.size();
    ASSERT_TRUE(any || !flights_.empty() || lives_.empty()) << "nothing runs, yet some wait";
    if (!any) {
      if (!flights_.empty()) Commit();
      return;
    }
    Execute(flight.plan);
    flights_.push_back(std::move(flight));
  }

  void ComparePlans(const Flight& f) {
    ASSERT_EQ(f.plan.entries.size(), f.step.entries.size());
    uint32_t tokens = 0;
    std::vector<uint32_t> team_tokens(config_.teams);
    std::vector<uint32_t> team_entries(config_.teams);
    for (size_t i = 0; i < f.plan.entries.size(); ++i) {
      const PlanEntry& e = f.plan.entries[i];
      tokens += e.tokens;
      team_tokens[e.team] += e.tokens;
      ++team_entries[e.team];
      ++entries_[e.team];
      const int32_t team = lives_.at(e.tag).team;
      ASSERT_TRUE(team == kAnyTeam || static_cast<uint32_t>(team) == e.team);
      ASSERT_EQ(f.step.entries[i],
                (NaiveScheduler::Entry{e.tag,
                                       e.first_position,
                                       e.tokens,
                                       e.samples,
                                       e.team,
                                       {e.block_table.begin(), e.block_table.end()}}));
      for (size_t b = 0; b < e.block_table.size(); ++b) ExpectInItsPartition(b, e.block_table[b]);
    }
    ASSERT_EQ(tokens, f.plan.tokens);
    for (uint32_t team = 0; team < config_.teams; ++team) {
      ASSERT_LE(team_tokens[team], config_.max_num_batched_tokens);
      ASSERT_LE(team_entries[team], config_.max_num_seqs);
    }
    ASSERT_EQ(f.plan.admitted.size(), f.step.admitted.size());
    for (size_t i = 0; i < f.plan.admitted.size(); ++i) {
      const Admission& a = f.plan.admitted[i];
      ASSERT_EQ(f.step.admitted[i], std::pair(a.tag, a.cached_tokens));
      ASSERT_LT(a.cached_tokens, a.tokens);
      ASSERT_TRUE(a.cached_tokens == 0 || lives_.at(a.tag).looks_up);
      cached_ += a.cached_tokens;
    }
    // Of several teams, in any order.
    std::vector<std::pair<uint64_t, uint32_t>> preempted;
    for (const Preemption& p : f.plan.preempted) preempted.emplace_back(p.tag, p.computed_tokens);
    auto expected = f.step.preempted;
    if (config_.teams > 1) {
      std::sort(preempted.begin(), preempted.end());
      std::sort(expected.begin(), expected.end());
    }
    ASSERT_EQ(expected, preempted);
  }

  // By the ids that a partition has, and the run that the block's positions lie in.
  void ExpectInItsPartition(size_t index, BlockId block) {
    const uint32_t each = config_.num_blocks / config_.teams / config_.kv_partitions;
    const size_t run = index * config_.block_size / config_.run_positions;
    ASSERT_EQ(static_cast<uint32_t>(block) / each, run % config_.kv_partitions);
    runs_ = std::max(runs_, run + 1);
  }

  // Reads what the sequence's earlier positions should be, then writes the new ones.
  void Execute(const Plan& plan) {
    for (const PlanEntry& e : plan.entries) {
      const Life& life = lives_.at(e.tag);
      ASSERT_GT(e.tokens, 0U);
      ASSERT_LT(e.first_position + e.tokens, life.limit + 1);
      for (uint32_t p = 0; p < e.first_position; ++p) {
        ASSERT_EQ(At(e, p), Content(life, e.tag, p)) << "tag " << e.tag << " position " << p;
      }
      for (uint32_t p = e.first_position; p < e.first_position + e.tokens; ++p) {
        ExpectOnlyOwner(plan, e, e.block_table[p / config_.block_size]);
        At(e, p) = Content(life, e.tag, p);
      }
    }
  }
  uint64_t& At(const PlanEntry& e, uint32_t position) {
    const auto block = static_cast<size_t>(e.block_table[position / config_.block_size]);
    const size_t pool = config_.num_blocks / config_.teams;
    return memory_[(e.team * pool + block) * config_.block_size + position % config_.block_size];
  }
  // A block that is written is in nobody else's table, in this plan or in one in flight.
  void ExpectOnlyOwner(const Plan& now, const PlanEntry& writer, BlockId block) {
    const auto check = [&](const Plan& plan) {
      for (const PlanEntry& e : plan.entries) {
        if (e.tag == writer.tag || e.team != writer.team) continue;
        for (const BlockId b : e.block_table) ASSERT_NE(b, block) << "written while in use";
      }
    };
    check(now);
    for (const Flight& f : flights_) check(f.plan);
  }

  void Commit() {
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
    std::vector<EntryResult> results;
    std::vector<uint64_t> ends;
    for (const PlanEntry& e : flight.plan.entries) {
      results.push_back(EntryResult::kGoesOn);
      const auto it = lives_.find(e.tag);
      if (it == lives_.end() || !e.samples) continue;
      Life& life = it->second;
      ASSERT_EQ(e.first_position + e.tokens, life.known);
      ++life.known;
      if (life.known % config_.block_size == 0) {
        const BlockHash name = Name(life, e.tag, life.named++);
        scheduler_.AppendName(life.handle, name);
        naive_.AppendName(e.tag, name);
      }
      if (life.known < life.limit && random_.Below(40) != 0) continue;
      results.back() = EntryResult::kEnded;
      ends.push_back(e.tag);
      lives_.erase(it);
      ++ended_;
    }
    scheduler_.Commit(flight.plan, results);
    naive_.Commit(flight.step, ends);
  }

  const SchedulerConfig config_;
  const uint64_t families_;
  Scheduler scheduler_;
  NaiveScheduler naive_;
  RngStream random_;
  std::vector<uint64_t> memory_;
  std::vector<uint64_t> entries_;   // by team
  std::map<uint64_t, Life> lives_;  // by tag
  std::deque<Flight> flights_;
  uint64_t added_ = 0;
  uint64_t ended_ = 0;
  uint64_t preemptions_ = 0;
  uint64_t cached_ = 0;
  size_t runs_ = 0;  // of the longest table
};

TEST(SchedulerModel, RandomLivesAgreeAndEnd) {
  uint64_t preemptions = 0;
  uint64_t cached = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    RngStream random(seed);
    SchedulerConfig config;
    config.max_plans_in_flight = 1 + static_cast<uint32_t>(seed % 3);
    config.max_prefill_tokens = seed % 5 == 0 ? 7 : 0;
    config.samples_in_flight = seed % 2 == 0 ? SamplesInFlight::kAhead : SamplesInFlight::kAwait;
    config.max_num_seqs = 1 + static_cast<uint32_t>(random.Below(8));
    config.max_num_batched_tokens = 1 + static_cast<uint32_t>(random.Below(40));
    config.long_prefill_token_threshold = static_cast<uint32_t>(random.Below(8));
    config.block_size = 1 + static_cast<uint32_t>(random.Below(6));
    config.num_blocks = 2 + static_cast<uint32_t>(random.Below(30));
    config.max_bypasses = static_cast<uint32_t>(random.Below(5));
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(config, seed);
    simulation.Run(3000);
    if (HasFatalFailure()) return;
    preemptions += simulation.preemptions();
    cached += simulation.cached();
  }
  EXPECT_GT(preemptions, 500U);
  EXPECT_GT(cached, 5000U);
}

// Sequences of several runs; blocks as small as the cases above, and as large as servers have.
SchedulerConfig Cut(uint32_t partitions, uint64_t seed) {
  RngStream random(seed);
  SchedulerConfig config;
  const bool large = random.Below(4) == 0;
  config.kv_partitions = partitions;
  config.block_size = static_cast<uint32_t>(large ? 16U << random.Below(4) : 1 + random.Below(6));
  config.run_positions = config.block_size * static_cast<uint32_t>(1 + random.Below(4));
  config.num_blocks = partitions * static_cast<uint32_t>(2 + random.Below(large ? 6 : 16));
  config.max_plans_in_flight = 1 + static_cast<uint32_t>(random.Below(3));
  config.max_prefill_tokens = static_cast<uint32_t>(random.Below(3) == 0 ? 5 : 0);
  config.samples_in_flight =
      random.Below(2) == 0 ? SamplesInFlight::kAhead : SamplesInFlight::kAwait;
  config.max_num_seqs = 1 + static_cast<uint32_t>(random.Below(8));
  config.max_num_batched_tokens =
      1 + static_cast<uint32_t>(random.Below(10 * uint64_t{config.block_size} + 20));
  config.long_prefill_token_threshold =
      random.Below(2) == 0 ? 0 : static_cast<uint32_t>(random.Below(2 * config.block_size));
  config.max_bypasses = static_cast<uint32_t>(random.Below(5));
  return config;
}

TEST(SchedulerModel, RandomLivesOverPartitionsAgreeAndEnd) {
  for (uint32_t partitions = 1; partitions <= 4; ++partitions) {
    uint64_t preemptions = 0;
    uint64_t cached = 0;
    size_t runs = 0;
    for (uint64_t seed = 0; seed < 25; ++seed) {
      SCOPED_TRACE(std::to_string(partitions) + " partitions, seed " + std::to_string(seed));
      // Where all share one prompt, partition 0 is not always the first to be full.
      Simulation simulation(Cut(partitions, 100 * partitions + seed), seed, 1 + seed % 2);
      simulation.Run(1200);
      if (HasFatalFailure()) return;
      preemptions += simulation.preemptions();
      cached += simulation.cached();
      runs = std::max(runs, simulation.runs());
    }
    EXPECT_GT(preemptions, 100U) << partitions;
    EXPECT_GT(cached, 2000U) << partitions;
    EXPECT_GT(runs, 2 * partitions) << partitions;
  }
}

TEST(SchedulerModel, RandomLivesOverTeamsAgreeAndEnd) {
  for (uint32_t teams = 2; teams <= 3; ++teams) {
    uint64_t preemptions = 0;
    uint64_t cached = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(std::to_string(teams) + " teams, seed " + std::to_string(seed));
      SchedulerConfig config = Cut(1 + static_cast<uint32_t>(seed % 2), 1000 * teams + seed);
      config.teams = teams;
      config.num_blocks *= teams;
      Simulation simulation(config, seed, 1 + seed % 3);
      simulation.Run(1200);
      if (HasFatalFailure()) return;
      preemptions += simulation.preemptions();
      cached += simulation.cached();
      for (const uint64_t entries : simulation.entries()) EXPECT_GT(entries, 50U);
    }
    EXPECT_GT(preemptions, 100U);
    EXPECT_GT(cached, 2000U);
  }
}

}  // namespace
}  // namespace cleave

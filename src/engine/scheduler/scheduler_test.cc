#include "engine/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace cleave {
namespace {

SchedulerConfig Config(uint32_t blocks) {
  SchedulerConfig config;
  config.num_blocks = blocks;
  config.block_size = 4;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  return config;
}

struct Fixture {
  explicit Fixture(const SchedulerConfig& config) : scheduler(config) {
    plan.Reserve(config.teams * config.max_num_seqs);
  }

  SequenceHandle Add(uint64_t tag, uint32_t tokens, uint32_t limit, int32_t priority = 0) {
    SequenceFacts facts;
    facts.tag = tag;
    facts.tokens = tokens;
    facts.limit = limit;
    facts.priority = priority;
    return scheduler.Add(facts);
  }
  SequenceHandle AddNamed(uint64_t tag, const std::vector<BlockHash>& names, uint32_t tokens,
                          int32_t team = kAnyTeam) {
    SequenceFacts facts;
    facts.tag = tag;
    facts.tokens = tokens;
    facts.limit = limits[tag] = tokens + 4;
    facts.team = team;
    facts.names = names;
    return scheduler.Add(facts);
  }
  // Schedules and commits; a sequence that reaches its limit ends.
  void Step() {
    scheduler.Schedule(&plan);
    std::vector<EntryResult> results;
    for (const PlanEntry& e : plan.entries) {
      const uint32_t known = e.first_position + e.tokens + 1;
      const bool ends = e.samples && limits.contains(e.tag) && known == limits.at(e.tag);
      results.push_back(ends ? EntryResult::kEnded : EntryResult::kGoesOn);
      if (ends) ended.push_back(e.tag);
    }
    if (!plan.entries.empty()) scheduler.Commit(plan, results);
  }
  void AddEnding(uint64_t tag, uint32_t tokens, uint32_t limit, int32_t priority = 0) {
    limits[tag] = limit;
    Add(tag, tokens, limit, priority);
  }
  [[nodiscard]] std::vector<uint64_t> Admitted() const {
    std::vector<uint64_t> tags;
    for (const Admission& a : plan.admitted) tags.push_back(a.tag);
    return tags;
  }
  [[nodiscard]] const PlanEntry* Entry(uint64_t tag) const {
    const auto it = std::find_if(plan.entries.begin(), plan.entries.end(),
                                 [tag](const PlanEntry& e) { return e.tag == tag; });
    return it == plan.entries.end() ? nullptr : &*it;
  }

  Scheduler scheduler;
  Plan plan;
  std::map<uint64_t, uint32_t> limits;
  std::vector<uint64_t> ended;
};

using Tags = std::vector<uint64_t>;

TEST(Scheduler, DecodeIsNeverDelayedByAnOlderPrefill) {
  Fixture f(Config(1000));
  f.Add(1, 500, 600);  // older, and long: 16 steps of prefill
  f.Step();
  EXPECT_EQ(f.plan.tokens, 32U);
  Fixture g(Config(1000));
  g.Add(2, 3, 600);
  g.Step();
  g.Add(1, 500, 600, -1);  // better rank than the one that decodes
  for (int i = 0; i < 10; ++i) {
    g.Step();
    ASSERT_NE(g.Entry(2), nullptr);
    EXPECT_TRUE(g.Entry(2)->samples);
    ASSERT_NE(g.Entry(1), nullptr);
    EXPECT_EQ(g.Entry(1)->tokens, 31U);
  }
}

TEST(Scheduler, ChunksAtTheThreshold) {
  SchedulerConfig config = Config(100);
  config.long_prefill_token_threshold = 7;
  Fixture f(config);
  f.Add(1, 16, 40);
  const std::vector<uint32_t> chunks = {7, 7, 2, 1, 1};
  for (const uint32_t chunk : chunks) {
    f.Step();
    EXPECT_EQ(f.plan.entries[0].tokens, chunk);
    EXPECT_EQ(f.plan.entries[0].samples, chunk < 7);
  }
}

TEST(Scheduler, WholePromptMustFitBeforeAdmission) {
  Fixture f(Config(10));
  f.AddEnding(1, 20, 24);  // 5 blocks, 6 at its end
  f.AddEnding(2, 20, 21);  // 5 blocks fit the pool, but not beside the growth of the first
  f.Step();
  EXPECT_EQ(f.Admitted(), Tags{1});
  while (f.ended.empty()) f.Step();
  f.Step();
  EXPECT_EQ(f.Admitted(), Tags{2});
}

TEST(Scheduler, SmallOnesPassAHeadThatLacksBlocksABoundedNumberOfTimes) {
  SchedulerConfig config = Config(20);
  config.max_bypasses = 3;
  Fixture f(config);
  f.AddEnding(1, 20, 30);  // runs for a while
  f.AddEnding(2, 72, 73);  // 18 blocks: lacks them while 1 runs
  uint64_t next = 3;
  uint64_t passed = 0;
  for (int step = 0; step < 100 && f.Entry(2) == nullptr; ++step) {
    f.AddEnding(next++, 4, 6);
    f.Step();
    for (const uint64_t tag : f.Admitted()) passed += tag > 2 && f.Entry(2) == nullptr ? 1 : 0;
  }
  EXPECT_NE(f.Entry(2), nullptr) << "starved";
  EXPECT_EQ(passed, 3U);
}

TEST(Scheduler, TheWorstIsPreemptedAndTheBestAlwaysProgresses) {
  SchedulerConfig config = Config(8);
  Fixture f(config);
  f.AddEnding(1, 8, 32, 5);
  f.AddEnding(2, 8, 32, 1);  // better
  uint32_t preemptions = 0;
  uint32_t best = 0;
  for (int step = 0; step < 200 && f.ended.size() < 2; ++step) {
    f.Step();
    for (const Preemption& p : f.plan.preempted) {
      EXPECT_EQ(p.tag, 1U);
      EXPECT_GT(p.computed_tokens, 8U);
      ++preemptions;
    }
    if (f.ended.empty()) {
      ASSERT_NE(f.Entry(2), nullptr);
      const uint32_t reached = f.Entry(2)->first_position + f.Entry(2)->tokens;
      EXPECT_GT(reached, best);
      best = reached;
    }
    ASSERT_TRUE(f.scheduler.CheckIntegrity().ok());
  }
  EXPECT_EQ(f.ended, (Tags{2, 1}));
  EXPECT_EQ(preemptions, 1U) << "thrashing";
}

TEST(Scheduler, PriorityThenArrivalThenOrderOfAdd) {
  SchedulerConfig config = Config(100);
  config.max_num_seqs = 1;
  Fixture f(config);
  const auto add = [&](uint64_t tag, int32_t priority, int64_t arrival) {
    SequenceFacts facts;
    facts.tag = tag;
    facts.tokens = 2;
    facts.limit = 3;
    facts.priority = priority;
    facts.arrival = arrival;
    f.limits[tag] = 3;
    f.scheduler.Add(facts);
  };
  add(1, 0, 9);
  add(2, 0, 5);
  add(3, -1, 9);
  add(4, 0, 5);
  while (f.ended.size() < 4) f.Step();
  EXPECT_EQ(f.ended, (Tags{3, 2, 4, 1}));
}

TEST(Scheduler, AFullHitRecomputesTheLastBlock) {
  Fixture f(Config(10));
  const std::vector<BlockHash> names = {{1, 1}, {2, 2}};
  SequenceFacts facts;
  facts.tokens = 8;
  facts.limit = 9;
  facts.names = names;
  for (uint64_t tag = 1; tag <= 3; ++tag) {
    facts.tag = tag;
    facts.lookup = tag == 3 ? CacheLookup::kNo : CacheLookup::kYes;
    f.limits[tag] = 9;
    f.scheduler.Add(facts);
    f.Step();
    EXPECT_EQ(f.plan.admitted[0].cached_tokens, tag == 2 ? 4U : 0U);
  }
  EXPECT_EQ(f.scheduler.pool().free_blocks(), 10U);
}

TEST(Scheduler, ChoicesOfOnePromptComputeItOnce) {
  Fixture f(Config(100));
  const std::vector<BlockHash> names = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}};
  SequenceFacts facts;
  facts.tokens = 22;
  facts.limit = 30;
  facts.names = names;
  std::vector<SequenceHandle> handles;
  for (facts.tag = 1; facts.tag <= 3; ++facts.tag) handles.push_back(f.scheduler.Add(facts));
  f.Add(4, 5, 30);  // another prompt does not wait
  f.Step();
  EXPECT_EQ(f.Admitted(), (Tags{1, 4}));
  f.Step();
  EXPECT_EQ(f.Admitted(), (Tags{2, 3}));
  EXPECT_EQ(f.plan.admitted[0].cached_tokens, 20U);
  EXPECT_EQ(f.plan.admitted[1].cached_tokens, 20U);
  EXPECT_EQ(f.Entry(3)->tokens, 2U);
}

TEST(Scheduler, WhoeverWaitsForAPromptThatEndsEarlyComputesItItself) {
  Fixture f(Config(100));
  const std::vector<BlockHash> names(30, BlockHash{1, 1});
  SequenceFacts facts;
  facts.tokens = 122;
  facts.limit = 130;
  facts.names = names;
  facts.tag = 1;
  const SequenceHandle first = f.scheduler.Add(facts);
  facts.tag = 2;
  f.scheduler.Add(facts);
  f.scheduler.Schedule(&f.plan);
  EXPECT_EQ(f.Admitted(), Tags{1});
  const std::vector<EntryResult> results = {EntryResult::kGoesOn};
  f.scheduler.Abort(first);
  f.scheduler.Commit(f.plan, results);
  f.Step();
  EXPECT_EQ(f.Admitted(), Tags{2});
}

TEST(Scheduler, AbortFreesBlocksAtOnceUnlessAPlanInFlightUsesThem) {
  SchedulerConfig config = Config(10);
  config.max_plans_in_flight = 2;
  Fixture f(config);
  const SequenceHandle h = f.Add(1, 8, 20);
  Plan second;
  ASSERT_TRUE(f.scheduler.Schedule(&f.plan));
  ASSERT_TRUE(f.scheduler.Schedule(&second));  // the next position, its sample still in flight
  EXPECT_EQ(second.entries[0].first_position, 8U);
  f.scheduler.Abort(h);
  EXPECT_EQ(f.scheduler.running(), 0U);
  EXPECT_LT(f.scheduler.pool().free_blocks(), 10U);
  const std::vector<EntryResult> results = {EntryResult::kGoesOn};
  f.scheduler.Commit(f.plan, results);
  EXPECT_LT(f.scheduler.pool().free_blocks(), 10U);
  f.scheduler.Commit(second, results);
  EXPECT_EQ(f.scheduler.pool().free_blocks(), 10U);
  const SequenceHandle waits = f.Add(2, 8, 20);
  f.scheduler.Abort(waits);
  EXPECT_EQ(f.scheduler.waiting(), 0U);
  EXPECT_EQ(f.scheduler.waiting_tokens(), 0U);
  EXPECT_TRUE(f.scheduler.CheckIntegrity().ok());
}

TEST(Scheduler, PlansOfAPipelineShareTheDecodesEvenly) {
  SchedulerConfig config = Config(100);
  config.max_plans_in_flight = 3;
  config.samples_in_flight = SamplesInFlight::kAwait;
  Fixture f(config);
  for (uint64_t tag = 1; tag <= 7; ++tag) f.Add(tag, 4, 20);
  ASSERT_TRUE(f.scheduler.Schedule(&f.plan));
  ASSERT_EQ(f.plan.entries.size(), 7U);
  Plan none;
  EXPECT_FALSE(f.scheduler.Schedule(&none)) << "every sample is in flight";
  f.scheduler.Commit(f.plan, std::vector<EntryResult>(7, EntryResult::kGoesOn));
  for (const size_t entries : {3U, 3U, 1U}) {
    ASSERT_TRUE(f.scheduler.Schedule(&f.plan));
    EXPECT_EQ(f.plan.entries.size(), entries);
    for (const PlanEntry& e : f.plan.entries) EXPECT_EQ(e.first_position, 4U);
  }
}

// A decode comes beside them, whatever they leave.
TEST(Scheduler, PromptsGoThroughAPipelineInSmallPlans) {
  SchedulerConfig config = Config(100);
  config.max_prefill_tokens = 6;
  Fixture f(config);
  f.Add(1, 4, 20);
  f.Step();
  f.Add(2, 9, 20);
  f.Add(3, 9, 20);
  const std::vector<std::vector<uint32_t>> tokens = {{1, 6}, {1, 3, 3}, {1, 1, 6}};
  for (const std::vector<uint32_t>& expected : tokens) {
    ASSERT_TRUE(f.scheduler.Schedule(&f.plan));
    std::vector<uint32_t> got;
    for (const PlanEntry& e : f.plan.entries) got.push_back(e.tokens);
    EXPECT_EQ(got, expected);
    f.scheduler.Commit(f.plan, std::vector<EntryResult>(got.size(), EntryResult::kGoesOn));
  }
}

// Two partitions, runs of `run_positions`; the best and the next share their first run, so that
// what they hold is most of partition 1, while `3` lies in partition 0 alone.
struct SharedRun {
  SharedRun(uint32_t run_positions, uint32_t blocks_each)
      : f(ConfigOf(run_positions, blocks_each)) {
    for (uint64_t i = 0; i < run_positions / 8; ++i) names.push_back({i, i});
  }
  static SchedulerConfig ConfigOf(uint32_t run_positions, uint32_t blocks_each) {
    SchedulerConfig config = Config(2 * blocks_each);
    config.block_size = 8;
    config.kv_partitions = 2;
    config.run_positions = run_positions;
    config.max_num_batched_tokens = 100;
    config.max_plans_in_flight = 2;
    return config;
  }
  SequenceHandle AddSharing(uint64_t tag, uint32_t tokens, uint32_t limit) {
    SequenceFacts facts;
    facts.tag = tag;
    facts.tokens = tokens;
    facts.limit = limit;
    facts.names = names;
    return f.scheduler.Add(facts);
  }
  Fixture f;
  std::vector<BlockHash> names;
};

TEST(Scheduler, OnlyWhoHoldsBlocksOfTheLackingPartitionIsPreempted) {
  SharedRun s(16, 3);
  Fixture& f = s.f;
  s.AddSharing(1, 23, 40);
  s.AddSharing(2, 23, 40);
  f.Add(3, 1, 9);
  for (int step = 1; step <= 3; ++step) {
    f.Step();
    ASSERT_TRUE(f.plan.preempted.empty());
  }
  EXPECT_EQ(f.scheduler.pool().free_blocks(1), 0U);  // the first took the last one
  f.Step();
  ASSERT_EQ(f.plan.preempted.size(), 1U);
  EXPECT_EQ(f.plan.preempted[0].tag, 2U);
  EXPECT_NE(f.Entry(1), nullptr);
  ASSERT_NE(f.Entry(3), nullptr) << "a victim before it made it miss its turn";
  EXPECT_EQ(f.Entry(3)->first_position, 3U);
  EXPECT_TRUE(f.scheduler.CheckIntegrity().ok());
}

TEST(Scheduler, TheBestStallsForBlocksOfEndedSequencesAndIsNoVictim) {
  SharedRun s(24, 5);
  Fixture& f = s.f;
  s.AddSharing(1, 32, 48);
  const SequenceHandle second = s.AddSharing(2, 39, 56);
  f.Add(3, 1, 17);
  for (int step = 1; step <= 8; ++step) f.Step();
  ASSERT_TRUE(f.scheduler.Schedule(&f.plan));
  ASSERT_NE(f.Entry(1), nullptr);
  ASSERT_EQ(f.Entry(1)->first_position, 39U);
  ASSERT_EQ(f.scheduler.pool().free_blocks(1), 0U);
  f.scheduler.Abort(second);
  Plan stalled;
  ASSERT_TRUE(f.scheduler.Schedule(&stalled));
  EXPECT_TRUE(stalled.preempted.empty());
  ASSERT_EQ(stalled.entries.size(), 1U);
  EXPECT_EQ(stalled.entries[0].tag, 3U);
  f.scheduler.Commit(f.plan, std::vector<EntryResult>(3, EntryResult::kGoesOn));
  f.scheduler.Commit(stalled, std::vector<EntryResult>(1, EntryResult::kGoesOn));
  f.Step();
  ASSERT_NE(f.Entry(1), nullptr);
  EXPECT_EQ(f.Entry(1)->first_position, 40U);
  EXPECT_TRUE(f.plan.preempted.empty());
}

TEST(Scheduler, APartitionLimitsWhatFitsAlone) {
  SchedulerConfig config;
  config.block_size = 16;
  config.kv_partitions = 2;
  config.num_blocks = 2 * 40;  // a run of 32 in each, 8 blocks of a next one in partition 0
  EXPECT_EQ(Scheduler::LongestLimit(config), 2 * 512U + 8 * 16 + 1);
  EXPECT_TRUE(Scheduler::FitsAlone(1153, config));
  EXPECT_FALSE(Scheduler::FitsAlone(1154, config));
  EXPECT_EQ(Scheduler::BlocksFor(1153, config, 0), 40U);
  EXPECT_EQ(Scheduler::BlocksFor(1153, config, 1), 32U);
  EXPECT_EQ(Scheduler::BlocksFor(513, config, 1), 0U);
  EXPECT_EQ(Scheduler::BlocksFor(514, config, 1), 1U);
  config.kv_partitions = 3;
  config.num_blocks = 3 * 40;
  EXPECT_EQ(Scheduler::LongestLimit(config), 3 * 512U + 8 * 16 + 1);
  config.kv_partitions = 1;
  EXPECT_EQ(Scheduler::LongestLimit(config), 120 * 16U + 1);
  EXPECT_EQ(Scheduler::BlocksFor(1921, config, 0), 120U);
}

// Two that begin together never fit beside each other in partition 0, however free the others are.
TEST(Scheduler, AdmissionWantsBlocksInEachPartition) {
  SchedulerConfig config = Config(4 * 5);
  config.kv_partitions = 4;
  config.run_positions = 16;  // 4 blocks
  Fixture f(config);
  f.AddEnding(1, 14, 16);
  f.AddEnding(2, 14, 16);
  f.Step();
  EXPECT_EQ(f.Admitted(), Tags{1});
  EXPECT_EQ(f.scheduler.pool().free_blocks(), 16U);
  EXPECT_EQ(f.scheduler.pool().free_blocks(0), 1U);
  while (f.ended.empty()) f.Step();
  f.Step();
  EXPECT_EQ(f.Admitted(), Tags{2});
}

SchedulerConfig Teams(uint32_t teams, uint32_t blocks_each) {
  SchedulerConfig config = Config(teams * blocks_each);
  config.teams = teams;
  return config;
}

TEST(Scheduler, EachTeamHasABudgetPlacesAndBlocksOfItsOwn) {
  SchedulerConfig config = Teams(2, 100);
  config.max_num_seqs = 2;
  Fixture f(config);
  for (uint64_t tag = 1; tag <= 5; ++tag) f.Add(tag, 40, 60);
  f.Step();
  // A prompt is longer than a step's budget: one of each team.
  EXPECT_EQ(f.Admitted(), (Tags{1, 2}));
  EXPECT_EQ(f.plan.tokens, 64U);
  EXPECT_EQ(f.Entry(1)->team, 0U);
  EXPECT_EQ(f.Entry(2)->team, 1U);
  EXPECT_EQ(f.Entry(1)->block_table[0], f.Entry(2)->block_table[0]) << "ids are a team's own";
  for (int i = 0; i < 4; ++i) f.Step();
  EXPECT_EQ(f.scheduler.running(), 4U);
  EXPECT_EQ(f.scheduler.waiting(), 1U);
  EXPECT_EQ(f.Entry(3)->team, 0U);
  EXPECT_EQ(f.Entry(4)->team, 1U);
  EXPECT_TRUE(f.scheduler.CheckIntegrity().ok());
}

TEST(Scheduler, ASequenceGoesWhereItsPrefixIsUnlessThatIsFull) {
  SchedulerConfig config = Teams(2, 8);
  config.max_num_batched_tokens = 64;
  Fixture f(config);
  std::vector<BlockHash> names;
  for (uint64_t i = 0; i < 5; ++i) names.push_back({i, i});
  f.AddNamed(1, {}, 6, 0);
  f.AddNamed(2, names, 20, 1);
  f.Step();
  ASSERT_EQ(f.plan.entries.size(), 2U);
  const SequenceHandle first = f.Entry(1)->sequence;
  const SequenceHandle second = f.Entry(2)->sequence;
  f.scheduler.Abort(first);
  f.scheduler.Abort(second);
  // Both teams are empty; the second has its prefix: 4 blocks, the last token comes again.
  f.AddNamed(3, names, 20);
  f.Step();
  ASSERT_EQ(f.plan.admitted.size(), 1U);
  EXPECT_EQ(f.plan.admitted[0].cached_tokens, 16U);
  EXPECT_EQ(f.Entry(3)->team, 1U);
  // As many blocks are used there as would be found.
  f.AddNamed(4, names, 20);
  f.Step();
  EXPECT_EQ(f.Entry(4)->team, 0U);
  EXPECT_EQ(f.plan.admitted[0].cached_tokens, 0U);
}

TEST(Scheduler, ASequenceWaitsForTheTeamItNamesAndDelaysNobodyElsewhere) {
  SchedulerConfig config = Teams(2, 6);
  config.max_bypasses = 1;
  Fixture f(config);
  f.AddNamed(1, {}, 4, 1);
  f.AddNamed(2, {}, 16, 1);  // 4 blocks; 2 lie with the first, or will
  f.AddNamed(3, {}, 4);
  f.AddNamed(4, {}, 4, 1);
  f.Step();
  EXPECT_EQ(f.Admitted(), (Tags{1, 3, 4}));
  EXPECT_EQ(f.Entry(3)->team, 0U);
  EXPECT_EQ(f.Entry(4)->team, 1U);
  // It was passed in its team: nobody passes it again there, but in the other.
  f.AddNamed(5, {}, 1, 1);
  f.AddNamed(6, {}, 1);
  f.Step();
  EXPECT_EQ(f.Admitted(), Tags{6});
  EXPECT_EQ(f.Entry(6)->team, 0U);
  f.scheduler.Abort(f.Entry(1)->sequence);
  f.scheduler.Abort(f.Entry(4)->sequence);
  f.Step();
  EXPECT_EQ(f.Admitted(), (Tags{2, 5}));
  EXPECT_EQ(f.Entry(2)->team, 1U);
}

TEST(Scheduler, PreemptionStaysWithinATeam) {
  SchedulerConfig config = Teams(2, 4);
  Fixture f(config);
  f.AddNamed(1, {}, 6, 0);
  f.AddNamed(2, {}, 3, 0);
  f.AddNamed(3, {}, 6, 1);
  f.Step();
  ASSERT_EQ(f.plan.entries.size(), 3U);
  while (f.plan.preempted.empty()) f.Step();
  ASSERT_EQ(f.plan.preempted.size(), 1U);
  EXPECT_EQ(f.plan.preempted[0].tag, 2U) << "the worst has a team of its own";
  EXPECT_NE(f.Entry(1), nullptr);
  EXPECT_NE(f.Entry(3), nullptr);
}

TEST(Scheduler, NothingToDoIsNotAPlan) {
  Fixture f(Config(10));
  EXPECT_FALSE(f.scheduler.Schedule(&f.plan));
}

}  // namespace
}  // namespace cleave

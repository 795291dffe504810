#include "engine/engine_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/rng.h"
#include "engine/allocation_count.h"
#include "engine/fake_executor.h"
#include "engine/stop_check.h"

namespace cleave {

bool operator==(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && a.logprob == b.logprob && a.rank == b.rank;
}
bool operator==(const TokenLogprobs& a, const TokenLogprobs& b) {
  return a.chosen == b.chosen && a.top == b.top;
}

namespace {

using testing::HasSubstr;
constexpr int32_t kEos = 0;

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  int32_t stop_token_id = -1;
  bool operator==(const Answer&) const = default;
};
using Answers = std::map<SequenceId, Answer>;

EngineConfig Config() {
  EngineConfig config;
  config.max_model_len = 200;
  config.max_num_seqs = 40;
  config.block_size = 4;
  config.num_blocks = 2000;
  config.eos_token_ids = {kEos};
  return config;
}

std::vector<int32_t> Prompt(uint64_t seed, size_t tokens) {
  RngStream random(seed);
  std::vector<int32_t> prompt(tokens);
  for (int32_t& id : prompt) id = static_cast<int32_t>(1 + random.Below(63));
  return prompt;
}

SequenceSpec Spec(SequenceId id, size_t prompt, uint32_t max_tokens) {
  SequenceSpec spec;
  spec.id = id;
  spec.prompt = Prompt(id, prompt);
  spec.sampling.max_tokens = max_tokens;
  spec.sampling.seed = id * 77;
  return spec;
}

class Rig {
 public:
  explicit Rig(const EngineConfig& config, FakeExecutorOptions options = {})
      : config_(config),
        executor_(Fit(std::move(options), config)),
        core_(config, &executor_, nullptr, &SteadyClock::now, Isa::kScalar, {1, 2}) {}

  void Add(SequenceSpec spec) {
    const Status fits = CheckSequence(config_, 64, spec);
    ASSERT_TRUE(fits.ok()) << fits.ToString();
    core_.Add(std::move(spec), &outputs_);
  }
  void Step() {
    const Status status = core_.Step(&outputs_);
    ASSERT_TRUE(status.ok()) << status.ToString();
    Collect();
  }
  // Steps until nothing is left; everything has ended once, and all blocks are back.
  Answers Finish() {
    for (int i = 0; !core_.idle() && i < 20000 && !testing::Test::HasFatalFailure(); ++i) Step();
    Collect();
    EXPECT_TRUE(core_.idle());
    EXPECT_EQ(core_.stats().used_blocks, 0U);
    EXPECT_EQ(core_.stats().running + core_.stats().waiting, 0U);
    EXPECT_TRUE(core_.scheduler().CheckIntegrity().ok());
    for (const auto& [id, answer] : answers_) EXPECT_NE(answer.finish, FinishReason::kNone);
    return answers_;
  }
  EngineCore& core() { return core_; }
  EngineCore::Outputs& outputs() { return outputs_; }
  std::map<SequenceId, uint32_t>& cached() { return cached_; }
  Answers& answers() { return answers_; }

 private:
  static FakeExecutorOptions Fit(FakeExecutorOptions options, const EngineConfig& config) {
    options.num_blocks = config.num_blocks;
    options.block_size = config.block_size;
    options.teams = config.teams;
    options.kv_partitions = config.kv_partitions;
    return options;
  }
  void Collect() {
    for (SequenceOutput& o : outputs_) {
      Answer& a = answers_[o.id];
      EXPECT_EQ(a.finish, FinishReason::kNone) << "output after the end";
      EXPECT_TRUE(a.prompt_logprobs.empty() || o.prompt_logprobs.empty()) << "sent twice";
      a.tokens.insert(a.tokens.end(), o.tokens.begin(), o.tokens.end());
      a.logprobs.insert(a.logprobs.end(), o.logprobs.begin(), o.logprobs.end());
      if (!o.prompt_logprobs.empty()) a.prompt_logprobs = o.prompt_logprobs;
      a.finish = o.finish;
      a.stop_token_id = o.stop_token_id;
      cached_[o.id] = o.cached_tokens;
    }
    outputs_.clear();
  }

  const EngineConfig config_;
  FakeExecutor executor_;
  EngineCore core_;
  EngineCore::Outputs outputs_;
  Answers answers_;
  std::map<SequenceId, uint32_t> cached_;
};

// 32 requests of all kinds; some share prompts.
std::vector<SequenceSpec> Mixed() {
  std::vector<SequenceSpec> specs;
  for (SequenceId id = 1; id <= 32; ++id) {
    SequenceSpec spec = Spec(id, 1 + (id * 13) % 90, static_cast<uint32_t>(5 + (id * 7) % 40));
    if (id % 4 == 0) spec.prompt = Prompt(4, 60);
    spec.sampling.temperature = id % 3 == 0 ? 0.0F : 0.5F + static_cast<float>(id % 5) * 0.25F;
    if (id % 5 == 0) spec.sampling.top_p = 0.75F;
    if (id % 7 == 0) spec.sampling.top_k = 5;
    if (id % 6 == 0) spec.sampling.repetition_penalty = 1.25F;
    if (id % 8 == 1) spec.sampling.frequency_penalty = 0.5F;
    if (id % 2 == 0) spec.sampling.logprobs = static_cast<int32_t>(id % 8);
    if (id % 9 == 0) spec.sampling.prompt_logprobs = 3;
    if (id % 11 == 0) spec.sampling.ignore_eos = true;
    if (id % 10 == 0) spec.sampling.stop_token_ids = {5, 6, 7};
    specs.push_back(spec);
  }
  return specs;
}

Answers RunTogether(const EngineConfig& config, const FakeExecutorOptions& options = {}) {
  Rig rig(config, options);
  for (SequenceSpec& spec : Mixed()) rig.Add(std::move(spec));
  return rig.Finish();
}

Answers RunAlone() {
  Answers answers;
  for (SequenceSpec& spec : Mixed()) {
    Rig rig(Config());
    rig.Add(std::move(spec));
    answers.merge(rig.Finish());
  }
  return answers;
}

TEST(SameAnswer, AloneOrInABatchOf32) { EXPECT_EQ(RunTogether(Config()), RunAlone()); }

TEST(SameAnswer, InChunksOfAnySize) {
  const Answers whole = RunTogether(Config());
  for (const uint32_t chunk : {1U, 7U, 64U}) {
    EngineConfig config = Config();
    config.long_prefill_token_threshold = chunk;
    EXPECT_EQ(RunTogether(config), whole) << chunk;
  }
  for (const uint32_t budget : {40U, 45U, 100U}) {
    EngineConfig config = Config();
    config.max_num_batched_tokens = budget;
    EXPECT_EQ(RunTogether(config), whole) << budget;
  }
  FakeExecutorOptions narrow;
  narrow.max_sequences = 3;
  narrow.max_batch_tokens = 20;
  EXPECT_EQ(RunTogether(Config(), narrow), whole);
}

TEST(SameAnswer, PreemptedOrNot) {
  const Answers whole = RunTogether(Config());
  for (const bool caching : {true, false}) {
    EngineConfig config = Config();
    config.num_blocks = 49;  // the largest alone needs 33
    config.enable_prefix_caching = caching;
    Rig rig(config);
    for (SequenceSpec& spec : Mixed()) rig.Add(std::move(spec));
    EXPECT_EQ(rig.Finish(), whole);
    EXPECT_GT(rig.core().stats().preemptions, 5U);
  }
}

// Sequences of up to five runs of 512 positions, some with the first runs in common.
std::vector<SequenceSpec> Long() {
  std::vector<SequenceSpec> specs;
  for (SequenceId id = 1; id <= 8; ++id) {
    SequenceSpec spec = Spec(id, 250 * id, 150);
    if (id % 2 == 0) spec.prompt = Prompt(4, 1100 + 100 * id);
    spec.sampling.ignore_eos = true;
    specs.push_back(spec);
  }
  return specs;
}

TEST(SameAnswer, InAnyNumberOfPartitions) {
  EngineConfig config = Config();
  config.max_model_len = 2400;
  config.block_size = 16;
  Answers whole;
  // Of each partition: what everything needs, and little more than the longest sequence does.
  const std::vector<std::vector<uint32_t>> blocks = {
      {1000, 136}, {1000, 72}, {1000, 68}, {1000, 40}};
  for (uint32_t partitions = 1; partitions <= 4; ++partitions) {
    for (const uint32_t each : blocks[partitions - 1]) {
      config.kv_partitions = partitions;
      config.num_blocks = partitions * each;
      Rig rig(config, {.max_in_flight = 2});
      for (SequenceSpec& spec : Long()) rig.Add(std::move(spec));
      const Answers answers = rig.Finish();
      if (whole.empty()) whole = answers;
      EXPECT_EQ(answers, whole) << partitions << " partitions of " << each;
      EXPECT_EQ(rig.core().stats().num_blocks, config.num_blocks);
      EXPECT_EQ(rig.core().stats().preemptions > 0, each < 1000)
          << partitions << " partitions of " << each;
    }
  }
}

TEST(SameAnswer, InAnyNumberOfTeams) {
  const Answers whole = RunTogether(Config());
  for (const uint32_t teams : {2U, 3U}) {
    for (const uint32_t each : {2000U, 40U}) {  // the largest alone needs 33
      for (const uint32_t batches : {1U, 2U}) {
        EngineConfig config = Config();
        config.teams = teams;
        config.num_blocks = teams * each;
        config.max_num_batched_tokens = 45;
        Rig rig(config, {.max_in_flight = batches});
        for (SequenceSpec spec : Mixed()) {
          if (spec.id % 4 == 0) spec.replica = static_cast<int32_t>(spec.id / 4);  // any number
          rig.Add(std::move(spec));
        }
        EXPECT_EQ(rig.Finish(), whole) << teams << " teams of " << each;
        EXPECT_EQ(rig.core().stats().preemptions > 0, each == 40);
      }
    }
  }
}

TEST(SameAnswer, PipelinedOrNot) {
  const Answers whole = RunTogether(Config());
  for (const uint32_t batches : {2U, 3U}) {
    for (const uint32_t blocks : {2000U, 49U}) {
      for (const uint32_t chunk : {0U, 7U}) {
        EngineConfig config = Config();
        config.num_blocks = blocks;
        config.long_prefill_token_threshold = chunk;
        EXPECT_EQ(RunTogether(config, {.max_in_flight = batches}), whole)
            << batches << " batches under way, " << blocks << " blocks, chunk " << chunk;
      }
    }
  }
}

TEST(SameAnswer, ColdOrCachedPrefix) {
  const Answers cold = RunTogether(Config());
  Rig rig(Config());
  for (SequenceSpec& spec : Mixed()) rig.Add(std::move(spec));
  Answers first = rig.Finish();
  EXPECT_EQ(first, cold);
  for (SequenceSpec& spec : Mixed()) {
    spec.id += 100;
    rig.Add(std::move(spec));
  }
  Answers second = rig.Finish();
  uint32_t hits = 0;
  for (const auto& [id, answer] : cold) {
    EXPECT_EQ(second.at(id + 100), answer);
    const uint32_t cached = rig.cached()[id + 100];
    const auto prompt = static_cast<uint32_t>(Mixed()[id - 1].prompt.size());
    if (Mixed()[id - 1].sampling.prompt_logprobs >= 0) {
      EXPECT_EQ(cached, 0U);
    } else {
      EXPECT_EQ(cached, (prompt - 1) / 4 * 4);  // all full blocks before the last token
    }
    hits += cached;
  }
  EXPECT_GE(rig.core().stats().prefix_hits, hits);
  EXPECT_GT(rig.core().stats().prefix_queries, rig.core().stats().prefix_hits);
}

TEST(SameAnswer, OutputsAreCachedForTheNextTurn) {
  Rig rig(Config());
  SequenceSpec first = Spec(1, 10, 30);
  first.sampling.ignore_eos = true;
  rig.Add(first);
  const Answer answer = rig.Finish().at(1);
  SequenceSpec next = first;
  next.id = 2;
  next.prompt.insert(next.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  rig.Add(next);
  rig.Finish();
  EXPECT_EQ(rig.cached()[2], 36U);  // of 40; the last token was never computed
}

TEST(SameAnswer, ContinuedFromWhatItCarries) {
  for (const SequenceSpec& spec : Mixed()) {
    if (spec.sampling.prompt_logprobs >= 0) continue;
    Rig whole(Config());
    whole.Add(spec);
    const Answer full = whole.Finish().at(spec.id);
    for (const size_t carried : {size_t{1}, full.tokens.size() / 2, full.tokens.size() - 1}) {
      if (carried == 0 || carried >= full.tokens.size()) continue;
      SequenceSpec resumed = spec;
      resumed.output.assign(full.tokens.begin(),
                            full.tokens.begin() + static_cast<std::ptrdiff_t>(carried));
      Rig rig(Config());
      rig.Add(resumed);
      const Answer rest = rig.Finish().at(spec.id);
      std::vector<int32_t> joined = resumed.output;
      joined.insert(joined.end(), rest.tokens.begin(), rest.tokens.end());
      EXPECT_EQ(joined, full.tokens);
      EXPECT_EQ(rest.finish, full.finish);
      EXPECT_EQ(rest.stop_token_id, full.stop_token_id);
    }
  }
}

// What was aborted, or ended by force, while its batch was under way says nothing more.
TEST(EngineCore, EndsWhileBatchesAreUnderWay) {
  Rig rig(Config(), {.max_in_flight = 3});
  for (SequenceId id = 1; id <= 12; ++id) {
    SequenceSpec spec = Spec(id, 20, 60);
    spec.sampling.ignore_eos = true;
    rig.Add(std::move(spec));
  }
  for (int i = 0; i < 8; ++i) rig.Step();
  for (SequenceId id = 1; id <= 5; ++id) rig.core().Abort(id, &rig.outputs());
  rig.Step();
  rig.core().EndAll(FinishReason::kError, Unavailable("enough"), &rig.outputs());
  EXPECT_FALSE(rig.core().idle()) << "batches are under way";
  const Answers answers = rig.Finish();
  for (const auto& [id, answer] : answers) {
    EXPECT_EQ(answer.finish, id <= 5 ? FinishReason::kAbort : FinishReason::kError);
  }
}

TEST(EngineCore, AFailedBatchEndsAllThatAreUnderWay) {
  int batches = 0;
  Rig rig(Config(), {.max_in_flight = 2, .before_forward = [&batches] {
                       return ++batches < 6 ? OkStatus() : Unavailable("rank 1 is gone");
                     }});
  for (SequenceId id = 1; id <= 8; ++id) {
    SequenceSpec spec = Spec(id, 20, 60);
    spec.sampling.ignore_eos = true;
    rig.Add(std::move(spec));
  }
  Status status;
  while (status.ok()) status = rig.core().Step(&rig.outputs());
  rig.core().EndAll(FinishReason::kError, status, &rig.outputs());
  const Answers answers = rig.Finish();
  ASSERT_EQ(answers.size(), 8U);
  for (const auto& [id, answer] : answers) EXPECT_EQ(answer.finish, FinishReason::kError);
}

TEST(EngineCore, OneThatCarriesAllItsOutputEndsAtOnce) {
  Rig rig(Config());
  SequenceSpec spec = Spec(1, 5, 3);
  spec.output = {1, 2, 3};
  rig.Add(spec);
  const Answers answers = rig.Finish();
  EXPECT_EQ(answers.at(1).finish, FinishReason::kLength);
  EXPECT_TRUE(answers.at(1).tokens.empty());
}

TEST(EngineCore, PromptLogprobsCoverEveryPositionButTheFirst) {
  Rig rig(Config());
  SequenceSpec spec = Spec(1, 90, 4);
  spec.sampling.prompt_logprobs = 1000;  // all of the vocabulary
  rig.Add(spec);
  const Answer answer = rig.Finish().at(1);
  ASSERT_EQ(answer.prompt_logprobs.size(), 89U);
  for (size_t i = 0; i < 89; ++i) {
    EXPECT_EQ(answer.prompt_logprobs[i].chosen.id, spec.prompt[i + 1]);
    EXPECT_EQ(answer.prompt_logprobs[i].top.size(), 64U);
  }
}

// The second is preempted in the middle of its prompt, and again after its first token.
TEST(EngineCore, PromptLogprobsSurvivePreemption) {
  SequenceSpec steady = Spec(1, 8, 120);
  steady.sampling.ignore_eos = true;
  SequenceSpec asks = Spec(2, 60, 30);
  asks.sampling.ignore_eos = true;
  asks.sampling.prompt_logprobs = 4;
  Rig calm(Config());
  calm.Add(asks);
  const Answer expected = calm.Finish().at(2);
  ASSERT_EQ(expected.prompt_logprobs.size(), 59U);
  uint64_t before_first = 0;
  uint64_t after_first = 0;
  for (const uint32_t blocks : {32U, 34U, 36U}) {
    for (const uint32_t chunk : {1U, 3U, 0U}) {
      EngineConfig config = Config();
      config.num_blocks = blocks;
      config.long_prefill_token_threshold = chunk;
      Rig rig(config);
      rig.Add(steady);
      for (int i = 0; i < 40; ++i) rig.Step();  // grown to 40 tokens or more
      rig.Add(asks);
      while (!rig.core().idle()) {
        const uint64_t before = rig.core().stats().preemptions;
        rig.Step();
        const bool started = !rig.answers()[2].tokens.empty();
        (started ? after_first : before_first) += rig.core().stats().preemptions - before;
      }
      EXPECT_EQ(rig.Finish().at(2), expected) << blocks << " blocks, chunk " << chunk;
    }
  }
  EXPECT_GT(before_first, 0U);
  EXPECT_GT(after_first, 0U);
}

TEST(EngineCore, ChoicesOfOnePromptComputeItOnce) {
  Rig rig(Config());
  for (SequenceId id = 1; id <= 4; ++id) {
    SequenceSpec spec = Spec(id, 62, 5);
    spec.prompt = Prompt(9, 62);
    spec.sampling.seed = 5;
    spec.sampling.choice_index = static_cast<uint32_t>(id);
    rig.Add(spec);
  }
  const Answers answers = rig.Finish();
  for (SequenceId id = 2; id <= 4; ++id) EXPECT_EQ(rig.cached()[id], 60U);
  EXPECT_NE(answers.at(1).tokens, answers.at(2).tokens);
}

TEST(EngineCore, SaltsDoNotShareThePrefixCache) {
  Rig rig(Config());
  for (SequenceId id = 1; id <= 4; ++id) {
    SequenceSpec spec = Spec(id, 40, 1);
    spec.prompt = Prompt(9, 40);
    spec.cache_salt = id % 2 == 0 ? "even" : "odd";
    rig.Add(spec);
    rig.Finish();
    EXPECT_EQ(rig.cached()[id], id <= 2 ? 0U : 36U);
  }
}

TEST(EngineCore, AbortFreesBlocksAtOnce) {
  Rig rig(Config());
  for (SequenceId id = 1; id <= 3; ++id) rig.Add(Spec(id, 20, 100));
  rig.Step();
  EXPECT_EQ(rig.core().stats().running, 3U);
  for (SequenceId id = 1; id <= 3; ++id) rig.core().Abort(id, &rig.outputs());
  rig.core().Abort(2, &rig.outputs());  // again, and one that never was
  rig.core().Abort(99, &rig.outputs());
  EXPECT_EQ(rig.core().stats().used_blocks, 0U);
  EXPECT_TRUE(rig.core().idle());
  for (const auto& [id, answer] : rig.Finish()) EXPECT_EQ(answer.finish, FinishReason::kAbort);
}

TEST(EngineCore, NothingLeftToSampleIsAnError) {
  Rig rig(Config());
  SequenceSpec spec = Spec(1, 5, 3);
  spec.sampling.allowed_token_ids = {3};
  spec.sampling.bad_words = {{3}};
  rig.Add(spec);
  ASSERT_TRUE(rig.core().Step(&rig.outputs()).ok());
  ASSERT_EQ(rig.outputs().size(), 1U);
  EXPECT_EQ(rig.outputs()[0].finish, FinishReason::kError);
  EXPECT_EQ(rig.outputs()[0].error.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(rig.outputs()[0].error.message(), HasSubstr("no token is left"));
  rig.Finish();
}

TEST(EngineCore, PriorityRunsFirst) {
  EngineConfig config = Config();
  config.policy = SchedulingPolicy::kPriority;
  config.max_num_seqs = 1;
  Rig rig(config);
  for (SequenceId id = 1; id <= 3; ++id) {
    SequenceSpec spec = Spec(id, 4, 1);
    spec.priority = -static_cast<int32_t>(id);
    rig.Add(spec);
  }
  std::vector<SequenceId> order;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(rig.core().Step(&rig.outputs()).ok());
    order.push_back(rig.outputs().back().id);
  }
  EXPECT_EQ(order, (std::vector<SequenceId>{3, 2, 1}));
  rig.Finish();
}

TEST(EngineCore, AFailedStepEndsEverythingAndGivesBlocksBack) {
  FakeExecutorOptions options;
  int steps = 0;
  options.before_forward = [&] { return ++steps == 3 ? Unavailable("rank 1 lost") : OkStatus(); };
  Rig rig(Config(), options);
  for (SequenceId id = 1; id <= 3; ++id) rig.Add(Spec(id, 20, 100));
  Status status;
  while (status.ok()) status = rig.core().Step(&rig.outputs());
  rig.outputs().clear();
  rig.core().EndAll(FinishReason::kError, status, &rig.outputs());
  ASSERT_EQ(rig.outputs().size(), 3U);
  for (const SequenceOutput& o : rig.outputs()) EXPECT_EQ(o.error.message(), "rank 1 lost");
  EXPECT_EQ(rig.core().stats().used_blocks, 0U);
  EXPECT_TRUE(rig.core().scheduler().CheckIntegrity().ok());
  rig.outputs().clear();
}

TEST(EngineCore, ASteadyStepAllocatesNothing) {
  EngineConfig config = Config();
  config.max_model_len = 2000;
  Rig rig(config);
  constexpr uint32_t kSequences = 32;
  for (SequenceId id = 1; id <= kSequences; ++id) {
    SequenceSpec spec = Spec(id, 20, 150);
    spec.sampling.ignore_eos = true;
    spec.sampling.top_p = 0.9F;
    spec.sampling.repetition_penalty = 1.1F;
    rig.Add(spec);
  }
  for (int i = 0; i < 10; ++i) rig.Step();
  for (int i = 0; i < 60; ++i) {  // 15 blocks of each sequence, and their names
    ASSERT_TRUE(rig.outputs().empty());
    const uint64_t before = AllocationCountOfAll();
    const Status status = rig.core().Step(&rig.outputs());
    ASSERT_EQ(AllocationCountOfAll() - before, 0U) << "step " << i;
    ASSERT_TRUE(status.ok());
    ASSERT_EQ(rig.outputs().size(), kSequences);
    rig.outputs().clear();
  }
}

TEST(CheckSequence, SaysWhatDoesNotFit) {
  EngineConfig config = Config();
  config.num_blocks = 10;
  const auto message = [&](const SequenceSpec& spec) {
    const Status status = CheckSequence(config, 64, spec);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message(Spec(1, 0, 1)), HasSubstr("prompt is empty"));
  EXPECT_THAT(message(Spec(1, 5, 0)), HasSubstr("max_tokens must be at least 1"));
  EXPECT_THAT(message(Spec(1, 200, 1)), HasSubstr("above the context of 200"));
  EXPECT_THAT(message(Spec(1, 5, 196)), HasSubstr("5 prompt tokens and max_tokens 196 make 201"));
  EXPECT_THAT(message(Spec(1, 5, 0xffffffffU)), HasSubstr("make 4294967300"));
  EXPECT_THAT(message(Spec(1, 30, 12)),
              HasSubstr("42 tokens need 11 KV blocks of 4 tokens, the pool has 10: at most 41"));
  EXPECT_THAT(message(Spec(1, 30, 12)), HasSubstr("--kv-cache-memory-bytes"));
  EXPECT_TRUE(CheckSequence(config, 64, Spec(1, 30, 11)).ok());
  SequenceSpec spec = Spec(1, 5, 5);
  spec.prompt[2] = 64;
  EXPECT_THAT(message(spec), HasSubstr("outside the vocabulary of 64"));
  spec.prompt[2] = -1;
  EXPECT_THAT(message(spec), HasSubstr("outside the vocabulary"));
}

TEST(CheckSequence, SaysWhatDoesNotFitAPartition) {
  EngineConfig config = Config();
  config.max_model_len = 4000;
  config.block_size = 16;
  config.kv_partitions = 3;
  config.num_blocks = 3 * 40;
  EXPECT_TRUE(CheckSequence(config, 64, Spec(1, 1600, 65)).ok());
  const Status status = CheckSequence(config, 64, Spec(1, 1600, 66));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("1666 tokens need 41 KV blocks of 16 tokens in the first "
                                          "of 3 ranks that share its positions, each has 40: at "
                                          "most 1665 tokens fit; lower max_tokens or raise "
                                          "--kv-cache-memory-bytes"));
}

// Data-parallel ranks are counted over replicas: with two teams, 3 is the second one of replica 1.
TEST(EngineCore, ASequenceRunsInTheTeamItNames) {
  EngineConfig config = Config();
  config.teams = 2;
  for (const int32_t rank : {0, 1, 2, 3}) {
    Rig rig(config);
    for (SequenceSpec& spec : Mixed()) {
      spec.replica = rank;
      rig.Add(std::move(spec));
    }
    ASSERT_TRUE(rig.core().Step(&rig.outputs()).ok());
    const Scheduler& scheduler = rig.core().scheduler();
    const auto team = static_cast<uint32_t>(rank) % 2;
    EXPECT_LT(scheduler.pool(team).free_blocks(), scheduler.pool(team).num_blocks());
    EXPECT_EQ(scheduler.pool(1 - team).free_blocks(), scheduler.pool(1 - team).num_blocks());
    rig.Finish();
  }
}

TEST(CheckSequence, SaysWhatDoesNotFitATeam) {
  EngineConfig config = Config();
  config.max_model_len = 4000;
  config.block_size = 16;
  config.teams = 2;
  config.num_blocks = 2 * 40;
  EXPECT_TRUE(CheckSequence(config, 64, Spec(1, 600, 41)).ok());
  EXPECT_THAT(CheckSequence(config, 64, Spec(1, 600, 42)).message(),
              HasSubstr("642 tokens need 41 KV blocks of 16 tokens, a team's pool has 40: at most "
                        "641 tokens fit"));
}

TEST(CheckStop, EosThenStopIdsThenLengths) {
  SamplingParams p;
  p.max_tokens = 10;
  p.stop_token_ids = {7, 0};
  const auto check = [&](int32_t token, uint32_t output, uint32_t total) {
    const std::vector<int32_t> eos = {0, 1};
    const StopCheck stop = CheckStop(p, eos, 100, token, output, total);
    return std::pair(stop.reason, stop.stop_token_id);
  };
  using R = FinishReason;
  EXPECT_EQ(check(5, 3, 20), std::pair(R::kNone, -1));
  EXPECT_EQ(check(1, 3, 20), std::pair(R::kStop, -1));
  EXPECT_EQ(check(0, 3, 20), std::pair(R::kStop, -1));
  EXPECT_EQ(check(7, 10, 20), std::pair(R::kStop, 7));
  EXPECT_EQ(check(5, 10, 20), std::pair(R::kLength, -1));
  EXPECT_EQ(check(5, 3, 100), std::pair(R::kLength, -1));
  p.ignore_eos = true;
  EXPECT_EQ(check(1, 3, 20), std::pair(R::kNone, -1));
  EXPECT_EQ(check(0, 3, 20), std::pair(R::kStop, 0));
  p.min_tokens = 4;
  EXPECT_EQ(check(7, 3, 20), std::pair(R::kNone, -1));
  EXPECT_EQ(check(7, 4, 20), std::pair(R::kStop, 7));
  p.min_tokens = 50;  // more than max_tokens: lengths still end it
  EXPECT_EQ(check(7, 10, 20), std::pair(R::kLength, -1));
}

TEST(EngineCore, MinTokensIsExact) {
  for (uint32_t min_tokens = 0; min_tokens < 6; ++min_tokens) {
    Rig rig(Config());
    SequenceSpec spec = Spec(3, 6, 20);
    spec.sampling.logit_bias = {{kEos, 100.0F}};  // EOS as soon as it may
    spec.sampling.min_tokens = min_tokens;
    rig.Add(spec);
    const Answer answer = rig.Finish().at(3);
    EXPECT_EQ(answer.tokens.size(), min_tokens + 1);
    EXPECT_EQ(answer.tokens.back(), kEos);
    EXPECT_EQ(answer.finish, FinishReason::kStop);
  }
}

}  // namespace
}  // namespace cleave

#include "answer_harness.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "base/checked.h"
#include "base/rng.h"
#include "split/layout.h"

namespace cleave {
namespace {

constexpr uint32_t kBlock = 16;
constexpr uint32_t kBlocksARun = kRunPositions / kBlock;

// Collects what an engine says until every sequence of a round has ended.
class Collector {
 public:
  void Take(std::vector<SequenceOutput>&& outputs) {
    const std::lock_guard<std::mutex> lock(mu_);
    for (SequenceOutput& o : outputs) {
      Answer& answer = answers_[o.id];
      answer.tokens.insert(answer.tokens.end(), o.tokens.begin(), o.tokens.end());
      for (const auto* list : {&o.prompt_logprobs, &o.logprobs}) {
        for (const TokenLogprobs& l : *list) Add(l, &answer);
      }
      if (o.finish == FinishReason::kNone) continue;
      EXPECT_TRUE(o.error.ok()) << o.error.ToString();
      ++ended_;
    }
    changed_.notify_all();
  }
  bool WaitEnded(size_t count) {
    std::unique_lock<std::mutex> lock(mu_);
    return changed_.wait_for(lock, std::chrono::minutes(5), [&] { return ended_ >= count; });
  }
  std::map<SequenceId, Answer> answers() {
    const std::lock_guard<std::mutex> lock(mu_);
    return answers_;
  }

 private:
  static void Add(const TokenLogprobs& l, Answer* answer) {
    answer->logged_ids.push_back(l.chosen.id);
    answer->logprobs.push_back(l.chosen.logprob);
    for (const TokenLogprob& top : l.top) {
      answer->logged_ids.push_back(top.id);
      answer->logprobs.push_back(top.logprob);
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::map<SequenceId, Answer> answers_;  // guarded by mu_
  size_t ended_ = 0;                      // guarded by mu_
};

uint32_t BlocksOf(const SequenceSpec& s) {
  return (static_cast<uint32_t>(s.prompt.size()) + s.sampling.max_tokens + kBlock) / kBlock;
}

}  // namespace

Result<std::unique_ptr<Executor>> MakeInline(const std::string& model, const ModelPlan& plan) {
  ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(model));
  ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor,
                   LoadModel(std::move(checkpoint), plan, nullptr));
  return executor;
}

Outcome RunRequests(const std::string& model, const Way& way, const Requests& requests,
                    const ExecutorMaker& make) {
  ::setenv("CLEAVE_ISA", way.isa, 1);
  auto checkpoint = OpenCheckpoint(model);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  ModelSettings settings;
  settings.max_num_seqs = way.max_num_seqs;
  settings.max_num_batched_tokens = way.batched_tokens;
  settings.threads = way.threads;
  settings.block_size = kBlock;
  settings.kv_cache_dtype = way.kv_cache_dtype;
  settings.max_model_len = 256;
  auto plan = PlanModel(**checkpoint, settings);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  uint32_t all_blocks = 0;
  uint32_t largest = 0;
  for (const SequenceSpec& s : requests) {
    all_blocks += BlocksOf(s);
    largest = std::max(largest, BlocksOf(s));
  }
  // Of one rank: the longest sequence alone fits.
  const uint32_t longest = CeilDiv(largest, way.kv_partitions * kBlocksARun) * kBlocksARun;
  plan->executor.num_blocks =
      std::max(way.kv_partitions == 1 ? largest : longest,
               CeilDiv(all_blocks * way.blocks_share / 100, way.teams * way.kv_partitions));
  plan->executor.max_positions = std::max(256U, largest * kBlock);
  EngineConfig config;
  config.max_model_len = plan->executor.max_positions;
  config.teams = way.teams;
  config.kv_partitions = way.kv_partitions;
  config.max_num_seqs = way.max_num_seqs;
  config.max_num_batched_tokens = way.batched_tokens;
  config.block_size = kBlock;
  config.num_blocks = plan->executor.num_blocks * way.teams * way.kv_partitions;
  config.enable_prefix_caching = way.prefix_caching;
  config.long_prefill_token_threshold = way.chunk;
  auto executor = make(model, *plan);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  if (!executor.ok()) return {};

  Outcome outcome;
  Collector collector;
  Engine engine(
      config, std::move(*executor),
      [&](std::vector<SequenceOutput>&& o) { collector.Take(std::move(o)); }, nullptr);
  for (uint32_t round = 0; round < way.rounds; ++round) {
    Requests batch = requests;
    for (SequenceSpec& s : batch) s.id += round * 1000;
    const size_t count = batch.size();
    EXPECT_TRUE(engine.Submit(std::move(batch)).ok());
    EXPECT_TRUE(collector.WaitEnded((round + 1) * count)) << way.name;
  }
  for (auto& [id, answer] : collector.answers()) {
    if (id / 1000 == way.rounds - 1) outcome.answers[id % 1000] = answer;
  }
  outcome.stats = engine.stats();
  outcome.expert_tokens = engine.expert_tokens();
  return outcome;
}

Requests MakeRequests(uint32_t count, uint32_t vocab, uint32_t max_tokens) {
  RngStream random(11);
  Requests requests;
  std::vector<int32_t> shared(40);
  for (int32_t& id : shared) id = static_cast<int32_t>(random.Below(vocab));
  for (uint32_t i = 0; i < count; ++i) {
    SequenceSpec s;
    s.id = i;
    if (i % 3 == 0) s.prompt = shared;
    const auto length = 1 + random.Below(i % 4 == 0 ? 150 : 40);
    for (uint64_t t = 0; t < length; ++t) {
      s.prompt.push_back(static_cast<int32_t>(random.Below(vocab)));
    }
    s.sampling.max_tokens = max_tokens;
    s.sampling.ignore_eos = true;
    s.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    s.sampling.seed = 100 + i;
    if (i % 5 == 0) s.sampling.top_p = 0.8F;
    if (i % 5 == 1) s.sampling.top_k = 20;
    if (i % 5 == 2) s.sampling.repetition_penalty = 1.2F;
    if (i % 5 == 3) s.sampling.min_p = 0.05F;
    if (i % 7 == 0) s.sampling.presence_penalty = 0.5F;
    if (i % 2 == 1) s.sampling.logprobs = 3;
    if (i == 4) s.sampling.prompt_logprobs = 2;
    s.arrival = SteadyClock::now();
    requests.push_back(std::move(s));
  }
  return requests;
}

void Lengthen(uint32_t count, uint32_t tokens, uint32_t vocab, Requests* requests) {
  RngStream random(12);
  std::vector<int32_t> more(tokens);
  for (int32_t& id : more) id = static_cast<int32_t>(random.Below(vocab));
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t t = tokens / 2; t < tokens; ++t) {
      more[t] = static_cast<int32_t>(random.Below(vocab));
    }
    std::vector<int32_t>& prompt = (*requests)[i].prompt;
    prompt.insert(prompt.begin(), more.begin(), more.end());
  }
}

void ExpectEqualAnswers(const Outcome& plain, const Outcome& other, const std::string& what) {
  EXPECT_EQ(other.answers.size(), plain.answers.size()) << what;
  for (const auto& [id, answer] : plain.answers) {
    const auto found = other.answers.find(id);
    EXPECT_TRUE(found != other.answers.end() && found->second == answer)
        << what << ", request " << id;
  }
  EXPECT_EQ(other.stats.running + other.stats.waiting, 0U) << what;
  EXPECT_EQ(other.stats.used_blocks, 0U) << what;
}

}  // namespace cleave

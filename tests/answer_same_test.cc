// answer.same on one rank: tokens and log-probabilities of a request are equal (==) alone or in a
// batch, chunked or whole, cold or cached, preempted or not, with one or two threads, and on every
// instruction set. Tiny checkpoints of every family in the quick tier, the demo models in the full.

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/open_model.h"

namespace cleave {
namespace {

constexpr uint32_t kBlock = 16;

// How a set of requests is run; none of it may show in the answers.
struct Way {
  const char* name;
  uint32_t threads = 2;
  const char* isa = "";        // "" = the best
  uint32_t max_num_seqs = 32;  // 1 = each alone
  uint32_t chunk = 0;          // prompt tokens of a step; 0 = whole
  uint32_t batched_tokens = 512;
  bool prefix_caching = false;
  uint32_t rounds = 1;          // the last one's answers count: later ones find their prefix cached
  uint32_t blocks_share = 100;  // of what all requests together need, in per cent
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<int32_t> logged_ids;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

struct Outcome {
  std::map<SequenceId, Answer> answers;
  EngineStats stats;
};

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

using Requests = std::vector<SequenceSpec>;

uint32_t BlocksOf(const SequenceSpec& s) {
  return (static_cast<uint32_t>(s.prompt.size()) + s.sampling.max_tokens + kBlock) / kBlock;
}

Outcome Run(const std::string& model, const Way& way, const Requests& requests) {
  ::setenv("CLEAVE_ISA", way.isa, 1);
  auto checkpoint = OpenCheckpoint(model);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  ModelSettings settings;
  settings.max_num_seqs = way.max_num_seqs;
  settings.max_num_batched_tokens = way.batched_tokens;
  settings.threads = way.threads;
  settings.block_size = kBlock;
  settings.max_model_len = 256;
  auto plan = PlanModel(**checkpoint, settings);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  uint32_t all_blocks = 0;
  uint32_t largest = 0;
  for (const SequenceSpec& s : requests) {
    all_blocks += BlocksOf(s);
    largest = std::max(largest, BlocksOf(s));
  }
  plan->executor.num_blocks = std::max(largest, all_blocks * way.blocks_share / 100);
  EngineConfig config;
  config.max_model_len = 256;
  config.max_num_seqs = way.max_num_seqs;
  config.max_num_batched_tokens = way.batched_tokens;
  config.block_size = kBlock;
  config.num_blocks = plan->executor.num_blocks;
  config.enable_prefix_caching = way.prefix_caching;
  config.long_prefill_token_threshold = way.chunk;
  auto executor = LoadModel(std::move(*checkpoint), *plan, nullptr);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();

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
  return outcome;
}

// Greedy and sampled, short and long, with and without penalties and log-probabilities; some share
// a prefix.
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

const std::vector<Way>& Ways() {
  static const std::vector<Way> ways{
      {.name = "one thread", .threads = 1},
      {.name = "each alone", .max_num_seqs = 1},
      {.name = "chunks of 1", .chunk = 1},
      {.name = "chunks of 7", .chunk = 7, .batched_tokens = 48},
      {.name = "chunks of 64", .chunk = 64},
      {.name = "cached prefix", .prefix_caching = true, .rounds = 2},
      {.name = "preempted", .prefix_caching = false, .blocks_share = 30},
      {.name = "preempted and cached", .chunk = 16, .prefix_caching = true, .blocks_share = 30},
      {.name = "scalar", .isa = "scalar"},
      {.name = "avx2", .isa = "avx2"},
  };
  return ways;
}

void ExpectSameAnswers(const std::string& model, const Requests& requests,
                       const std::vector<Way>& ways) {
  const Outcome plain = Run(model, {.name = "plain"}, requests);
  ASSERT_EQ(plain.answers.size(), requests.size());
  for (const Way& way : ways) {
    const Isa wanted = std::string(way.isa) == "avx2" ? Isa::kAvx2 : Isa::kScalar;
    if (!CpuSupports(wanted)) continue;
    const Outcome other = Run(model, way, requests);
    EXPECT_EQ(other.answers.size(), requests.size()) << way.name;
    for (const auto& [id, answer] : plain.answers) {
      EXPECT_TRUE(other.answers.at(id) == answer)
          << model << ", " << way.name << ", request " << id;
    }
    if (way.rounds > 1) {
      EXPECT_GT(other.stats.prefix_hits, 0U) << way.name;
    }
    if (way.blocks_share < 100) {
      EXPECT_GT(other.stats.preemptions, 0U) << way.name;
    }
    EXPECT_EQ(other.stats.running + other.stats.waiting, 0U) << way.name;
    EXPECT_EQ(other.stats.used_blocks, 0U) << way.name;
  }
}

constexpr const char* kTinyModels[] = {
    "llama2",     "llama2.gguf", "llama3.gguf", "llama_head80.gguf", "mistral",
    "qwen2.gguf", "qwen3",       "gemma3",      "gemma3.gguf"};

class AnswerSame : public testing::TestWithParam<const char*> {};

TEST_P(AnswerSame, TinyModel) {
  ExpectSameAnswers(std::string(CLEAVE_TINY) + "/" + GetParam(), MakeRequests(16, 300, 40), Ways());
}

INSTANTIATE_TEST_SUITE_P(Families, AnswerSame, testing::ValuesIn(kTinyModels));

std::string DemoModel(const char* name) {
  return std::string(CLEAVE_SOURCE_DIR) + "/models/" + name;
}

class AnswerSameFull : public testing::TestWithParam<const char*> {};

TEST_P(AnswerSameFull, DemoModel) {
  const std::string model = DemoModel(GetParam());
  ASSERT_TRUE(std::filesystem::exists(model))
      << model << " is missing: run tools/fetch_models.sh all";
  std::vector<Way> ways;
  for (const Way& way : Ways()) {
    // Chunks of 1 and plain kernels on a real model take minutes: their turn is with fewer
    // requests.
    if (way.chunk != 1 && std::string(way.isa) != "scalar") ways.push_back(way);
  }
  ExpectSameAnswers(model, MakeRequests(32, 40000, 40), ways);
  ExpectSameAnswers(model, MakeRequests(3, 40000, 4),
                    {{.name = "chunks of 1", .chunk = 1}, {.name = "scalar", .isa = "scalar"}});
}

INSTANTIATE_TEST_SUITE_P(Formats, AnswerSameFull,
                         testing::Values("SmolLM2-135M-Instruct.Q4_1.gguf",
                                         "SmolLM2-135M-Instruct.Q8_0.gguf",
                                         "SmolLM2-135M-Instruct.BF16.gguf",
                                         "gemma-3-270m-q4_k_m.gguf"));

}  // namespace
}  // namespace cleave

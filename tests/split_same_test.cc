// answer.same over splits: tokens and log-probabilities of a request are equal (==) on one rank and
// on every cut of the model, alone or in a batch, chunked, cached or preempted. Ranks are threads
// here (thread_replica.h); tests of whole processes are the cluster cases.

#include <gtest/gtest.h>

#include <filesystem>

#include "answer_harness.h"
#include "thread_replica.h"

namespace cleave {
namespace {

ExecutorMaker MakerOf(const Split& split) {
  return [split](const std::string& model, const ModelPlan& plan) {
    return MakeThreadReplica(model, plan, split);
  };
}

void ExpectSameOverSplits(const std::string& model, const Requests& requests,
                          const std::vector<Split>& splits, const std::vector<Way>& ways,
                          const char* kv_cache_dtype) {
  const Outcome plain =
      RunRequests(model, {.name = "one rank", .kv_cache_dtype = kv_cache_dtype}, requests);
  ASSERT_EQ(plain.answers.size(), requests.size());
  for (const Split& split : splits) {
    for (Way way : ways) {
      way.kv_cache_dtype = kv_cache_dtype;
      way.teams = split.teams;
      way.kv_partitions = KvPartitionsOf(split);
      const Outcome other = RunRequests(model, way, requests, MakerOf(split));
      ExpectEqualAnswers(plain, other, model + ", " + split.ToString() + ", " + way.name);
      if (testing::Test::HasFailure()) return;
    }
  }
}

const std::vector<Way> kWays{
    {.name = "batch", .threads = 1},
    {.name = "chunks of 7, preempted, cached",
     .threads = 2,
     .chunk = 7,
     .batched_tokens = 48,
     .prefix_caching = true,
     .blocks_share = 30},
};

struct Case {
  const char* model;
  std::vector<Split> splits;
  const char* kv_cache_dtype = "auto";
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " " << c.kv_cache_dtype; }

class SplitSame : public testing::TestWithParam<Case> {};

TEST_P(SplitSame, TinyModel) {
  const std::string model = std::string(CLEAVE_TINY) + "/" + GetParam().model;
  ExpectSameOverSplits(model, MakeRequests(10, 300, 24), GetParam().splits, kWays,
                       GetParam().kv_cache_dtype);
}

INSTANTIATE_TEST_SUITE_P(
    Families, SplitSame,
    testing::Values(Case{"llama2", {{.tp = 2}, {.pp = 2}}}, Case{"llama2.gguf", {{.tp = 2}}},
                    Case{"llama3.gguf", {{.pp = 2, .tp = 2}}},
                    Case{"llama_head80.gguf", {{.tp = 2}}}, Case{"mistral", {{.tp = 2}}},
                    Case{"qwen2.gguf", {{.pp = 2, .tp = 2}}}, Case{"qwen3", {{.tp = 2}}},
                    Case{"gemma3", {{.pp = 2, .tp = 2}}}, Case{"gemma3.gguf", {{.tp = 2}}},
                    Case{"mixtral", {{.tp = 2}, {.pp = 2, .tp = 2}, {.pp = 3}, {.tp = 2, .ep = 2}}},
                    Case{"qwen3_moe.gguf",
                         {{.tp = 2},
                          {.tp = 3},
                          {.pp = 2},
                          {.tp = 2, .ep = 2},
                          {.tp = 3, .ep = 3},
                          {.tp = 4, .ep = 4},
                          {.tp = 4, .ep = 2}}},
                    Case{"qwen3_moe_fused", {{.tp = 2, .ep = 2}, {.pp = 2, .tp = 4, .ep = 4}}},
                    Case{"qwen3_moe_bf16", {{.tp = 3}, {.tp = 3, .ep = 3}}},
                    Case{"mixtral_q8.gguf",
                         {{.tp = 2},
                          {.tp = 3},
                          {.tp = 2, .ep = 2},
                          {.tp = 4, .ep = 4},
                          {.tp = 3, .ep = 3, .tp_shares = {2, 1, 1}}}}));

INSTANTIATE_TEST_SUITE_P(
    Int8Kv, SplitSame,
    testing::Values(Case{"llama3.gguf", {{.tp = 2}, {.pp = 2, .tp = 2}}, "int8"},
                    Case{"llama_head80.gguf", {{.tp = 3}}, "int8"},
                    Case{"mixtral_q8.gguf", {{.teams = 2, .ep = 2}}, "int8"}));

// The first experts are said to be the hottest.
Split WithCopies(Split split, uint32_t copies, uint32_t experts) {
  split.redundant_experts = copies;
  for (uint32_t e = 0; e < experts; ++e) split.expert_loads.push_back(1000 >> (2 * e));
  return split;
}

INSTANTIATE_TEST_SUITE_P(Copies, SplitSame,
                         testing::Values(Case{"mixtral",
                                              {WithCopies({.tp = 2, .ep = 2}, 1, 5),
                                               WithCopies({.tp = 2, .ep = 2}, 5, 5),
                                               WithCopies({.tp = 4, .ep = 2}, 2, 5)}},
                                         Case{"qwen3_moe.gguf",
                                              {WithCopies({.tp = 3, .ep = 3}, 0, 10),
                                               WithCopies({.tp = 3, .ep = 3}, 3, 10),
                                               WithCopies({.pp = 2, .tp = 4, .ep = 4}, 2, 10)}},
                                         Case{"qwen3_moe_bf16",
                                              {WithCopies({.tp = 2, .ep = 2}, 2, 7)}},
                                         Case{"mixtral_q8.gguf",
                                              {{.tp = 3, .ep = 3, .redundant_experts = 3},
                                               WithCopies({.tp = 2, .ep = 4, .cp = 2}, 3, 10)}}));

// Requests are shared out over teams, whose ranks hold the experts together.
INSTANTIATE_TEST_SUITE_P(Teams, SplitSame,
                         testing::Values(Case{"mixtral",
                                              {{.teams = 2, .ep = 2},
                                               {.pp = 2, .teams = 2, .tp = 2, .ep = 4},
                                               {.teams = 5, .ep = 5}}},
                                         Case{"mixtral_q8.gguf",
                                              {{.teams = 2, .ep = 2},
                                               {.teams = 2, .tp = 2, .ep = 4},
                                               {.teams = 2, .tp = 2, .ep = 2},
                                               {.teams = 3, .tp = 2, .ep = 3, .tp_shares = {2, 1}},
                                               {.pp = 3, .teams = 2, .ep = 2},
                                               {.teams = 2, .ep = 4, .cp = 2}}},
                                         Case{"qwen3_moe.gguf",
                                              {{.pp = 2, .teams = 2, .ep = 2},
                                               {.teams = 2, .tp = 3, .ep = 3},
                                               WithCopies({.teams = 2, .tp = 2, .ep = 4}, 3, 10)}},
                                         Case{"qwen3_moe_bf16",
                                              {{.teams = 2, .ep = 2},
                                               WithCopies({.teams = 3, .ep = 3}, 2, 7)}}));

// Sequences of several runs of 512 on every rank that shares them.
struct LongCase {
  const char* model;
  Split split;
  const char* kv_cache_dtype = "auto";
};

void PrintTo(const LongCase& c, std::ostream* out) {
  *out << c.model << " " << c.split.ToString() << " " << c.kv_cache_dtype;
}

class ContextSame : public testing::TestWithParam<LongCase> {};

const std::vector<Way> kLongWays{
    {.name = "batch", .threads = 1},
    {.name = "chunks of 100, preempted, cached",
     .threads = 2,
     .chunk = 100,
     .batched_tokens = 160,
     .prefix_caching = true,
     .blocks_share = 40},
};

TEST_P(ContextSame, TinyModel) {
  const LongCase& c = GetParam();
  Requests requests = MakeRequests(7, 300, 12);
  Lengthen(2, 3 * KvPartitionsOf(c.split) * kRunPositions, 300, &requests);
  // Its log-probabilities of a long prompt would be most of the time.
  for (SequenceSpec& s : requests) {
    if (s.prompt.size() > 1000) s.sampling.prompt_logprobs = -1;
  }
  ExpectSameOverSplits(std::string(CLEAVE_TINY) + "/" + c.model, requests, {c.split}, kLongWays,
                       c.kv_cache_dtype);
}

// Long sequences take minutes under ThreadSanitizer, and every cut has the same threads: two are
// enough.
std::vector<LongCase> LongCases() {
  std::vector<LongCase> cases = {{"llama2", {.cp = 2}}, {"llama3.gguf", {.tp = 2, .dcp = 2}}};
  if (kSanitizer == Sanitizer::kThread) return cases;
  cases.insert(cases.end(), {{"qwen2.gguf", {.pp = 2, .tp = 2, .cp = 2}},
                             {"mistral", {.cp = 3}},
                             {"gemma3", {.tp = 2, .cp = 2}},
                             {"qwen3", {.tp = 2, .cp = 2, .dcp = 2}},
                             {"mixtral_q8.gguf", {.tp = 2, .ep = 4, .cp = 2}},
                             {"mixtral", {.tp = 2, .ep = 2, .dcp = 2}},
                             {"mixtral_q8.gguf", {.teams = 2, .ep = 4, .cp = 2}},
                             {"qwen3_moe.gguf", {.teams = 2, .tp = 2, .ep = 2, .dcp = 2}},
                             {"qwen3_moe.gguf", {.tp = 2, .cp = 2}},
                             {"llama3.gguf", {.cp = 2}, "int8"},
                             {"qwen2.gguf", {.tp = 2, .cp = 2, .dcp = 2}, "int8"},
                             {"gemma3", {.tp = 2, .dcp = 2}, "int8"}});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cuts, ContextSame, testing::ValuesIn(LongCases()));

}  // namespace
}  // namespace cleave

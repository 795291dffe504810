// answer.same on one rank: tokens and log-probabilities of a request are equal (==) alone or in a
// batch, chunked or whole, cold or cached, preempted or not, with one or two threads, and on every
// instruction set. Tiny checkpoints of every family in the quick tier, the demo models in the full.

#include <gtest/gtest.h>

#include <filesystem>

#include "answer_harness.h"

namespace cleave {
namespace {

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

// ThreadSanitizer looks at who touches what, which an instruction set or a family's arithmetic does
// not decide: one dense model and one with experts run every way there.
std::vector<Way> WaysOf(const std::string& model) {
  std::vector<Way> ways = Ways();
  if (kSanitizer != Sanitizer::kThread) return ways;
  if (model == "llama3.gguf" || model == "mixtral_q8.gguf") return ways;
  std::erase_if(ways, [](const Way& w) { return w.max_num_seqs > 1 && w.blocks_share == 100; });
  return ways;
}

void ExpectSameAnswers(const std::string& model, const Requests& requests,
                       const std::vector<Way>& ways, const char* kv_cache_dtype = "auto") {
  const Outcome plain =
      RunRequests(model, {.name = "plain", .kv_cache_dtype = kv_cache_dtype}, requests);
  ASSERT_EQ(plain.answers.size(), requests.size());
  for (Way way : ways) {
    way.kv_cache_dtype = kv_cache_dtype;
    const Isa wanted = std::string(way.isa) == "avx2" ? Isa::kAvx2 : Isa::kScalar;
    if (!CpuSupports(wanted)) continue;
    const Outcome other = RunRequests(model, way, requests);
    ExpectEqualAnswers(plain, other, model + ", " + way.name);
    if (way.rounds > 1) {
      EXPECT_GT(other.stats.prefix_hits, 0U) << way.name;
    }
    if (way.blocks_share < 100) {
      EXPECT_GT(other.stats.preemptions, 0U) << way.name;
    }
  }
}

constexpr const char* kTinyModels[] = {
    "llama2",         "llama2.gguf",     "llama3.gguf",    "llama_head80.gguf",
    "mistral",        "qwen2.gguf",      "qwen3",          "gemma3",
    "gemma3.gguf",    "mixtral",         "mixtral.gguf",   "qwen3_moe",
    "qwen3_moe.gguf", "qwen3_moe_fused", "qwen3_moe_bf16", "mixtral_q8.gguf"};

Requests TinyRequests() { return MakeRequests(PerBuild(16, 12), 300, PerBuild(40, 24)); }

class AnswerSame : public testing::TestWithParam<const char*> {};

TEST_P(AnswerSame, TinyModel) {
  ExpectSameAnswers(std::string(CLEAVE_TINY) + "/" + GetParam(), TinyRequests(),
                    WaysOf(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Families, AnswerSame, testing::ValuesIn(kTinyModels));

// Plain, quantised, with windows, with experts; heads of 16, 32 and 80.
class AnswerSameInt8Kv : public testing::TestWithParam<const char*> {};

TEST_P(AnswerSameInt8Kv, TinyModel) {
  const std::string model = std::string(CLEAVE_TINY) + "/" + GetParam();
  const Requests requests = TinyRequests();
  ExpectSameAnswers(model, requests, WaysOf(GetParam()), "int8");
  const Outcome int8 = RunRequests(model, {.name = "int8", .kv_cache_dtype = "int8"}, requests);
  EXPECT_NE(int8.answers, RunRequests(model, {.name = "auto"}, requests).answers);
}

INSTANTIATE_TEST_SUITE_P(Families, AnswerSameInt8Kv,
                         testing::Values("llama2", "llama3.gguf", "llama_head80.gguf", "gemma3",
                                         "qwen3_moe.gguf"));

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

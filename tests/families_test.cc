// Every family on tiny seeded checkpoints against transformers in fp32, from a Hugging Face folder
// and from a GGUF. Checkpoints are made by the fixture `tiny` (tools/oracle), logits are committed
// in tests/data/logits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/greedy_batch.h"
#include "engine/measured_costs.h"
#include "engine/open_model.h"

namespace cleave {
namespace {

using nlohmann::json;

// Of the spread of a row's logits; fp32 itself differs by 3e-6 here.
constexpr double kTolerance = 1e-4;

struct Case {
  const char* model;
  const char* suffix;  // "" a folder, ".gguf" a file
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.model << c.suffix; }

json Reference(const std::string& model) {
  std::ifstream file(std::string(CLEAVE_SOURCE_DIR) + "/tests/data/logits/" + model + ".json");
  return json::parse(file);
}

std::unique_ptr<InlineExecutor> Open(const Case& c) {
  const std::string path = std::string(CLEAVE_TINY) + "/" + c.model + c.suffix;
  auto checkpoint = OpenCheckpoint(path);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.status().ToString();
    return nullptr;
  }
  ModelSettings settings;
  settings.kv_cache_dtype = "f32";
  settings.max_model_len = 256;
  settings.kv_cache_memory_bytes = 64U << 20U;
  settings.threads = 2;
  auto plan = PlanModel(**checkpoint, settings);
  if (!plan.ok()) {
    ADD_FAILURE() << plan.status().ToString();
    return nullptr;
  }
  auto executor = LoadModel(std::move(*checkpoint), *plan, nullptr);
  if (!executor.ok()) {
    ADD_FAILURE() << executor.status().ToString();
    return nullptr;
  }
  return std::move(*executor);
}

// Largest difference of a row, as a share of the reference's spread.
double Difference(const std::vector<float>& logits, const std::vector<double>& expected) {
  const auto [low, high] = std::minmax_element(expected.begin(), expected.end());
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(static_cast<double>(logits[i]) - expected[i]);
    if (!(difference <= worst)) worst = difference;  // a NaN is the worst
  }
  return worst / (*high - *low);
}

class Families : public testing::TestWithParam<Case> {};

TEST_P(Families, LogitsOfPromptsAreTransformers) {
  auto executor = Open(GetParam());
  ASSERT_NE(executor, nullptr);
  const json reference = Reference(GetParam().model);
  double worst = 0;
  for (const json& prompt : reference["prompts"]) {
    auto logits = PromptLogits(executor.get(), prompt["ids"], 16);
    ASSERT_TRUE(logits.ok()) << logits.status().ToString();
    for (size_t i = 0; i < prompt["positions"].size(); ++i) {
      const size_t position = prompt["positions"][i];
      ASSERT_EQ((*logits)[position].size(), reference["vocab"].get<size_t>());
      const double difference = Difference((*logits)[position], prompt["logits"][i]);
      EXPECT_LT(difference, kTolerance)
          << "prompt of " << prompt["ids"].size() << ", position " << position;
      worst = std::max(worst, difference);
    }
  }
  RecordProperty("largest_difference", std::to_string(worst));
  printf("largest difference %.2e of the spread\n", worst);
}

TEST_P(Families, GreedyTokensAreTransformers) {
  auto executor = Open(GetParam());
  ASSERT_NE(executor, nullptr);
  const json reference = Reference(GetParam().model);
  std::vector<std::vector<int32_t>> prompts;
  for (const json& prompt : reference["prompts"]) prompts.push_back(prompt["ids"]);
  auto answers = GreedyBatch(executor.get(), prompts, {.steps = 64});
  ASSERT_TRUE(answers.ok()) << answers.status().ToString();
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ((*answers)[i].tokens, reference["prompts"][i]["greedy"].get<std::vector<int32_t>>());
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, Families,
                         testing::Values(Case{"llama2", ""}, Case{"llama3", ""},
                                         Case{"llama_linear", ""}, Case{"llama_head80", ""},
                                         Case{"mistral", ""}, Case{"qwen2", ""}, Case{"qwen3", ""},
                                         Case{"gemma3", ""}, Case{"gemma3_linear", ""},
                                         Case{"mixtral", ""}, Case{"qwen3_moe", ""},
                                         Case{"qwen3_moe_fused", ""}));
INSTANTIATE_TEST_SUITE_P(Gguf, Families,
                         testing::Values(Case{"llama2", ".gguf"}, Case{"llama3", ".gguf"},
                                         Case{"llama_linear", ".gguf"},
                                         Case{"llama_head80", ".gguf"}, Case{"qwen2", ".gguf"},
                                         Case{"qwen3", ".gguf"}, Case{"gemma3", ".gguf"},
                                         Case{"mixtral", ".gguf"}, Case{"qwen3_moe", ".gguf"}));

// Stages are balanced by what was measured: all layers alike, the head within reason.
TEST(MeasuredCosts, AreThoseOfEveryLayerAndTheHead) {
  for (const char* model : {"llama3", "gemma3.gguf", "mixtral_q8.gguf"}) {
    auto checkpoint = OpenCheckpoint(std::string(CLEAVE_TINY) + "/" + model);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    ModelSettings settings;
    settings.max_model_len = 64;
    settings.kv_cache_memory_bytes = 8U << 20U;
    const auto plan = PlanModel(**checkpoint, settings);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const LayerCosts by_work = CostsByWork(plan->layout.shape);
    const auto costs = MeasureCosts(std::move(*checkpoint), *plan);
    ASSERT_TRUE(costs.ok()) << costs.status().ToString();
    ASSERT_EQ(costs->layers.size(), by_work.layers.size());
    EXPECT_GT(costs->layers.front(), 0);
    EXPECT_EQ(costs->layers.front(), costs->layers.back());
    const double surprise =
        costs->head / costs->layers.front() / (by_work.head / by_work.layers.front());
    EXPECT_GT(surprise, 0.33);
    EXPECT_LT(surprise, 3.01);
  }
}

}  // namespace
}  // namespace cleave

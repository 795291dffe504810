#include "plan/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "plan/weight_format.h"

namespace cleave {
namespace {

using testing::HasSubstr;

// Billions of parameters as counted by the catalogue's source, 0 where it does not count them
// (linear attention), and bytes of bf16 KV a token.
struct Counted {
  const char* model;
  double total_b;
  double active_b;
  double kv_bytes;
};
constexpr Counted kCounted[] = {
    {"Llama-3.1-8B", 8.03, 8.03, 131072},
    {"Llama-3.1-70B", 70.55, 70.55, 327680},
    {"Llama-3.1-405B", 405.85, 405.85, 516096},
    {"Llama-3.2-1B", 1.24, 1.24, 32768},
    {"Llama-3.2-3B", 3.21, 3.21, 114688},
    {"Llama-2-7B", 6.74, 6.74, 524288},
    {"Llama-2-13B", 13.02, 13.02, 819200},
    {"Llama-2-70B", 68.98, 68.98, 327680},
    {"Mistral-7B-v0.3", 7.25, 7.25, 131072},
    {"Mistral-Small-24B", 23.57, 23.57, 163840},
    {"Mistral-Large-2407", 122.61, 122.61, 360448},
    {"Qwen2.5-7B", 7.62, 7.62, 57344},
    {"Qwen2.5-14B", 14.77, 14.77, 196608},
    {"Qwen2.5-32B", 32.76, 32.76, 262144},
    {"Qwen2.5-72B", 72.7, 72.7, 327680},
    {"Qwen3-0.6B", 0.6, 0.6, 114688},
    {"Qwen3-1.7B", 1.72, 1.72, 114688},
    {"Qwen3-4B", 4.02, 4.02, 147456},
    {"Qwen3-8B", 8.19, 8.19, 147456},
    {"Qwen3-14B", 14.77, 14.77, 163840},
    {"Qwen3-32B", 32.76, 32.76, 262144},
    {"Gemma-2-9B", 9.24, 9.24, 344064},
    {"Gemma-2-27B", 27.23, 27.23, 376832},
    {"Gemma-3-12B", 11.77, 11.77, 393216},
    {"Gemma-3-27B", 27.01, 27.01, 507904},
    {"Phi-4", 14.66, 14.66, 204800},
    {"Mixtral-8x7B", 46.7, 12.88, 131072},
    {"Mixtral-8x22B", 140.62, 39.15, 229376},
    {"Qwen3-30B-A3B", 30.53, 3.35, 98304},
    {"Qwen3-235B-A22B", 235.09, 22.19, 192512},
    {"Qwen3-Coder-480B-A35B", 480.15, 35.47, 253952},
    {"Qwen3-Next-80B-A3B", 0, 0, 24576},
    {"Qwen3.5-27B", 0, 0, 65536},
    {"Qwen3.5-35B-A3B", 0, 0, 20480},
    {"Qwen3.5-122B-A10B", 0, 0, 24576},
    {"Qwen3.5-397B-A17B", 0, 0, 30720},
    {"gpt-oss-20b", 20.91, 4.19, 49152},
    {"gpt-oss-120b", 116.79, 5.71, 73728},
    {"DeepSeek-V2-Lite", 15.82, 2.77, 31104},
    {"DeepSeek-V3", 671.03, 37.55, 70272},
    {"DeepSeek-V3.2", 671.03, 37.55, 70272},
    {"Kimi-K2", 1026.41, 32.86, 70272},
    {"GLM-4.5", 352.8, 33.63, 376832},
    {"GLM-4.5-Air", 106.85, 13.42, 188416},
    {"GLM-5", 743.18, 41.05, 89856},
    {"MiniMax-M2.5", 228.69, 11.03, 253952},
    {"Llama-4-Scout", 107.77, 17.17, 196608},
    {"Llama-4-Maverick", 400.71, 17.18, 196608},
};

Catalogue BuiltIn() {
  auto catalogue = BuiltInCatalogue();
  EXPECT_TRUE(catalogue.ok()) << catalogue.status().message();
  return catalogue.ok() ? *catalogue : Catalogue();
}

std::string Refusal(const std::string& yaml) {
  Catalogue catalogue;
  const Status status = catalogue.Add(yaml, "mine.yaml");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << yaml;
  return status.message();
}

TEST(Catalogue, CountsParametersToTheLastDigit) {
  const Catalogue catalogue = BuiltIn();
  int counted = 0;
  for (const Counted& each : kCounted) {
    const auto model = catalogue.FindModel(each.model);
    ASSERT_TRUE(model.ok()) << model.status().message();
    if (each.total_b == 0) continue;
    ++counted;
    EXPECT_EQ(InBillions((*model)->TotalParameters()), each.total_b) << each.model;
    EXPECT_EQ(InBillions((*model)->ActiveParameters()), each.active_b) << each.model;
  }
  EXPECT_EQ(counted, 43);
  EXPECT_EQ(catalogue.models().size(), std::size(kCounted));
}

TEST(Catalogue, KvBytesOfATokenAreExact) {
  const Catalogue catalogue = BuiltIn();
  for (const Counted& each : kCounted) {
    const auto model = catalogue.FindModel(each.model);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(KvBytesPerToken(**model, 2), each.kv_bytes) << each.model;
  }
}

// What the maker says of a hybrid, whose linear layers have more parts than a table of sizes.
TEST(Catalogue, HybridsCountWithinOneAndAHalfPerCent) {
  const Catalogue catalogue = BuiltIn();
  const auto near = [&](const char* name, double billions) {
    const ModelFacts* model = *catalogue.FindModel(name);
    EXPECT_NEAR(InBillions(model->TotalParameters()), billions, 0.015 * billions) << name;
  };
  near("Qwen3-Next-80B-A3B", 80);
  near("Qwen3.5-27B", 27);
  near("Qwen3.5-35B-A3B", 35);
  near("Qwen3.5-122B-A10B", 122);
  near("Qwen3.5-397B-A17B", 397);
}

TEST(Catalogue, SequencesByWindowIndexerAndState) {
  const Catalogue catalogue = BuiltIn();
  // 2.5 GiB for 8K of a 70B.
  EXPECT_EQ(SequenceBytes(**catalogue.FindModel("Llama-3.1-70B"), 2, 8192), 2.5 * 1073741824);
  // A server that runs GLM-5 reports 29.32 GiB for 314304 tokens.
  const double glm = SequenceBytes(**catalogue.FindModel("GLM-5"), 2, 314304);
  EXPECT_EQ(glm, 314304.0 * 100152);
  EXPECT_NEAR(glm / 1073741824, 29.32, 0.005);
  // Gemma 3 27B: 10 of 62 layers see all, 52 the last 1024.
  const double layer = 2.0 * 16 * 128 * 2;
  EXPECT_EQ(SequenceBytes(**catalogue.FindModel("gemma-3-27b"), 2, 10000),
            layer * (10 * 10000 + 52 * 1024));
  EXPECT_EQ(SequenceBytes(**catalogue.FindModel("gemma-3-27b"), 2, 1000), layer * 62 * 1000);
  // A hybrid's states are there from the first token on.
  const ModelFacts& next = **catalogue.FindModel("Qwen3-Next-80B-A3B");
  const double state = 32.0 * 128 * 128 * 4 + (2 * 2048 + 4096) * 3 * 2;
  EXPECT_EQ(SequenceBytes(next, 2, 0), 36 * state);
  EXPECT_EQ(SequenceBytes(next, 2, 100), 36 * state + 100.0 * 24576);
}

TEST(Catalogue, LayersOfExpertsStandWhereTheModelHasThem) {
  const Catalogue catalogue = BuiltIn();
  const auto dense = [&](const char* name) {
    const ModelFacts* model = *catalogue.FindModel(name);
    int count = 0;
    for (const LayerFacts& layer : model->layers) count += layer.experts ? 0 : 1;
    return count;
  };
  EXPECT_EQ(dense("DeepSeek-V3"), 3);
  EXPECT_EQ(dense("Llama-4-Maverick"), 24);
  EXPECT_EQ(dense("Mixtral-8x7B"), 0);
  EXPECT_EQ(dense("Llama-3.1-8B"), 32);
}

TEST(Catalogue, NamesInAnyWritingAndTheNearestOnes) {
  const Catalogue catalogue = BuiltIn();
  EXPECT_EQ((*catalogue.FindModel("llama 3.3 70b"))->name, "Llama-3.1-70B");
  EXPECT_EQ((*catalogue.FindDevice("rtx_5090"))->memory_bytes(), 32607ULL << 20U);
  EXPECT_EQ((*catalogue.FindDevice("H100"))->name, "H100 SXM");
  const auto model = catalogue.FindModel("Lama-3.1-70B");
  EXPECT_EQ(model.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(model.status().message(), HasSubstr("Llama-3.1-70B"));
  EXPECT_THAT(catalogue.FindDevice("5090 RTX").status().message(), HasSubstr("--catalogue"));
  EXPECT_THAT(catalogue.FindDevice("H10").status().message(), HasSubstr("H100"));
  EXPECT_FALSE(catalogue.FindModel(std::string(1 << 20, 'x')).ok());
  EXPECT_FALSE(catalogue.FindModel("").ok());
}

TEST(Catalogue, EveryEntrySaysWhereItIsFrom) {
  const Catalogue catalogue = BuiltIn();
  EXPECT_EQ(catalogue.devices().size(), 44U);
  for (const DeviceFacts& device : catalogue.devices()) {
    EXPECT_FALSE(device.source.empty()) << device.name;
    EXPECT_GT(device.bandwidth_gb_s, 0) << device.name;
    EXPECT_TRUE(device.is_cpu || device.memory_bytes() > 0) << device.name;
  }
  for (const ModelFacts& model : catalogue.models()) {
    EXPECT_FALSE(model.source.empty()) << model.name;
    EXPECT_TRUE(FindWeightFormat(model.stored_format).ok()) << model.name;
  }
}

TEST(Catalogue, AUsersFileAddsAndReplaces) {
  Catalogue catalogue = BuiltIn();
  const Status added = catalogue.Add(R"(
devices:
  - {name: My Card, memory_gb: 16, bandwidth_gb_s: 500, source: mine}
  - {name: rtx 5090, memory_mib: 1000, source: mine}
models:
  - {name: Tiny, layers: 2, hidden: 64, heads: 4, kv_heads: 2, head_dim: 16, ffn: 128, vocab: 100,
     context: 512}
)",
                                     "mine.yaml");
  ASSERT_TRUE(added.ok()) << added.message();
  EXPECT_EQ((*catalogue.FindDevice("my card"))->memory_bytes(), 16'000'000'000U);
  EXPECT_EQ((*catalogue.FindDevice("RTX 5090"))->memory_bytes(), 1000U << 20U);
  EXPECT_EQ(catalogue.devices().size(), 45U);
  EXPECT_EQ((*catalogue.FindModel("tiny"))->TotalParameters(),
            2U * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128) + 2U * 6400);
}

TEST(Catalogue, RefusesWithThePlaceAndTheField) {
  EXPECT_THAT(Refusal("devices: [{name: A, memori_gb: 1}]"),
              HasSubstr("mine.yaml:1:21: device A: field 'memori_gb' is not known; did you mean "
                        "memory_gb?"));
  EXPECT_THAT(Refusal("devices: [{name: A, memory_gb: -1}]"), HasSubstr("memory_gb must be"));
  EXPECT_THAT(Refusal("devices: [{name: A, memory_gb: .nan}]"), HasSubstr("memory_gb must be"));
  EXPECT_THAT(Refusal("devices: [{name: A, memory_gb: nan}]"), HasSubstr("memory_gb must be"));
  EXPECT_THAT(Refusal("devices: [{name: A, memory_gb: 1e300}]"), HasSubstr("memory_gb must be"));
  EXPECT_THAT(Refusal("devices: [{memory_gb: 1}]"), HasSubstr("name must have"));
  EXPECT_THAT(Refusal("devices: [3]"), HasSubstr("expected a mapping"));
  EXPECT_THAT(Refusal("devices: 3"), HasSubstr("expected lists"));
  EXPECT_THAT(Refusal("machines: []"), HasSubstr("devices and models"));
  EXPECT_THAT(Refusal("- a"), HasSubstr("expected a mapping"));
  EXPECT_THAT(Refusal("a: [b"), HasSubstr("mine.yaml:"));
  EXPECT_THAT(Refusal("models: [{name: A, layers: 99999999}]"), HasSubstr("layers is"));
  EXPECT_THAT(Refusal("models: [{name: A, layers: 0}]"), HasSubstr("layers is 0"));
  EXPECT_THAT(Refusal("models: [{name: A, layers: 2, hidden: 0}]"), HasSubstr("hidden is 0"));
  EXPECT_THAT(Refusal("models: [{name: A, layers: 2, hidden: 64, heads: 7, kv_heads: 3, ffn: 1, "
                      "vocab: 1, context: 1}]"),
              HasSubstr("must divide the 7 heads"));
  EXPECT_THAT(Refusal("models: [{name: A, stored: fp9}]"), HasSubstr("did you mean fp8?"));
  EXPECT_THAT(Refusal("models: [{name: A, layers: 2, hidden: 64, heads: 4, vocab: 1, context: 1, "
                      "ffn: 8, mla: {kv_rank: 5, rope: 4294967295, nope: 4294967295, value: 1}}]"),
              HasSubstr("is "));
}

TEST(Catalogue, RefusesTextThatIsDeepOrLong) {
  EXPECT_FALSE(Refusal(std::string(100'000, '[')).empty());
  EXPECT_FALSE(Refusal("devices: " + std::string(100'000, '{')).empty());
  EXPECT_THAT(Refusal(std::string(Catalogue::kMaxBytes + 1, ' ')), HasSubstr("at most"));
  EXPECT_FALSE(Refusal("").empty());
  EXPECT_FALSE(Refusal(std::string("devices: [{name: ") + '\0' + "}]").empty());
}

TEST(Cluster, CountsAndNames) {
  const Catalogue catalogue = BuiltIn();
  const auto four = ParseCluster(catalogue, "4x\"RTX 5090\"", 2);
  ASSERT_TRUE(four.ok()) << four.status().message();
  EXPECT_EQ(four->devices(), 8U);
  EXPECT_EQ(four->device.name, "RTX 5090");
  EXPECT_EQ(ParseCluster(catalogue, "L40S", 1)->devices(), 1U);
  EXPECT_EQ(ParseCluster(catalogue, "8xh200", 1)->devices(), 8U);
  EXPECT_EQ(ParseCluster(catalogue, "4x96GB", 1)->device.memory_bytes(), 96'000'000'000U);
  EXPECT_EQ(ParseCluster(catalogue, "1000000xL4", 1)->devices(), 1'000'000U);
}

TEST(Cluster, RefusesWhatIsNone) {
  const Catalogue catalogue = BuiltIn();
  for (const char* text :
       {"0xL4", "-1xL4", "1.5xL4", "nanxL4", "infxL4", "99999999999999999999xL4", "2000000xL4",
        "4x", "", "x", "4x\"\"", "4xL41", "1e3xL4", "4x-96GB", "4x0GB", "4xnanGB", "4x1e300GB"}) {
    const auto cluster = ParseCluster(catalogue, text, 1);
    EXPECT_FALSE(cluster.ok()) << text;
    EXPECT_FALSE(cluster.status().message().empty()) << text;
  }
  EXPECT_THAT(ParseCluster(catalogue, "0xL4", 1).status().message(), HasSubstr("between 1 and"));
  EXPECT_THAT(ParseCluster(catalogue, "4xL41", 1).status().message(), HasSubstr("L4"));
  EXPECT_FALSE(ParseCluster(catalogue, "4xL4", 0).ok());
  EXPECT_FALSE(ParseCluster(catalogue, "4xL4", INT64_MAX).ok());
  EXPECT_FALSE(ParseCluster(catalogue, "1000000xL4", 1000).ok());
}

TEST(WeightFormats, BitsCountTheirScales) {
  EXPECT_NEAR(FindWeightFormat("FP8")->linear_bits, 8.002, 0.0005);
  EXPECT_EQ(FindWeightFormat("nvfp4")->linear_bits, 4.5);
  EXPECT_EQ(FindWeightFormat("mxfp4")->linear_bits, 4.25);
  EXPECT_NEAR(FindWeightFormat("awq")->linear_bits, 4.16, 0.005);
  EXPECT_EQ(FindWeightFormat("q8_0")->embedding_bits, 8.5);
  EXPECT_THAT(FindWeightFormat("fp7").status().message(), HasSubstr("did you mean fp8?"));
  EXPECT_EQ(*KvElementBytes("fp8"), 1);
  EXPECT_THAT(KvElementBytes("fp3").status().message(), HasSubstr("known are auto, bf16"));
}

}  // namespace
}  // namespace cleave

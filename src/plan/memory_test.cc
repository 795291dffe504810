#include "plan/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "plan/catalogue.h"
#include "split/layout.h"
#include "split/traffic.h"

namespace cleave {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr double kGib = 1073741824.0;

const Catalogue& BuiltIn() {
  static const Catalogue catalogue = *BuiltInCatalogue();
  return catalogue;
}
const ModelFacts& Model(const char* name) { return **BuiltIn().FindModel(name); }
const DeviceFacts& Device(const char* name) { return **BuiltIn().FindDevice(name); }
ClusterFacts Cluster(const char* text, int64_t nodes = 1) {
  return *ParseCluster(BuiltIn(), text, nodes);
}

MemorySettings Settings(const char* format) {
  MemorySettings settings;
  settings.weights = *FindWeightFormat(format);
  return settings;
}

// The published rows' assumptions: 90 % of the memory; graphs 1.0, context 0.5, NCCL 0.4 GiB; no
// logits, no margin; a byte for each parameter, or the size of the file.
MemorySettings RowSettings(const char* format) {
  MemorySettings settings = Settings(format);
  settings.utilization = 0.9;
  settings.max_num_seqs = 1;
  settings.graph_bytes = static_cast<uint64_t>(kGib);
  settings.context_bytes = static_cast<uint64_t>(0.5 * kGib);
  settings.collective_bytes = static_cast<uint64_t>(0.4 * kGib);
  settings.margin_bytes = 0;
  return settings;
}

MemoryAccount Account(const char* model, const char* device, const Split& split,
                      const MemorySettings& settings, const RequestShape& request = {}) {
  const auto account = AccountOf(Model(model), Device(device), split, settings, request);
  EXPECT_TRUE(account.ok()) << account.status().message();
  return account.ok() ? *account : MemoryAccount();
}

std::string Refusal(const char* model, const Split& split, const char* format = "bf16",
                    Dialect dialect = Dialect::kVllm) {
  MemorySettings settings = Settings(format);
  settings.dialect = dialect;
  const auto account = AccountOf(Model(model), Device("H200"), split, settings, {});
  EXPECT_FALSE(account.ok()) << split.ToString();
  return account.ok() ? "" : account.status().message();
}

TEST(Memory, WorkedRowsOfA70BInFp8) {
  const auto row = [](uint32_t tp, double gib, double tokens, double activation_gib) {
    const MemoryAccount a =
        Account("Llama-3.1-70B", "H100 SXM", {.tp = tp}, RowSettings("fp8-all"));
    EXPECT_NEAR(static_cast<double>(a.kv_bytes) / kGib, gib, 0.01 * gib) << tp;
    EXPECT_NEAR(static_cast<double>(a.kv_tokens), tokens, 0.01 * tokens) << tp;
    EXPECT_NEAR(static_cast<double>(a.activation_bytes) / kGib, activation_gib, 0.0051) << tp;
  };
  row(2, 36.1, 236701, 0.81);
  row(4, 52.7, 691162, 0.62);
  row(8, 60.9, 1597626, 0.62);
}

TEST(Memory, WorkedRowsOfA70BInAwq) {
  MemorySettings settings = RowSettings("awq");
  settings.weight_bytes = 39'700'000'000;
  settings.max_batched_tokens = 2048;
  const auto tokens = [&](const char* device, uint32_t tp) {
    return static_cast<double>(Account("Llama-3.1-70B", device, {.tp = tp}, settings).kv_tokens);
  };
  EXPECT_NEAR(tokens("RTX 3090", 4), 135e3, 1.35e3);
  EXPECT_NEAR(tokens("RTX 4090", 2), 6.5e3, 65);
  EXPECT_NEAR(tokens("RTX PRO 6000", 1), 153e3, 1.53e3);
}

TEST(Memory, TheAccountAddsUp) {
  const MemoryAccount a = Account("Llama-3.1-70B", "H100 SXM", {.tp = 4}, Settings("fp8"));
  EXPECT_NEAR(static_cast<double>(a.budget_bytes),
              static_cast<double>(a.weight_bytes + a.runtime_bytes() + a.margin_bytes) +
                  static_cast<double>(a.kv_bytes),
              2);
  EXPECT_EQ(a.kv_bytes_per_token, 327680.0 / 4);
  EXPECT_EQ(a.kv_tokens, static_cast<uint64_t>(a.kv_bytes) / 81920 / 16 * 16);
  EXPECT_EQ(a.requests, a.kv_tokens / 4608);
  EXPECT_EQ(a.context_limit, 131072U);
}

TEST(Recipes, A70BInFp8OnFour96GB) {
  const ClusterFacts cluster = Cluster("4x96GB");
  const auto a = AccountOf(Model("Llama-3.3-70B"), cluster.device, {.tp = 4}, Settings("fp8"), {});
  ASSERT_TRUE(a.ok()) << a.status().message();
  EXPECT_TRUE(a->fits) << a->reason;
  EXPECT_NEAR(4.0 * static_cast<double>(a->kv_bytes), 250e9, 0.1 * 250e9);
}

TEST(Recipes, A405BInFp8NeedsTwiceFour96GB) {
  const char* model = "Llama-3.1-405B";
  const MemorySettings settings = Settings("fp8");
  for (const char* devices : {"4x96GB", "4xRTX PRO 6000"}) {
    for (const MemoryAccount& a : RankByMemory(Model(model), Cluster(devices), settings, {})) {
      EXPECT_FALSE(a.fits) << a.split.ToString();
      EXPECT_THAT(a.reason, HasSubstr("more than"));
    }
    const DeviceFacts device = Cluster(devices).device;
    const auto two = AccountOf(Model(model), device, {.pp = 2, .tp = 4}, settings, {});
    ASSERT_TRUE(two.ok()) << two.status().message();
    EXPECT_TRUE(two->fits) << two->reason;
    EXPECT_THAT(ChangesThatFit(Model(model), device, {.tp = 4}, settings, {}),
                Contains("pp 2 (8 devices a replica)"));
    EXPECT_FALSE(RankByMemory(Model(model), Cluster(devices, 2), settings, {}).empty());
  }
}

TEST(Recipes, FiveDevicesWith64Heads) {
  const DeviceFacts& device = Device("RTX PRO 6000");
  const ModelFacts& model = Model("Llama-3.1-70B");
  EXPECT_THAT(Refusal("Llama-3.1-70B", {.tp = 5}), HasSubstr("tp 5 does not divide the 64"));
  MemorySettings settings = Settings("fp8");
  const auto deep = AccountOf(model, device, {.pp = 5}, settings, {});
  ASSERT_TRUE(deep.ok());
  EXPECT_TRUE(deep->fits) << deep->reason;
  settings.dialect = Dialect::kCleave;
  const auto uneven = AccountOf(model, device, {.tp = 5}, settings, {});
  ASSERT_TRUE(uneven.ok()) << uneven.status().message();
  EXPECT_TRUE(uneven->fits) << uneven->reason;
  // 8 KV heads over 5 ranks: the fullest has 3 where query heads straddle them.
  EXPECT_GT(uneven->kv_bytes_per_token, 327680.0 / 5);
  EXPECT_EQ(std::fmod(uneven->kv_bytes_per_token, 327680.0 / 8), 0);
}

TEST(Recipes, BytesOfAnAllReduceAndAStep) {
  const ModelFacts& model = Model("Llama-3.1-70B");
  const ModelShape shape = *EngineShape(model);
  const Layout layout = *MakeLayout(shape, {.tp = 4}, CostsByWork(shape));
  StepCounts step;
  step.tokens = 32;
  TrafficTotals totals;
  AddTrafficOfStep(layout, 0, step, {.dialect = Dialect::kVllm}, &totals);
  const auto& reduced = totals.of(Axis::kTp, CommOp::kAllReduce);
  // Two a layer, and one for the embedding.
  EXPECT_EQ(reduced.calls, 161U);
  EXPECT_EQ(reduced.bytes / reduced.calls, 512U * 1024);
  EXPECT_EQ(160 * (reduced.bytes / reduced.calls), 80U << 20U);
}

TEST(Memory, MlaKvIsOnEveryRankButForDcp) {
  const MemorySettings settings = Settings("awq");
  const auto tokens = [&](uint32_t dcp) {
    return static_cast<double>(
        Account("Kimi-K2.5", "B200", {.tp = 8, .dcp = dcp}, settings).kv_tokens);
  };
  EXPECT_EQ(Account("Kimi-K2.5", "B200", {.tp = 8}, settings).kv_bytes_per_token, 70272);
  EXPECT_NEAR(tokens(8) / tokens(1), 8, 0.01);
}

TEST(Memory, KvHeadsAreCopiedBeyondTheirNumber) {
  const auto per_token = [](uint32_t tp) {
    return Account("Qwen3-235B-A22B", "H200", {.tp = tp, .ep = tp}, Settings("fp8"))
        .kv_bytes_per_token;
  };
  EXPECT_EQ(per_token(4), 192512.0 / 4);
  EXPECT_EQ(per_token(8), 192512.0 / 4);
}

TEST(Memory, EvenCutsWeighTheSameInBothDialects) {
  for (const Split& split : {Split{}, Split{.pp = 2, .pp_layers = {16, 16}}, Split{.tp = 4},
                             Split{.pp = 2, .tp = 8, .pp_layers = {16, 16}}}) {
    MemorySettings settings = Settings("bf16");
    const MemoryAccount vllm = Account("Llama-3.1-8B", "H200", split, settings);
    settings.dialect = Dialect::kCleave;
    const MemoryAccount cleave = Account("Llama-3.1-8B", "H200", split, settings);
    EXPECT_EQ(vllm.kv_bytes_per_token, cleave.kv_bytes_per_token) << split.ToString();
    EXPECT_NEAR(static_cast<double>(vllm.weight_bytes), static_cast<double>(cleave.weight_bytes),
                0.03 * static_cast<double>(vllm.weight_bytes))
        << split.ToString();
  }
}

TEST(Memory, ContextParallelismSharesPositionsAsTheEngineDoes) {
  MemorySettings settings = Settings("bf16");
  settings.dialect = Dialect::kCleave;
  const MemoryAccount one =
      Account("Llama-3.1-8B", "L4", {}, settings, {.prompt_tokens = 64, .output_tokens = 64});
  const MemoryAccount two = Account("Llama-3.1-8B", "L4", {.cp = 2}, settings,
                                    {.prompt_tokens = 64, .output_tokens = 64});
  EXPECT_EQ(two.kv_bytes_per_token, one.kv_bytes_per_token / 2);
  EXPECT_GT(two.context_limit, one.context_limit);
}

// vLLM pads their columns: 2880 over 8 ranks are 360, no whole blocks of 32.
TEST(Memory, ExpertsInMxfp4AreCutInAnyBlocks) {
  EXPECT_TRUE(Account("gpt-oss-120b", "H100", {.tp = 8}, Settings("mxfp4-experts")).fits);
}

TEST(Refusals, OfVllmsRules) {
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.tp = 3}), HasSubstr("does not divide the 32"));
  EXPECT_THAT(Refusal("Qwen3-Coder-480B-A35B", {.tp = 8}, "fp8"),
              HasSubstr("2560 / 8 is 320 columns of an expert, not a multiple of the 128"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.pp = 33}), HasSubstr("more than the 32 layers"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.pp = 2, .pp_layers = {16, 17}}), HasSubstr("make 32"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.pp = 2, .pp_layers = {0, 32}}), HasSubstr("make 32"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.tp = 2, .tp_shares = {3, 1}}), HasSubstr("even"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.ep = 2}), HasSubstr("without experts"));
  EXPECT_THAT(Refusal("Mixtral-8x7B", {.tp = 4, .ep = 2}), HasSubstr("ep 2 must be all 4"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.tp = 2, .cp = 2}), HasSubstr("dcp"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.tp = 4, .dcp = 2}), HasSubstr("dcp 2 must divide"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.tp = 0}), HasSubstr("between 1 and"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.dp = 0}), HasSubstr("between 1 and"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.tp = UINT32_MAX}), HasSubstr("between 1 and"));
  EXPECT_THAT(Refusal("DeepSeek-V3", {}, "fp8", Dialect::kCleave), HasSubstr("as vLLM runs it"));
  EXPECT_THAT(Refusal("Llama-3.1-8B", {.tp = 33}, "bf16", Dialect::kCleave),
              HasSubstr("at most 32"));
}

TEST(Refusals, OfNumbersThatAreNone) {
  const auto refused = [](const MemorySettings& settings, RequestShape request) {
    return !CheckSettings(settings, request).ok();
  };
  MemorySettings settings;
  EXPECT_FALSE(refused(settings, {}));
  for (const double bad : {0.0, -1.0, 1.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    settings.utilization = bad;
    EXPECT_TRUE(refused(settings, {})) << bad;
  }
  EXPECT_TRUE(refused({}, {.prompt_tokens = 0}));
  EXPECT_TRUE(refused({}, {.output_tokens = UINT64_MAX}));
  EXPECT_TRUE(refused({}, {.concurrency = 0}));
  DeviceFacts unknown;
  unknown.name = "X";
  EXPECT_THAT(AccountOf(Model("Llama-3.1-8B"), unknown, {}, {}, {}).status().message(),
              HasSubstr("memory is not known"));
}

TEST(Changes, TheSmallestThatFitsFirst) {
  // 2 x 4090 hold a 70B in 4 bits, and too few tokens for 8K.
  MemorySettings settings = RowSettings("awq");
  settings.weight_bytes = 39'700'000'000;
  const RequestShape request{.prompt_tokens = 7680, .output_tokens = 512};
  const MemoryAccount a = Account("Llama-3.1-70B", "RTX 4090", {.tp = 2}, settings, request);
  EXPECT_FALSE(a.fits);
  EXPECT_THAT(a.reason, HasSubstr("which has 8192"));
  const auto changes =
      ChangesThatFit(Model("Llama-3.1-70B"), Device("RTX 4090"), {.tp = 2}, settings, request);
  ASSERT_GE(changes.size(), 3U);
  EXPECT_EQ(changes[0], "KV as fp8");
  EXPECT_THAT(changes[1], HasSubstr("prompt and output of at most 65"));
  EXPECT_THAT(changes, Contains("tp 4 (4 devices a replica)"));
}

TEST(Changes, FewerBitsWhereWeightsAreTooMuch) {
  EXPECT_THAT(ChangesThatFit(Model("Llama-3.1-8B"), Device("RTX 4090"), {}, Settings("fp32"), {}),
              Contains("weights as fp8"));
  EXPECT_TRUE(
      ChangesThatFit(Model("Llama-3.1-8B"), Device("H100"), {}, Settings("bf16"), {}).empty());
}

TEST(Ranking, EveryModelOnEveryDeviceIsQuick) {
  const auto start = std::chrono::steady_clock::now();
  size_t fitting = 0;
  for (const ModelFacts& model : BuiltIn().models()) {
    for (const char* devices : {"5xRTX 5090", "8xH100", "7x96GB", "1000000xB200", "999983xL4"}) {
      for (const Dialect dialect : {Dialect::kVllm, Dialect::kCleave}) {
        MemorySettings settings = Settings(model.stored_format.c_str());
        settings.dialect = dialect;
        for (const MemoryAccount& a : RankByMemory(model, Cluster(devices), settings, {})) {
          EXPECT_EQ(a.split.world_size(), Cluster(devices).devices());
          EXPECT_TRUE(a.fits || !a.reason.empty());
          fitting += a.fits ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(fitting, 500U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace cleave

#include "split/layout_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "split/split_test_support.h"

namespace cleave {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Layout Make(const ModelShape& shape, const Split& split) {
  Result<Layout> layout = MakeLayout(shape, split, CostsByWork(shape));
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  return std::move(layout).value();
}

// One to three bytes for each weight.
ModelBytes BytesOf(const ModelShape& shape) {
  ModelBytes bytes;
  for (uint64_t l = 0; l < shape.num_layers; ++l) {
    // Layers may differ, as mixed quantisations do.
    const uint64_t width = 1 + l % 3;
    LayerBytes layer;
    layer.query = width * 2 * shape.num_heads * shape.head_dim * shape.hidden_size;
    layer.kv = width * 2 * shape.num_kv_heads * shape.head_dim * shape.hidden_size;
    layer.ffn = width * 3 * std::max(shape.num_experts, 1U) * shape.ffn_size * shape.hidden_size;
    layer.common = width * 2 * shape.hidden_size;
    bytes.layers.push_back(layer);
  }
  bytes.embedding = uint64_t{shape.vocab_size} * shape.hidden_size;
  bytes.head = bytes.embedding;
  bytes.final_norm = shape.hidden_size;
  return bytes;
}

TEST(LayoutReport, WeightsOfRanksAddUpToTheModelAndItsCopies) {
  RngStream rng(1);
  for (int i = 0; i < 1500; ++i) {
    const ModelShape shape = DrawShape(&rng);
    const Result<Layout> layout = MakeLayout(shape, DrawSplit(&rng, shape), CostsByWork(shape));
    if (!layout.ok()) continue;
    const Split& split = layout->split;
    const ModelBytes bytes = BytesOf(shape);
    uint64_t held = 0;
    uint64_t kv_heads = 0;  // copies in a layer
    for (const RankLayout& rank : layout->ranks) {
      held += WeightBytesOf(*layout, rank, bytes);
      if (rank.coord.pp == 0) kv_heads += rank.kv_heads.size();
    }
    const uint64_t copies = uint64_t{split.teams} * split.cp;
    uint64_t expected = bytes.embedding * copies + bytes.head * split.teams +
                        bytes.final_norm * split.teams * split.tp;
    for (const LayerBytes& layer : bytes.layers) {
      expected += layer.query * copies + layer.kv / shape.num_kv_heads * kv_heads +
                  layer.ffn * (split.ep == 1 ? split.cp : 1) +
                  layer.ffn / std::max(shape.num_experts, 1U) * split.redundant_experts +
                  layer.common * split.ranks_per_stage();
    }
    ASSERT_EQ(held, expected) << split.ToString();
  }
}

TEST(LayoutReport, TextSaysWhoHoldsWhatAndWhatItCosts) {
  const Layout layout = Make(DemoShape(), {.pp = 2, .tp = 2, .pp_layers = {20, 10}});
  const ModelBytes bytes = BytesOf(DemoShape());
  LayoutReport report;
  report.layout = &layout;
  report.bytes = &bytes;
  report.kv_head_bytes = 256;
  report.traffic.one_shot_max_bytes = 65536;
  const std::string text = ReportText(report);
  EXPECT_THAT(text, HasSubstr("layout dp=1 pp=2 tp=2 ep=1 cp=1 pp-layers=20,10: 4 ranks in 1 "
                              "replica\n"));
  EXPECT_THAT(text, HasSubstr("KV heads held more than once: 1 a layer, 256 B a token and layer"));
  EXPECT_THAT(text, HasSubstr("attention 1.167, ffn 1.000; tp speeds up at most 1.92x"));
  EXPECT_THAT(text, HasSubstr("20-29"));
  EXPECT_THAT(text, HasSubstr("24576-49151"));
  EXPECT_THAT(text, HasSubstr("a prefill of 512 tokens"));
  EXPECT_THAT(text, HasSubstr("These are of one step."));
  EXPECT_THAT(text, HasSubstr("reduce_scatter"));
  EXPECT_THAT(text, Not(HasSubstr("not in these figures")));
  const Layout context = Make(DemoShape(), {.cp = 2});
  report.layout = &context;
  EXPECT_THAT(ReportText(report), Not(HasSubstr("These are of one step.")));
  // Two ranks, 30 layers, 9 heads: what a partial is, and a bin of 64 values and a mass.
  EXPECT_THAT(ReportText(report), HasSubstr("  cp  all_gather    120  282960"));
  report.traffic.dialect = Dialect::kVllm;
  EXPECT_THAT(ReportText(report), HasSubstr("what cp and dcp exchange is not in these figures"));
  report.traffic.dialect = Dialect::kCleave;
  const Layout one = Make(DemoShape(), {});
  report.layout = &one;
  EXPECT_THAT(ReportText(report), HasSubstr("a decoded token: nothing is exchanged"));
}

TEST(LayoutReport, SaysWhichTeamARankIsOf) {
  ModelShape shape = DemoShape();
  shape.num_experts = 10;
  shape.experts_per_token = 2;
  const Layout layout = Make(shape, {.teams = 2, .tp = 2, .ep = 4});
  LayoutReport report;
  report.layout = &layout;
  const std::string text = ReportText(report);
  EXPECT_THAT(text, HasSubstr("layout dp=1 pp=1 teams=2 tp=2 ep=4 cp=1: 4 ranks in 1 replica\n"));
  EXPECT_THAT(text, HasSubstr("rank  pp  team  tp  ep  cp"));
  EXPECT_THAT(text, HasSubstr("   3   0     1   1   3   0"));
  const nlohmann::json json = nlohmann::json::parse(ReportJson(report));
  EXPECT_EQ(json["split"]["teams"], 2);
  EXPECT_EQ(json["ranks"][2]["team"], 1);
  EXPECT_EQ(json["ranks"][2]["q_heads"], json["ranks"][0]["q_heads"]);
  EXPECT_EQ(json["ranks"][2]["experts"], nlohmann::json::array({5, 6, 7}));
  // A prefill is one request's: one team's attention, everybody's experts.
  const nlohmann::json& ops = json["traffic"]["prefill"]["axes"];
  EXPECT_EQ(ops[0]["axis"], "tp");
  EXPECT_EQ(ops[0]["ops"][1]["calls"], 30 * 2) << "reduce_scatter on two ranks";
  EXPECT_EQ(ops[1]["axis"], "ep");
  EXPECT_EQ(ops[1]["ops"][0]["calls"], 30 * (4 + 2)) << "routes, and the team's rows";
}

TEST(LayoutReport, SaysWhichExpertsHaveCopies) {
  ModelShape shape = DemoShape();
  shape.num_experts = 10;
  shape.experts_per_token = 2;
  Split split{.tp = 2, .ep = 2, .redundant_experts = 1};
  split.expert_loads = {1, 1, 1, 1, 1, 1, 1, 80, 1, 1};
  const Layout layout = Make(shape, split);
  LayoutReport report;
  report.layout = &layout;
  EXPECT_THAT(ReportText(report),
              HasSubstr("copies of experts beyond the first: 1 a layer; 7 on ep ranks 0,1\n"));
  const nlohmann::json json = nlohmann::json::parse(ReportJson(report));
  EXPECT_EQ(json["split"]["redundant_experts"], 1);
  EXPECT_EQ(json["copied_experts"][0]["expert"], 7);
  EXPECT_EQ(json["copied_experts"][0]["ep_ranks"], nlohmann::json::array({0, 1}));
  uint64_t held = 0;
  for (const auto& rank : json["ranks"]) held += rank["experts"].size();
  EXPECT_EQ(held, 11);
}

TEST(LayoutReport, JsonHoldsTheLayoutAndItsTraffic) {
  ModelShape shape = DemoShape();
  shape.num_experts = 10;
  shape.experts_per_token = 2;
  const Layout layout = Make(shape, {.dp = 2, .tp = 2, .ep = 2, .tp_shares = {2, 1}});
  const ModelBytes bytes = BytesOf(shape);
  LayoutReport report;
  report.layout = &layout;
  report.kv_head_bytes = 512;
  report.traffic.one_shot_max_bytes = 65536;
  const nlohmann::json without = nlohmann::json::parse(ReportJson(report));
  EXPECT_FALSE(without["ranks"][0].contains("weight_bytes"));
  report.bytes = &bytes;
  const nlohmann::json json = nlohmann::json::parse(ReportJson(report));
  EXPECT_EQ(json["world_size"], 4);
  EXPECT_EQ(json["split"]["tp_shares"], nlohmann::json::array({2, 1}));
  EXPECT_EQ(json["ranks"].size(), 2);
  const nlohmann::json& rank = json["ranks"][1];
  EXPECT_EQ(rank["q_heads"], nlohmann::json::array({6, 9}));
  EXPECT_EQ(rank["kv_heads"], nlohmann::json::array({2, 3}));
  EXPECT_EQ(rank["ep"], 1);
  EXPECT_EQ(rank["experts"], nlohmann::json::array({7, 8, 9}));
  EXPECT_EQ(rank["kv_bytes_per_token"], 512 * 30);
  EXPECT_EQ(rank["weight_bytes"], WeightBytesOf(layout, layout.ranks[1], bytes));
  EXPECT_EQ(json["replicated_kv_bytes_per_token_and_layer"], 0);
  EXPECT_EQ(json["traffic"]["whole"], true);
  const nlohmann::json& decode = json["traffic"]["decode"];
  EXPECT_EQ(decode["tokens"], 1);
  EXPECT_EQ(decode["axes"][0]["axis"], "tp");
  EXPECT_EQ(decode["axes"][0]["ops"][0]["op"], "all_reduce");
  // After attention alone: the FFN's rows travel over ep.
  EXPECT_EQ(decode["axes"][0]["ops"][0]["calls"], 60);
  EXPECT_EQ(decode["axes"][1]["axis"], "ep");
  EXPECT_EQ(decode["axes"][1]["ops"][1]["op"], "all_to_all");
  EXPECT_EQ(decode["axes"][1]["ops"][1]["calls"], 180);
  EXPECT_GT(decode["axes"][1]["ops"][1]["bytes"], 0);
  EXPECT_EQ(json["traffic"]["prefill"]["tokens"], 512);
}

TEST(LayoutReport, TotalsHoldEachEmbeddingRowOnce) {
  ModelShape shape = DemoShape();
  const Layout layout = Make(shape, {.tp = 3});
  TrafficOptions options;
  options.one_shot_max_bytes = 1U << 30U;
  const TrafficTotals totals = StepTotals(layout, 7, options);
  EXPECT_EQ(totals.of(Axis::kTp, CommOp::kAllGather).bytes, 7 * 576 * 4 + 3 * 8);
  EXPECT_EQ(totals.of(Axis::kTp, CommOp::kAllReduce).bytes, uint64_t{3} * 60 * 7 * 2305);
  // Families with post norms send int64.
  shape.post_norms = true;
  const TrafficTotals wide = StepTotals(Make(shape, {.tp = 3}), 7, options);
  EXPECT_EQ(wide.of(Axis::kTp, CommOp::kAllReduce).bytes, uint64_t{3} * 60 * 7 * 4609);
}

}  // namespace
}  // namespace cleave

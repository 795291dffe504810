#include "split/refusal.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <limits>
#include <sstream>

#include "split/split_test_support.h"

namespace cleave {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Refusal(const ModelShape& shape, const Split& split) {
  const Result<Layout> layout = MakeLayout(shape, split, CostsByWork(shape));
  EXPECT_FALSE(layout.ok()) << split.ToString();
  EXPECT_EQ(layout.status().code(), StatusCode::kInvalidArgument);
  return layout.status().message();
}

ModelShape ExpertShape() {
  ModelShape shape = DemoShape();
  shape.num_experts = 10;
  shape.experts_per_token = 2;
  return shape;
}

uint32_t Number(const std::string& text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  EXPECT_TRUE(error == std::errc() && end == text.data() + text.size()) << text;
  return value;
}

std::vector<uint32_t> Numbers(const std::string& text) {
  std::vector<uint32_t> values;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) values.push_back(Number(part));
  return values;
}

// "pp=2 tp=6" as a reader would type it.
Split Typed(const std::string& text) {
  Split split;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const uint32_t value = Number(word.substr(equals + 1));
    if (name == "dp") split.dp = value;
    if (name == "pp") split.pp = value;
    if (name == "teams") split.teams = value;
    if (name == "tp") split.tp = value;
    if (name == "ep") split.ep = value;
    if (name == "cp") split.cp = value;
    if (name == "dcp") split.dcp = value;
  }
  return split;
}

std::vector<Split> Suggested(const std::string& message) {
  const std::string mark = "layouts that work: ";
  const size_t at = message.find(mark);
  std::vector<Split> splits;
  if (at == std::string::npos) return splits;
  std::string rest = message.substr(at + mark.size());
  rest = rest.substr(0, rest.find(" (teams:"));
  for (size_t comma = 0; comma != std::string::npos;) {
    comma = rest.find(", ");
    splits.push_back(Typed(rest.substr(0, comma)));
    if (comma != std::string::npos) rest = rest.substr(comma + 2);
  }
  return splits;
}

TEST(Refusal, NamesTheNumberTheLimitAndWhatWorks) {
  EXPECT_EQ(Refusal(DemoShape(), {.tp = 12}),
            "tp is 12; it can be at most 9: the model has 9 query heads; "
            "layouts that work: "
            "pp=2 tp=6, pp=3 tp=4, pp=4 tp=3, tp=9");
  EXPECT_EQ(Refusal(DemoShape(), {.pp = 31}),
            "pp is 31; it can be at most 30: the model has 30 layers; layouts "
            "that work: pp=30");
  EXPECT_EQ(Refusal(DemoShape(), {.pp = 32}),
            "pp is 32; it can be at most 30: the model has 30 layers; layouts "
            "that work: "
            "pp=16 tp=2, pp=8 tp=4, pp=4 tp=8, pp=30");
  EXPECT_THAT(Refusal(DemoShape(), {.tp = 2, .ep = 2}),
              StartsWith("ep is 2; the model has no experts, so ep can only be "
                         "1; layouts that "
                         "work: tp=2"));
  EXPECT_THAT(Refusal(DemoShape(), {.tp = 4, .dcp = 3}),
              StartsWith("dcp is 3; it must divide tp, 4; layouts that work: tp=4 dcp=2"));
  EXPECT_THAT(Refusal(ExpertShape(), {.tp = 4, .ep = 3}),
              StartsWith("ep is 3; it must divide tp · cp, 4 · 1 = 4; layouts that work: "
                         "tp=4 ep=2"));
  EXPECT_THAT(Refusal(ExpertShape(), {.tp = 4, .ep = 12, .cp = 3}),
              StartsWith("ep is 12; it can be at most 10: the model has 10 experts a layer"));
}

TEST(Refusal, OfGroupsBeyondWhatRanksExchangeIn) {
  ModelShape shape = ExpertShape();
  shape.num_heads = shape.num_kv_heads = shape.num_layers = shape.num_experts = 128;
  shape.vocab_size = 1U << 20U;
  shape.ffn_size = 1U << 20U;
  const char* at_most = "it can be at most 64: no more exchange with each other";
  EXPECT_EQ(Refusal(shape, {.cp = 65}),
            fmt::format("cp is 65; {}; layouts that work: cp=64", at_most));
  EXPECT_THAT(Refusal(shape, {.tp = 96}),
              StartsWith(fmt::format("tp is 96; {}; layouts that work: pp=2 tp=48", at_most)));
  EXPECT_EQ(Refusal(shape, {.pp = 67}),
            fmt::format("pp is 67; {}; layouts that work: pp=64", at_most));
  EXPECT_THAT(Refusal(shape, {.teams = 65, .ep = 65}),
              StartsWith(fmt::format("teams is 65; {}; layouts that work: ", at_most)));
  EXPECT_THAT(Refusal(shape, {.tp = 32, .ep = 2, .cp = 3}),
              StartsWith(fmt::format("tp · cp under ep is 96; {}; layouts that work: ", at_most)));
  EXPECT_TRUE(MakeLayout(shape, {.pp = 2, .tp = 32, .cp = 3}, CostsByWork(shape)).ok());
}

TEST(Refusal, OfTeams) {
  EXPECT_EQ(Refusal(ExpertShape(), {.teams = 2}),
            "teams is 2 and ep is 1: teams would share nothing; spread the experts over them (ep), "
            "or take replicas (dp); layouts that work: dp=2");
  EXPECT_EQ(Refusal(DemoShape(), {.teams = 3, .tp = 2}),
            "teams is 3 and ep is 1: teams would share nothing; the model has no experts, so take "
            "replicas (dp); layouts that work: dp=3 tp=2, dp=3 pp=2");
  EXPECT_EQ(Refusal(ExpertShape(), {.teams = 2, .tp = 2, .ep = 3}),
            "ep is 3; it must divide teams · tp · cp, 2 · 2 · 1 = 4; layouts that work: "
            "teams=2 tp=2 ep=2, pp=2 teams=2 ep=2 (teams: dp with --enable-expert-parallel)");
  EXPECT_THAT(Refusal(ExpertShape(), {.teams = 3, .tp = 4, .ep = 12}),
              AllOf(StartsWith("ep is 12; it can be at most 10: the model has 10 experts a layer"),
                    HasSubstr("teams=3 tp=4 ep=6")));
  EXPECT_THAT(Refusal(ExpertShape(), {.pp = 2, .teams = 4096, .tp = 4, .ep = 4}),
              StartsWith("pp 2 · teams 4096 · tp 4 · cp 1 is 32768 ranks; a replica has at most"));
  EXPECT_TRUE(
      MakeLayout(ExpertShape(), {.teams = 5, .tp = 2, .ep = 10}, CostsByWork(ExpertShape())).ok());
}

TEST(Refusal, OfCopies) {
  EXPECT_THAT(Refusal(ExpertShape(), {.tp = 2, .ep = 2, .redundant_experts = 11}),
              AllOf(StartsWith("redundant-experts is 11; it can be at most 10: each of 2 ep ranks "
                               "holds each of 10 experts once at most"),
                    HasSubstr("what works: redundant-experts 10")));
  EXPECT_THAT(Refusal(ExpertShape(), {.tp = 2, .redundant_experts = 1}),
              AllOf(StartsWith("redundant-experts is 1; ep is 1: copies need other ep ranks"),
                    HasSubstr("what works: redundant-experts 0")));
  EXPECT_THAT(Refusal(DemoShape(), {.redundant_experts = 1}), StartsWith("redundant-experts is 1"));
  EXPECT_THAT(Refusal(ExpertShape(), {.tp = 2, .ep = 2, .expert_loads = {1, 2, 3}}),
              StartsWith("loads of 3 experts are given; the model has 10"));
  EXPECT_TRUE(MakeLayout(ExpertShape(), {.tp = 2, .ep = 2, .redundant_experts = 10},
                         CostsByWork(ExpertShape()))
                  .ok());
}

TEST(Refusal, NamesTheTightestLimit) {
  ModelShape shape = DemoShape();
  shape.num_heads = 64;
  shape.num_kv_heads = 8;
  EXPECT_EQ(Refusal(shape, {.tp = 100}),
            "tp is 100; it can be at most 24: a layer's 1536 FFN columns make "
            "24 units of 64; "
            "layouts that work: pp=5 tp=20, pp=10 tp=10, pp=20 tp=5, tp=24");
}

TEST(Refusal, OfFewUnits) {
  ModelShape shape = DemoShape();
  shape.vocab_size = 33;
  EXPECT_THAT(Refusal(shape, {.tp = 4}),
              StartsWith("tp is 4; it can be at most 3: the vocabulary's 33 "
                         "rows make 3 units of "
                         "16; layouts that work: pp=2 tp=2, pp=4, tp=3"));
  shape = ExpertShape();
  shape.ffn_size = 96;
  EXPECT_THAT(Refusal(shape, {.tp = 4}),
              HasSubstr("an expert's 96 FFN columns make 2 units of 64"));
  EXPECT_THAT(Refusal(shape, {.tp = 9, .ep = 3}),
              HasSubstr("tp · cp / ep is 3; it can be at most 2: an expert's "
                        "96 FFN columns"));
  EXPECT_TRUE(MakeLayout(shape, {.tp = 4, .ep = 2}, CostsByWork(shape)).ok());
}

TEST(Refusal, OfSizes) {
  EXPECT_THAT(Refusal(DemoShape(), {.tp = 0}),
              StartsWith("tp is 0; it must be between 1 and 4096; layouts that work: tp=1"));
  EXPECT_THAT(Refusal(DemoShape(), {.dp = 0}), StartsWith("dp is 0"));
  EXPECT_THAT(Refusal(DemoShape(), {.pp = 0}), StartsWith("pp is 0"));
  EXPECT_THAT(Refusal(DemoShape(), {.ep = 0}), StartsWith("ep is 0"));
  EXPECT_THAT(Refusal(DemoShape(), {.cp = 0}), StartsWith("cp is 0"));
  EXPECT_THAT(Refusal(DemoShape(), {.dcp = 0}), StartsWith("dcp is 0"));
  EXPECT_THAT(Refusal(DemoShape(), {.cp = 5000}), StartsWith("cp is 5000; it must be between"));
  EXPECT_EQ(Refusal(DemoShape(), {.pp = 30, .tp = 9, .cp = 4096}),
            "pp 30 · tp 9 · cp 4096 is 1105920 ranks; a replica has at most "
            "16384; layouts that "
            "work: pp=30 tp=9");
  const uint32_t most = std::numeric_limits<uint32_t>::max();
  EXPECT_THAT(Refusal(DemoShape(), {.dp = most, .pp = most, .tp = most, .ep = most, .cp = most}),
              StartsWith("dp is 4294967295"));
}

TEST(Refusal, OfShares) {
  EXPECT_EQ(Refusal(DemoShape(), {.tp = 2, .tp_shares = {1, 1, 1}}),
            "tp-shares has 3 numbers; tp 2 needs 2; what works: tp-shares 1,1");
  EXPECT_EQ(Refusal(DemoShape(), {.tp = 2, .tp_shares = {1, 0}}),
            "tp-shares gives tp rank 1 a share of 0; at least 1; what works: "
            "tp-shares 8,1");
  EXPECT_EQ(Refusal(DemoShape(), {.tp = 2, .tp_shares = {100, 1}}),
            "tp-shares 100,1 leave tp rank 1 none of the 9 query heads; what "
            "works: tp-shares 8,1");
  ModelShape shape = DemoShape();
  shape.vocab_size = 33;
  EXPECT_EQ(Refusal(shape, {.tp = 2, .tp_shares = {8, 1}}),
            "tp-shares 8,1 leave tp rank 1 none of the 3 vocabulary units of "
            "16; what works: "
            "tp-shares 1,1");
  shape = ExpertShape();
  EXPECT_THAT(Refusal(shape, {.tp = 9, .ep = 9, .tp_shares = {9, 9, 9, 9, 9, 9, 9, 9, 4}}),
              StartsWith("tp-shares 9,9,9,9,9,9,9,9,4 leave "));
}

TEST(Refusal, OfStages) {
  EXPECT_EQ(Refusal(DemoShape(), {.pp = 2, .pp_layers = {10, 19}}),
            "pp-layers 10,19 add up to 29; the model has 30 layers; what "
            "works: pp-layers 19,11");
  EXPECT_THAT(Refusal(DemoShape(), {.pp = 2, .pp_layers = {30, 0}}),
              StartsWith("pp-layers gives stage 1 no layer; each needs at "
                         "least 1; what works"));
  EXPECT_THAT(Refusal(DemoShape(), {.pp = 3, .pp_layers = {15, 15}}),
              StartsWith("pp-layers has 2 numbers; pp 3 needs 3; what works: pp-layers "));
  // Sums that would wrap round to 30.
  EXPECT_THAT(Refusal(DemoShape(), {.pp = 2, .pp_layers = {0xffffffffU, 31}}),
              HasSubstr("add up to 4294967326"));
  EXPECT_THAT(Refusal(DemoShape(), {.pp = 2, .tp = 2, .tp_shares = {1}, .pp_layers = {1, 1}}),
              HasSubstr("what works: tp-shares 1,1 pp-layers "));
}

TEST(Refusal, OfModelsAndCosts) {
  const auto refused = [](const ModelShape& shape, const LayerCosts& costs) {
    const Result<Layout> layout = MakeLayout(shape, {}, costs);
    return layout.ok() ? std::string() : layout.status().message();
  };
  const LayerCosts good = CostsByWork(DemoShape());
  EXPECT_EQ(refused({}, {}), "the model's layers is 0; it must be between 1 and 1024");
  for (uint32_t ModelShape::*field :
       {&ModelShape::hidden_size, &ModelShape::num_heads, &ModelShape::num_kv_heads,
        &ModelShape::head_dim, &ModelShape::ffn_size, &ModelShape::vocab_size}) {
    ModelShape shape = DemoShape();
    shape.*field = 0;
    EXPECT_THAT(refused(shape, good), HasSubstr(" is 0; it must be between 1 and "));
    shape.*field = 0xffffffffU;
    EXPECT_THAT(refused(shape, good), HasSubstr(" is 4294967295; it must be between 1 and "));
  }
  ModelShape shape = DemoShape();
  shape.num_kv_heads = 2;
  EXPECT_THAT(refused(shape, good), HasSubstr("KV heads are 2; they must divide its 9 query"));
  shape = DemoShape();
  shape.num_experts = 4;
  EXPECT_THAT(refused(shape, good), HasSubstr("experts of a token is 0; it must be between 1"));
  shape.num_experts = 1U << 20U;
  EXPECT_THAT(refused(shape, good), HasSubstr("between 0 and 2048"));
  LayerCosts costs = good;
  costs.layers.pop_back();
  EXPECT_EQ(refused(DemoShape(), costs), "costs of 29 layers are given; the model has 30");
  for (const double bad :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    costs = good;
    costs.layers[3] = bad;
    EXPECT_THAT(refused(DemoShape(), costs), HasSubstr("every cost of a layer must be"));
    costs = good;
    costs.head = bad;
    EXPECT_THAT(refused(DemoShape(), costs), HasSubstr("every cost of a layer must be"));
  }
}

// Wild numbers: an answer always comes, and what it proposes works.
TEST(Refusal, AlwaysProposesWhatWorks) {
  RngStream rng(1);
  const auto wild = [&](uint32_t usual) {
    switch (rng.Below(8)) {
      case 0:
        return Draw(&rng, 0, 5000);
      case 1:
        return static_cast<uint32_t>(rng.Next());
      default:
        return Draw(&rng, 0, usual);
    }
  };
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const ModelShape shape = DrawShape(&rng);
    Split split;
    split.dp = wild(3);
    split.pp = wild(12);
    split.tp = wild(20);
    split.ep = rng.Below(2) == 0 ? 1 : wild(12);
    split.cp = wild(4);
    split.dcp = rng.Below(2) == 0 ? 1 : wild(6);
    const Result<Layout> layout = MakeLayout(shape, split, CostsByWork(shape));
    if (layout.ok()) continue;
    ++refused;
    const std::vector<Split> suggested = Suggested(layout.status().message());
    ASSERT_FALSE(suggested.empty()) << layout.status().message();
    for (const Split& works : suggested) {
      ASSERT_TRUE(CheckCut(shape, works).ok()) << layout.status().message() << "\n"
                                               << works.ToString();
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Refusal, ProposedSharesAndStagesWork) {
  RngStream rng(2);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const ModelShape shape = DrawShape(&rng);
    Split split = DrawSplit(&rng, shape);
    split.redundant_experts = 0;
    split.tp_shares.assign(Draw(&rng, 1, 9), 0);
    for (uint32_t& share : split.tp_shares) share = Draw(&rng, 0, 20);
    const Result<Layout> layout = MakeLayout(shape, split, CostsByWork(shape));
    if (layout.ok()) continue;
    const std::string mark = "what works: tp-shares ";
    const size_t at = layout.status().message().find(mark);
    if (at == std::string::npos) continue;
    ++refused;
    split.tp_shares = Numbers(layout.status().message().substr(at + mark.size()));
    ASSERT_TRUE(CheckCut(shape, split).ok()) << layout.status().message();
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace cleave

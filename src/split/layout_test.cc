#include "split/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "model/config.h"
#include "split/balance.h"
#include "split/split_test_support.h"

namespace cleave {
namespace {

using Counts = std::vector<uint32_t>;

Counts Sizes(const std::vector<Range>& ranges) {
  Counts sizes;
  for (const Range& range : ranges) sizes.push_back(range.size());
  return sizes;
}

Layout Make(const ModelShape& shape, const Split& split) {
  Result<Layout> layout = MakeLayout(shape, split, CostsByWork(shape));
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  return std::move(layout).value();
}

// The largest b with b <= n · part / whole + 1/2, by counting up.
uint32_t RoundedByCounting(uint64_t n, uint64_t part, uint64_t whole) {
  uint64_t b = 0;
  while (2 * (b + 1) * whole <= 2 * n * part + whole) ++b;
  return static_cast<uint32_t>(b);
}

TEST(ShareOut, PutsBordersByTheFormula) {
  EXPECT_EQ(Sizes(ShareOut(9, {1, 1})), Counts({5, 4}));
  EXPECT_EQ(Sizes(ShareOut(9, {1, 1, 1, 1})), Counts({2, 3, 2, 2}));
  EXPECT_EQ(Sizes(ShareOut(64, {1, 1, 1, 1, 1, 1})), Counts({11, 10, 11, 11, 10, 11}));
  EXPECT_EQ(Sizes(ShareOut(9, {3, 1})), Counts({7, 2}));
  EXPECT_EQ(Sizes(ShareOut(2, {1, 1, 1})), Counts({1, 0, 1}));
  EXPECT_EQ(Sizes(ShareOut(5, {0, 0})), Counts({3, 2}));
  EXPECT_EQ(Sizes(ShareOut(0, {1, 2})), Counts({0, 0}));
  EXPECT_TRUE(ShareOut(5, {}).empty());
  // Products of three 32-bit numbers.
  const uint32_t most = 0xffffffffU;
  EXPECT_EQ(ShareOut(most, {most, most, most})[2], (Range{2863311530U, most}));
}

TEST(ShareOut, HoldsEveryUnitOnceInOrder) {
  RngStream rng(1);
  for (int i = 0; i < 5000; ++i) {
    const uint32_t n = Draw(&rng, 0, 300);
    std::vector<uint32_t> weights(Draw(&rng, 1, 12), 1);
    const bool even = rng.Below(2) == 0;
    if (!even) {
      for (uint32_t& w : weights) w = Draw(&rng, 0, 9);
      weights[0] = Draw(&rng, 1, 9);
    }
    const std::vector<Range> ranges = ShareOut(n, weights);
    ASSERT_EQ(ranges.size(), weights.size());
    const uint64_t sum = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
    uint64_t before = 0;
    uint32_t end = 0;
    for (size_t r = 0; r < ranges.size(); ++r) {
      EXPECT_EQ(ranges[r].begin, end);
      before += weights[r];
      EXPECT_EQ(ranges[r].end, RoundedByCounting(n, before, sum));
      end = ranges[r].end;
      if (even) {
        EXPECT_EQ(ranges[r],
                  EvenShare(n, static_cast<uint32_t>(ranges.size()), static_cast<uint32_t>(r)));
      }
    }
    EXPECT_EQ(end, n);
    if (!even) continue;
    const Counts sizes = Sizes(ranges);
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    EXPECT_LE(*most - *least, 1);
  }
}

// Every way to put `layers` into `stages` of at least one.
void AllCuts(uint32_t layers, uint32_t stages, Counts* prefix, std::vector<Counts>* out) {
  if (stages == 1) {
    prefix->push_back(layers);
    out->push_back(*prefix);
    prefix->pop_back();
    return;
  }
  for (uint32_t first = 1; first + stages - 1 <= layers; ++first) {
    prefix->push_back(first);
    AllCuts(layers - first, stages - 1, prefix, out);
    prefix->pop_back();
  }
}

// Largest stage cost, then the sum of squares.
std::pair<double, double> Judge(const LayerCosts& costs, const Counts& cut) {
  double largest = 0;
  double squares = 0;
  size_t layer = 0;
  for (size_t s = 0; s < cut.size(); ++s) {
    double cost = s == 0 ? costs.embedding : 0;
    for (uint32_t i = 0; i < cut[s]; ++i) cost += costs.layers[layer++];
    if (s + 1 == cut.size()) cost += costs.head;
    largest = std::max(largest, cost);
    squares += cost * cost;
  }
  return {largest, squares};
}

TEST(BalanceLayers, IsTheBestOfAllCuts) {
  RngStream rng(2);
  for (int i = 0; i < 1500; ++i) {
    const uint32_t layers = Draw(&rng, 1, 9);
    const uint32_t stages = Draw(&rng, 1, layers);
    LayerCosts costs;
    const uint32_t spread = rng.Below(2) == 0 ? 0 : 7;
    for (uint32_t l = 0; l < layers; ++l) costs.layers.push_back(3 + Draw(&rng, 0, spread));
    costs.embedding = Draw(&rng, 0, 10);
    costs.head = Draw(&rng, 0, 20);
    std::vector<Counts> cuts;
    Counts prefix;
    AllCuts(layers, stages, &prefix, &cuts);
    const Counts best =
        *std::min_element(cuts.begin(), cuts.end(), [&](const auto& a, const auto& b) {
          const auto left = Judge(costs, a);
          const auto right = Judge(costs, b);
          return left != right ? left < right : a > b;
        });
    ASSERT_EQ(BalanceLayers(costs, stages), best);
  }
}

TEST(BalanceLayers, CountsEmbeddingAndHead) {
  EXPECT_EQ(BalanceLayers({std::vector<double>(7, 1.0), 0, 0}, 3), Counts({3, 2, 2}));
  EXPECT_EQ(BalanceLayers({std::vector<double>(7, 0.1), 0, 0}, 3), Counts({3, 2, 2}));
  EXPECT_EQ(BalanceLayers({std::vector<double>(30, 1.0), 0, 8}, 2), Counts({19, 11}));
  EXPECT_EQ(BalanceLayers({std::vector<double>(30, 1.0), 8, 0}, 2), Counts({11, 19}));
  EXPECT_EQ(BalanceLayers({std::vector<double>(4, 0.0), 0, 0}, 4), Counts({1, 1, 1, 1}));
  // The largest model there is, costs that say nothing.
  const Counts cut = BalanceLayers({std::vector<double>(1024, 0.0), 0, 0}, 340);
  EXPECT_EQ(std::accumulate(cut.begin(), cut.end(), 0U), 1024);
}

// Ranges of ranks in order: one after another from 0 to n.
void ExpectCovers(const std::vector<Range>& ranges, uint32_t n, const char* what) {
  uint32_t end = 0;
  for (const Range& range : ranges) {
    EXPECT_EQ(range.begin, end) << what;
    EXPECT_GT(range.size(), 0) << what;
    end = range.end;
  }
  EXPECT_EQ(end, n) << what;
}

void ExpectUnitBorders(const Range& range, uint32_t unit, uint32_t n) {
  EXPECT_EQ(range.begin % unit, 0);
  EXPECT_TRUE(range.end % unit == 0 || range.end == n);
}

// How often a stage's ranks hold each (expert, column), by counting.
void ExpectFfnHeld(const Layout& layout, uint32_t stage) {
  const uint32_t experts = std::max(layout.shape.num_experts, 1U);
  const uint32_t f = layout.shape.ffn_size;
  Counts held(static_cast<size_t>(experts) * f, 0);
  for (const RankLayout& rank : layout.ranks) {
    if (rank.coord.pp != stage) continue;
    std::vector<uint32_t> own = rank.experts;
    if (layout.shape.num_experts == 0) {
      EXPECT_TRUE(own.empty());
      own = {0};
    }
    for (const uint32_t e : own) {
      for (uint32_t c = rank.ffn_columns.begin; c < rank.ffn_columns.end; ++c) ++held[e * f + c];
    }
  }
  uint64_t copies = 0;
  for (uint32_t e = 0; e < experts; ++e) {
    // All columns of an expert as often as the first.
    const uint32_t times = held[e * f];
    for (uint32_t c = 0; c < f; ++c) ASSERT_EQ(held[e * f + c], times) << layout.split.ToString();
    ASSERT_GE(times, layout.split.ep == 1 ? layout.split.cp : 1);
    copies += times - (layout.split.ep == 1 ? layout.split.cp : 1);
  }
  ASSERT_EQ(copies, layout.split.redundant_experts) << layout.split.ToString();
}

// Copies of KV heads beyond the first, from who reads what.
uint32_t ReplicasByCounting(const Layout& layout) {
  std::map<std::pair<uint32_t, uint32_t>, bool> held;  // (dcp group, KV head)
  for (const RankLayout& rank : layout.ranks) {
    if (rank.coord.pp != 0 || rank.coord.team != 0 || rank.coord.cp != 0) continue;
    for (uint32_t h = rank.q_heads.begin; h < rank.q_heads.end; ++h) {
      held[{rank.coord.tp / layout.split.dcp, h / layout.shape.q_per_kv()}] = true;
    }
  }
  return static_cast<uint32_t>(held.size()) - layout.shape.num_kv_heads;
}

void ExpectHeads(const Layout& layout, const RankLayout& rank) {
  const uint32_t q_per_kv = layout.shape.q_per_kv();
  std::vector<bool> needed(layout.shape.num_kv_heads, false);
  std::vector<bool> attended(layout.shape.num_heads, false);
  for (const uint32_t other : DcpGroupOf(layout.split, rank.rank)) {
    const Range q = layout.ranks[other].q_heads;
    for (uint32_t h = q.begin; h < q.end; ++h) needed[h / q_per_kv] = attended[h] = true;
  }
  for (uint32_t kv = 0; kv < layout.shape.num_kv_heads; ++kv) {
    EXPECT_EQ(rank.kv_heads.contains(kv), needed[kv]);
  }
  for (uint32_t h = 0; h < layout.shape.num_heads; ++h) {
    EXPECT_EQ(layout.DcpQueries(rank.coord).contains(h), attended[h]);
  }
}

void ExpectWhole(const Layout& layout) {
  const Split& split = layout.split;
  ASSERT_EQ(layout.ranks.size(), split.ranks_per_replica());
  std::vector<Range> layers;
  std::vector<Range> heads;
  std::vector<Range> vocab;
  for (uint32_t r = 0; r < layout.ranks.size(); ++r) {
    const RankLayout& rank = layout.ranks[r];
    EXPECT_EQ(rank.rank, r);
    EXPECT_EQ(layout.of(rank.coord), rank);
    EXPECT_EQ(rank.first_stage, rank.layers.begin == 0);
    EXPECT_EQ(rank.last_stage, rank.layers.end == layout.shape.num_layers);
    EXPECT_GT(rank.ffn_columns.size(), 0);
    ExpectUnitBorders(rank.ffn_columns, kFfnUnitColumns, layout.shape.ffn_size);
    ExpectUnitBorders(rank.vocab_rows, kVocabUnitRows, layout.shape.vocab_size);
    ExpectHeads(layout, rank);
    // All else depends on one place only.
    EXPECT_EQ(rank.layers, layout.of({.pp = rank.coord.pp}).layers);
    EXPECT_EQ(rank.q_heads, layout.of({.tp = rank.coord.tp}).q_heads);
    EXPECT_EQ(rank.vocab_rows, layout.of({.tp = rank.coord.tp}).vocab_rows);
    EXPECT_TRUE(std::is_sorted(rank.experts.begin(), rank.experts.end()));
    if (rank.coord.cp != 0 || rank.coord.team != 0) continue;
    if (rank.coord.tp == 0) layers.push_back(rank.layers);
    if (rank.coord.pp != 0) continue;
    heads.push_back(rank.q_heads);
    vocab.push_back(rank.vocab_rows);
  }
  ExpectCovers(layers, layout.shape.num_layers, "layers");
  ExpectCovers(heads, layout.shape.num_heads, "query heads");
  ExpectCovers(vocab, layout.shape.vocab_size, "vocabulary");
  for (uint32_t stage = 0; stage < split.pp; ++stage) ExpectFfnHeld(layout, stage);
  EXPECT_EQ(layout.replicated_kv_heads, ReplicasByCounting(layout));
  if (!split.pp_layers.empty()) {
    EXPECT_EQ(Sizes(layers), split.pp_layers);
  }
}

TEST(Layout, HoldsEverythingAsOftenAsStated) {
  RngStream rng(3);
  int made = 0;
  for (int i = 0; i < 4000; ++i) {
    const ModelShape shape = DrawShape(&rng);
    const Result<Layout> layout = MakeLayout(shape, DrawSplit(&rng, shape), CostsByWork(shape));
    if (!layout.ok()) {
      EXPECT_EQ(layout.status().code(), StatusCode::kInvalidArgument);
      continue;
    }
    ++made;
    ExpectWhole(*layout);
  }
  EXPECT_GT(made, 1000);
}

TEST(Layout, EvenSharesDifferByOneUnitAtMost) {
  RngStream rng(4);
  for (int i = 0; i < 2000; ++i) {
    const ModelShape shape = DrawShape(&rng);
    Split split = DrawSplit(&rng, shape);
    split.tp_shares.clear();
    const Result<Layout> layout = MakeLayout(shape, split, CostsByWork(shape));
    if (!layout.ok()) continue;
    const auto spread = [&](auto units_of) {
      Counts counts;
      for (const RankLayout& rank : layout->ranks) counts.push_back(units_of(rank));
      const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
      return *most - *least;
    };
    EXPECT_LE(spread([](const RankLayout& r) { return r.q_heads.size(); }), 1);
    EXPECT_LE(spread([](const RankLayout& r) { return (r.ffn_columns.size() + 63) / 64; }), 1);
    EXPECT_LE(spread([](const RankLayout& r) { return (r.vocab_rows.size() + 15) / 16; }), 1);
    EXPECT_LE(spread([](const RankLayout& r) { return uint32_t(r.experts.size()); }), 1);
  }
}

// Every row of a step is computed by one cp rank, or by all of them where that costs less.
TEST(Layout, CpRanksShareTheRowsOfLargeSteps) {
  for (uint32_t cp = 1; cp <= 5; ++cp) {
    const Split split{.cp = cp};
    for (uint32_t tokens = 0; tokens <= 200; ++tokens) {
      const bool shared = cp > 1 && tokens >= 16 * cp;
      EXPECT_EQ(CpSharesRows(split, tokens), shared);
      uint32_t next = 0;
      for (uint32_t rank = 0; rank < cp; ++rank) {
        const Range rows = CpRowsOf(split, rank, tokens);
        EXPECT_EQ(rows.begin, shared ? next : 0);
        EXPECT_LE(rows.size(), shared ? tokens / cp + 1 : tokens);
        next = rows.end;
      }
      EXPECT_EQ(next, tokens);
    }
  }
}

TEST(Layout, CutsTheDemoModel) {
  const Layout two = Make(DemoShape(), {.tp = 2});
  EXPECT_EQ(two.ranks[0].q_heads, (Range{0, 5}));
  EXPECT_EQ(two.ranks[1].q_heads, (Range{5, 9}));
  EXPECT_EQ(two.ranks[0].kv_heads, (Range{0, 2}));
  EXPECT_EQ(two.ranks[1].kv_heads, (Range{1, 3}));
  EXPECT_EQ(two.replicated_kv_heads, 1);
  EXPECT_EQ(two.DcpQueries({.tp = 1}), (Range{5, 9}));
  EXPECT_EQ(Make(DemoShape(), {.tp = 2, .dcp = 2}).DcpQueries({.tp = 1}), (Range{0, 9}));
  EXPECT_EQ(two.ranks[1].ffn_columns, (Range{768, 1536}));
  EXPECT_EQ(two.ranks[1].vocab_rows, (Range{24576, 49152}));
  // 5 + 2 heads' matrices where 6 would be even.
  EXPECT_DOUBLE_EQ(two.AttentionImbalance(), 7.0 / 6);
  EXPECT_DOUBLE_EQ(two.FfnImbalance(), 1.0);
  // Attention is a quarter of a layer's multiply-adds.
  EXPECT_DOUBLE_EQ(two.TpCeiling(), 2 / (0.25 * 7.0 / 6 + 0.75));
  EXPECT_EQ(Make(DemoShape(), {.tp = 3}).replicated_kv_heads, 0);
  EXPECT_EQ(Make(DemoShape(), {.tp = 9}).replicated_kv_heads, 6);
  EXPECT_EQ(Make(DemoShape(), {.tp = 4}).ranks[1].q_heads, (Range{2, 5}));
  EXPECT_DOUBLE_EQ(Make(DemoShape(), {.tp = 1}).TpCeiling(), 1.0);
}

TEST(Layout, CutsOddVocabularies) {
  for (const uint32_t vocab : {33U, 49153U, 262145U}) {
    ModelShape shape = DemoShape();
    shape.vocab_size = vocab;
    for (const uint32_t tp : {2U, 3U}) {
      const Layout layout = Make(shape, {.tp = tp});
      ExpectWhole(layout);
      EXPECT_EQ(layout.ranks.back().vocab_rows.end, vocab);
    }
  }
}

TEST(Layout, CopiesOfExpertsShareTheirTokens) {
  ModelShape shape = DemoShape();
  shape.num_experts = 10;
  shape.experts_per_token = 2;
  Split split{.tp = 2, .ep = 2, .cp = 2, .redundant_experts = 2};
  split.expert_loads = {90, 1, 1, 1, 1, 1, 1, 1, 1, 2};
  const Layout layout = Make(shape, split);
  ExpectWhole(layout);
  for (const RankLayout& rank : layout.ranks) {
    EXPECT_EQ(rank.experts.size(), 6);
    EXPECT_EQ(rank.experts.front(), 0);
  }
  // The ranks of an ep rank hold the same, by columns.
  EXPECT_EQ(layout.ranks[0].experts, layout.ranks[1].experts);
  EXPECT_NE(layout.ranks[0].experts, layout.ranks[2].experts);
  EXPECT_NEAR(layout.FfnImbalance(), 1.0, 0.02);
  split.redundant_experts = 0;
  EXPECT_GT(Make(shape, split).FfnImbalance(), 1.8);
  EXPECT_DOUBLE_EQ(layout.ExpertsComputedBy(0) + layout.ExpertsComputedBy(1), 10);
}

TEST(Layout, CutsTenExpertsOverFour) {
  ModelShape shape = DemoShape();
  shape.num_experts = 10;
  shape.experts_per_token = 2;
  const Layout layout = Make(shape, {.tp = 4, .ep = 4});
  ExpectWhole(layout);
  EXPECT_EQ(layout.ranks[0].experts, Counts({0, 1, 2}));
  EXPECT_EQ(layout.ranks[1].experts, Counts({3, 4}));
  EXPECT_EQ(layout.ranks[2].experts, Counts({5, 6, 7}));
  EXPECT_EQ(layout.ranks[3].experts, Counts({8, 9}));
  EXPECT_EQ(layout.ranks[0].ffn_columns, (Range{0, 1536}));
  EXPECT_DOUBLE_EQ(layout.FfnImbalance(), 3 / 2.5);
  // Two ranks an expert, halves of its columns.
  const Layout half = Make(shape, {.tp = 2, .ep = 2, .cp = 2});
  ExpectWhole(half);
  EXPECT_EQ(half.ranks[1].experts, Counts({0, 1, 2, 3, 4}));
  EXPECT_EQ(half.ranks[1].ffn_columns, (Range{768, 1536}));
  // Without ep every rank has its columns of all.
  EXPECT_EQ(Make(shape, {.tp = 4}).ranks[3].experts.size(), 10);
  // Shares reach the experts too.
  const Layout uneven = Make(shape, {.tp = 2, .ep = 2, .tp_shares = {4, 1}});
  EXPECT_EQ(uneven.ranks[0].experts.size(), 8);
  EXPECT_EQ(uneven.ranks[1].experts.size(), 2);
}

TEST(Layout, FollowsSharesAndStages) {
  const Layout layout =
      Make(DemoShape(), {.pp = 2, .tp = 2, .tp_shares = {3, 1}, .pp_layers = {10, 20}});
  ExpectWhole(layout);
  EXPECT_EQ(layout.ranks[0].q_heads, (Range{0, 7}));
  EXPECT_EQ(layout.ranks[1].ffn_columns, (Range{1152, 1536}));
  EXPECT_EQ(layout.ranks[0].layers, (Range{0, 10}));
  EXPECT_EQ(layout.ranks[3].layers, (Range{10, 30}));
  EXPECT_FALSE(layout.ranks[0].last_stage);
  EXPECT_TRUE(layout.ranks[3].last_stage);
}

TEST(Layout, EveryRunHasOneRankOfEachGroup) {
  RngStream rng(5);
  for (int i = 0; i < 300; ++i) {
    Split split;
    split.cp = Draw(&rng, 1, 4);
    split.dcp = Draw(&rng, 1, 3);
    split.tp = split.dcp * Draw(&rng, 1, 3);
    const uint32_t positions = Draw(&rng, 0, 20000);
    const uint32_t shards = split.cp * split.dcp;
    std::map<uint32_t, uint32_t> held;  // by dcp group
    for (uint32_t rank = 0; rank < split.ranks_per_replica(); ++rank) {
      const RankCoord at = CoordOf(split, rank);
      uint32_t counted = 0;
      for (uint32_t p = 0; p < positions; ++p) counted += HoldsRun(split, at, p / 512) ? 1 : 0;
      ASSERT_EQ(PositionsHeld(split, at, positions), counted) << split.ToString() << positions;
      EXPECT_LE(counted, positions / shards + 512);
      held[at.tp / split.dcp] += counted;
    }
    for (const auto& [group, sum] : held) EXPECT_EQ(sum, positions);
  }
  const Split split{.tp = 2, .cp = 3, .dcp = 2};
  EXPECT_TRUE(HoldsRun(split, {.tp = 0, .cp = 1}, 1));
  EXPECT_TRUE(HoldsRun(split, {.tp = 1, .cp = 1}, 4));
  EXPECT_FALSE(HoldsRun(split, {.tp = 0, .cp = 1}, 4));
}

TEST(ModelShape, TakesTheCountsOfAConfig) {
  ModelConfig config;
  config.hidden_size = 576;
  config.num_heads = 9;
  config.num_kv_heads = 3;
  config.head_dim = 64;
  config.ffn_size = 1536;
  config.vocab_size = 49152;
  config.layers.resize(30);
  config.post_norms = true;
  config.tied_embeddings = true;
  const ModelShape shape = ShapeOf(config);
  EXPECT_EQ(shape.num_layers, 30);
  EXPECT_EQ(shape.q_per_kv(), 3);
  EXPECT_EQ(shape.vocab_size, 49152);
  EXPECT_TRUE(shape.post_norms);
  EXPECT_TRUE(shape.tied_embeddings);
  const LayerCosts costs = CostsByWork(shape);
  ASSERT_EQ(costs.layers.size(), 30);
  EXPECT_EQ(costs.layers[29], 576.0 * (2 * 576 + 2 * 192) + 3.0 * 576 * 1536);
  EXPECT_EQ(costs.embedding, 576);
  EXPECT_EQ(costs.head, 576.0 * 49152);
}

}  // namespace
}  // namespace cleave

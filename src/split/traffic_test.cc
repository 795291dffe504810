#include "split/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>

#include "split/split_test_support.h"

namespace cleave {
namespace {

Layout Make(const ModelShape& shape, const Split& split) {
  Result<Layout> layout = MakeLayout(shape, split, CostsByWork(shape));
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  return std::move(layout).value();
}

using Bytes = std::vector<std::byte>;

// Packs every message of a step element by element, as a rank hands it over.
class PackingRank {
 public:
  PackingRank(const Layout& layout, uint32_t rank, uint64_t one_shot_max_bytes)
      : layout_(layout), rank_(layout.ranks[rank]), one_shot_max_bytes_(one_shot_max_bytes) {
    // Owners of a reduction's columns, one by one: the border before i is round(D · i / n).
    const uint32_t d = layout.shape.hidden_size;
    const uint32_t n = layout.split.tp;
    for (uint32_t c = 0; c < d; ++c) {
      uint32_t owner = 0;
      while (c >= (2 * d * (owner + 1) + n) / (2 * n)) ++owner;
      owner_.push_back(owner);
    }
  }

  // Which rows are wide is drawn; the counts say how many were.
  StepCounts Run(RngStream* rng) {
    StepCounts counts;
    counts.tokens = rng->Below(4) == 0 ? Draw(rng, 6, 120) : Draw(rng, 0, 5);
    if (layout_.split.teams > 1) counts.others.tokens = Draw(rng, 0, 40);
    const std::vector<Group> groups = DrawGroups(rng, &counts);
    const bool tp = layout_.split.tp > 1;
    if (rank_.first_stage) Embed(rng, &counts);
    for (uint32_t layer = rank_.layers.begin; layer < rank_.layers.end; ++layer) {
      AttendOverPositions(rng, &counts);
      if (tp) Reduce(rng, &counts);
      if (layout_.split.ep > 1) ShareRows(counts);
      if (layout_.split.ep > 1) {
        ExchangeExperts(rng, &counts);
      } else if (tp) {
        Reduce(rng, &counts);
      }
    }
    ShareNormed(counts);
    if (layout_.split.ep == 1) ShareRows(counts);
    if (!rank_.last_stage) {
      if (counts.tokens > 0) Hand(Axis::kPp, CommOp::kSend, Residual(counts.tokens));
      return counts;
    }
    for (const Group& group : groups) {
      if (tp && rank_.coord.cp == 0) Gather(group);
      Report(group);
    }
    return counts;
  }

  [[nodiscard]] const TrafficTotals& totals() const { return totals_; }

 private:
  // Results go out in groups of a few rows, some of either kind.
  struct Group {
    uint32_t greedy = 0;
    uint32_t full = 0;
    uint32_t others_greedy = 0;  // of other teams
    uint32_t others_full = 0;
  };

  std::vector<Group> DrawGroups(RngStream* rng, StepCounts* counts) const {
    std::vector<Group> groups(Draw(rng, 0, 3));
    for (Group& group : groups) {
      group = {.greedy = Draw(rng, 0, 2), .full = Draw(rng, 0, 2)};
      if (layout_.split.teams > 1) {
        group.others_greedy = Draw(rng, 0, 2);
        group.others_full = Draw(rng, 0, 2);
      }
      counts->others.greedy_rows += group.others_greedy;
      counts->others.greedy_groups += group.others_greedy > 0 && group.greedy == 0 ? 1 : 0;
      counts->others.full_rows += group.others_full;
      counts->greedy_rows += group.greedy;
      counts->greedy_groups += group.greedy > 0 ? 1 : 0;
      counts->full_rows += group.full;
      counts->full_groups += group.full > 0 ? 1 : 0;
    }
    return groups;
  }

  void Hand(Axis axis, CommOp op, const Bytes& bytes) { totals_.Add(axis, op, 1, bytes.size()); }
  static void Put(Bytes* out, size_t bytes) { out->resize(out->size() + bytes); }

  [[nodiscard]] Bytes Residual(uint32_t rows) const {
    Bytes out;
    for (uint32_t i = 0; i < rows * layout_.shape.hidden_size; ++i) Put(&out, sizeof(float));
    return out;
  }

  void Embed(RngStream* rng, StepCounts* counts) {
    Bytes out;
    for (uint32_t t = 0; t < counts->tokens; ++t) {
      const uint32_t id = Draw(rng, 0, layout_.shape.vocab_size - 1);
      if (!rank_.vocab_rows.contains(id)) continue;
      ++counts->embedded_tokens;
      for (uint32_t c = 0; c < layout_.shape.hidden_size; ++c) Put(&out, sizeof(float));
    }
    if (layout_.split.tp > 1 && counts->tokens > 0) Hand(Axis::kTp, CommOp::kAllGather, out);
  }

  // Enough rows for 16 a rank, and no ep.
  [[nodiscard]] bool NormsAreShared(uint32_t rows) const {
    return layout_.split.tp > 1 && layout_.split.ep == 1 && rows >= 16 * layout_.split.tp;
  }

  // Own rows normed to all, in int8 of one or two terms, bf16 or floats; sums of the others' back.
  void ReduceShared(RngStream* rng, StepCounts* counts, uint32_t rows) {
    const uint32_t own = RowsOfPlace(rows, layout_.split.tp, rank_.coord.tp);
    const uint32_t hidden = layout_.shape.hidden_size;
    const uint32_t wire = Draw(rng, 0, kRowWires - 1);
    const uint32_t terms = wire == 0 ? Draw(rng, 1, 2) : 1;
    counts->normed_rows[wire] += uint64_t{terms} * own;
    Bytes normed;
    for (uint32_t t = 0; t < own; ++t) {
      Put(&normed, sizeof(int8_t));
      for (uint32_t c = 0; c < terms * hidden; ++c) {
        Put(&normed, wire == 0 ? sizeof(int8_t) : wire == 1 ? sizeof(uint16_t) : sizeof(float));
      }
      // Blocks of 32 are whole on the wire, and have scales.
      const uint32_t blocks = (hidden + 31) / 32;
      if (wire == 0) Put(&normed, terms * (32 * blocks - hidden + blocks * sizeof(float)));
      if (wire == 1) Put(&normed, (32 * blocks - hidden) * sizeof(uint16_t));
    }
    Hand(Axis::kTp, CommOp::kAllGather, normed);
    Bytes sums;
    for (uint32_t t = own; t < rows; ++t) {
      const bool wide = rng->Below(3) == 0;
      counts->wide_rows += wide ? 1 : 0;
      Put(&sums, sizeof(uint8_t) + hidden * (wide ? sizeof(int64_t) : sizeof(int32_t)));
    }
    Hand(Axis::kTp, CommOp::kReduceScatter, sums);
  }

  void Reduce(RngStream* rng, StepCounts* counts) {
    if (counts->tokens == 0) return;
    const uint32_t rows = OwnRows(counts->tokens);
    if (NormsAreShared(rows)) return ReduceShared(rng, counts, rows);
    const uint64_t narrow = rows * (1 + 4 * uint64_t{layout_.shape.hidden_size});
    const bool one_shot = narrow <= one_shot_max_bytes_;
    Bytes sums;
    Bytes own;
    for (uint32_t t = 0; t < rows; ++t) {
      const bool wide = rng->Below(3) == 0;
      counts->wide_rows += wide ? 1 : 0;
      Put(&sums, sizeof(uint8_t));
      for (const uint32_t owner : owner_) {
        const bool mine = owner == rank_.coord.tp;
        if (one_shot || !mine) Put(&sums, wide ? sizeof(int64_t) : sizeof(int32_t));
        if (mine) Put(&own, sizeof(float));
      }
    }
    if (one_shot) return Hand(Axis::kTp, CommOp::kAllReduce, sums);
    Hand(Axis::kTp, CommOp::kReduceScatter, sums);
    Hand(Axis::kTp, CommOp::kAllGather, own);
  }

  [[nodiscard]] bool RowsAreShared(uint32_t tokens) const {
    return layout_.split.cp > 1 && tokens >= 16 * layout_.split.cp;
  }
  // Rows that the rank computes under cp.
  [[nodiscard]] uint32_t OwnRows(uint32_t tokens) const {
    return RowsAreShared(tokens) ? RowsOfPlace(tokens, layout_.split.cp, rank_.coord.cp) : tokens;
  }
  // Rows that it routes under ep.
  [[nodiscard]] uint32_t OwnedRows(uint32_t tokens) const {
    return RowsOfPlace(tokens, layout_.split.tp * layout_.split.cp,
                       rank_.coord.tp * layout_.split.cp + rank_.coord.cp);
  }
  // Row by row: row t belongs to the first of `members` places whose border is past it.
  static uint32_t RowsOfPlace(uint32_t tokens, uint32_t members, uint32_t place) {
    uint32_t owned = 0;
    for (uint32_t t = 0; t < tokens; ++t) {
      uint32_t owner = 0;
      while (t >= (2 * tokens * (owner + 1) + members) / (2 * members)) ++owner;
      owned += owner == place ? 1 : 0;
    }
    return owned;
  }

  void ShareNormed(const StepCounts& counts) {
    const uint32_t rows = OwnRows(counts.tokens);
    if (!NormsAreShared(rows)) return;
    Hand(Axis::kTp, CommOp::kAllGather,
         Residual(RowsOfPlace(rows, layout_.split.tp, rank_.coord.tp)));
  }

  void ShareRows(const StepCounts& counts) {
    if (!RowsAreShared(counts.tokens)) return;
    Hand(Axis::kCp, CommOp::kAllGather, Residual(OwnRows(counts.tokens)));
  }

  // A few bins of d counts and a mass, drawn.
  Bytes Bins(RngStream* rng, CpCounts::Bins* counted) const {
    Bytes out;
    for (uint32_t bins = Draw(rng, 1, 4); bins > 0; --bins) {
      const bool wide = rng->Below(3) == 0;
      ++(wide ? counted->wide : counted->narrow);
      for (uint32_t i = 0; i <= layout_.shape.head_dim; ++i) Put(&out, wide ? 16 : 8);
    }
    return out;
  }

  void AttendOverPositions(RngStream* rng, StepCounts* counts) {
    const Split& split = layout_.split;
    if (counts->tokens == 0 || split.cp * split.dcp == 1) return;
    const auto floats = [&](uint32_t rows, uint32_t heads) {
      return Bytes(size_t{rows} * heads * layout_.shape.head_dim * sizeof(float));
    };
    const bool shared = RowsAreShared(counts->tokens);
    if (shared) {
      for (const uint32_t heads :
           {rank_.q_heads.size(), rank_.kv_heads.size(), rank_.kv_heads.size()}) {
        Hand(Axis::kCp, CommOp::kAllGather, floats(OwnRows(counts->tokens), heads));
      }
    }
    if (split.dcp > 1) {
      uint32_t heads = 0;
      for (const uint32_t rank : DcpGroupOf(split, rank_.rank)) {
        heads += layout_.ranks[rank].q_heads.size();
      }
      Hand(Axis::kCp, CommOp::kAllGather, floats(counts->tokens, rank_.q_heads.size()));
      Hand(Axis::kCp, CommOp::kAllGather, Bytes(size_t{counts->tokens} * heads * 4));
      Hand(Axis::kCp, CommOp::kAllToAll, Bins(rng, &counts->cp.exchanged));
    }
    if (split.cp == 1) return;
    Hand(Axis::kCp, CommOp::kAllGather, Bytes(size_t{counts->tokens} * rank_.q_heads.size() * 4));
    if (shared) return Hand(Axis::kCp, CommOp::kAllToAll, Bins(rng, &counts->cp.exchanged));
    ++counts->cp.gathers;
    Hand(Axis::kCp, CommOp::kAllGather, Bins(rng, &counts->cp.gathered));
  }

  void ExchangeExperts(RngStream* rng, StepCounts* counts) {
    const uint32_t tokens = counts->tokens + counts->others.tokens;
    if (tokens == 0) return;
    const uint32_t own = OwnedRows(counts->tokens);
    const uint32_t others = layout_.split.teams * layout_.split.tp * layout_.split.cp - 1;
    const uint32_t hidden = layout_.shape.hidden_size;
    Bytes routes;
    Bytes rows;
    for (uint32_t row = 0; row < own; ++row) {
      for (uint32_t i = 0; i < layout_.shape.experts_per_token; ++i) {
        Put(&routes, sizeof(uint16_t) + sizeof(float));
      }
      Put(&routes, sizeof(int8_t));
      for (uint32_t copies = Draw(rng, 0, others); copies > 0; --copies) {
        const uint32_t wire = Draw(rng, 0, kRowWires - 1);
        ++counts->ep.rows_sent[wire];
        for (uint32_t c = 0; c < (wire == 2 ? hidden : (hidden + 31) / 32 * 32); ++c) {
          Put(&rows, wire == 0 ? sizeof(int8_t) : wire == 1 ? sizeof(uint16_t) : sizeof(float));
          if (wire == 0 && c % 32 == 0) Put(&rows, sizeof(float));
        }
      }
    }
    Hand(Axis::kEp, CommOp::kAllGather, routes);
    Hand(Axis::kEp, CommOp::kAllToAll, rows);
    const uint32_t returned = Draw(rng, 0, tokens - own);
    Bytes totals;
    for (uint32_t row = 0; row < returned; ++row) {
      const bool wide = rng->Below(3) == 0;
      ++counts->ep.rows_returned;
      counts->ep.wide_returned += wide ? 1 : 0;
      for (uint32_t c = 0; c < hidden; ++c) Put(&totals, wide ? sizeof(int64_t) : sizeof(int32_t));
    }
    Hand(Axis::kEp, CommOp::kAllToAll, Bytes(returned));
    Hand(Axis::kEp, CommOp::kAllToAll, totals);
    const bool alone = layout_.split.tp * layout_.split.cp == 1;
    if (!alone && counts->tokens > 0) Hand(Axis::kEp, CommOp::kAllGather, Residual(own));
  }

  static Bytes Candidates(uint32_t rows) {
    Bytes best;
    for (uint32_t r = 0; r < rows; ++r) Put(&best, sizeof(float) + sizeof(int32_t));
    return best;
  }

  void Gather(const Group& group) {
    if (group.greedy > 0) Hand(Axis::kTp, CommOp::kAllGather, Candidates(group.greedy));
    Bytes logits;
    for (uint32_t r = 0; r < group.full; ++r) {
      for (uint32_t v = 0; v < layout_.shape.vocab_size; ++v) {
        if (rank_.vocab_rows.contains(v)) Put(&logits, sizeof(float));
      }
    }
    if (group.full > 0) Hand(Axis::kTp, CommOp::kAllGather, logits);
  }

  // The first team's first rank has those of all teams, and keeps them where it leads.
  void Report(const Group& group) {
    if (rank_.coord.tp != 0 || rank_.coord.cp != 0) return;
    if (rank_.coord.team != 0) return Send(Axis::kEp, group.greedy, group.full);
    if (layout_.split.pp == 1) return;
    Send(Axis::kPp, group.greedy + group.others_greedy, group.full + group.others_full);
  }
  void Send(Axis axis, uint32_t greedy, uint32_t full) {
    if (greedy > 0) Hand(axis, CommOp::kSend, Candidates(greedy));
    for (uint32_t r = 0; r < full; ++r) {
      Bytes row;
      Put(&row, layout_.shape.vocab_size * sizeof(float));
      Hand(axis, CommOp::kSend, row);
    }
  }

  const Layout& layout_;
  const RankLayout& rank_;
  const uint64_t one_shot_max_bytes_;
  std::vector<uint32_t> owner_;  // [D]
  TrafficTotals totals_;
};

TEST(Traffic, IsWhatPackingElementByElementHandsOver) {
  RngStream rng(1);
  int priced = 0;
  for (int i = 0; i < 1500; ++i) {
    ModelShape shape = DrawShape(&rng);
    shape.hidden_size = Draw(&rng, 1, 40);
    const Result<Layout> layout = MakeLayout(shape, DrawSplit(&rng, shape), CostsByWork(shape));
    if (!layout.ok()) continue;
    for (uint32_t rank = 0; rank < layout->ranks.size(); ++rank) {
      TrafficOptions options;
      options.one_shot_max_bytes = rng.Below(400);
      PackingRank packing(*layout, rank, options.one_shot_max_bytes);
      const StepCounts counts = packing.Run(&rng);
      ASSERT_EQ(TrafficOfStep(*layout, rank, counts, options), packing.totals().List())
          << layout->split.ToString() << " rank " << rank;
      priced += packing.totals().List().empty() ? 0 : 1;
    }
  }
  EXPECT_GT(priced, 2000);
}

TEST(Traffic, OneRankExchangesNothing) {
  const Layout layout = Make(DemoShape(), {.dp = 3});
  const StepCounts counts{.tokens = 9,
                          .greedy_rows = 2,
                          .greedy_groups = 1,
                          .full_rows = 1,
                          .full_groups = 1,
                          .embedded_tokens = 9};
  EXPECT_TRUE(TrafficOfStep(layout, 0, counts, {}).empty());
  EXPECT_TRUE(TrafficOfStep(layout, 1, counts, {}).empty()) << "there is no rank 1";
}

TEST(Traffic, DemoModelOverTwo) {
  const Layout layout = Make(DemoShape(), {.tp = 2});
  const StepCounts counts{.tokens = 1, .greedy_rows = 1, .greedy_groups = 1, .embedded_tokens = 1};
  // 60 reductions of a flag and 576 int32; the embedding row and a candidate.
  const std::vector<Transfer> expected{{Axis::kTp, CommOp::kAllReduce, 60, 60 * 2305},
                                       {Axis::kTp, CommOp::kAllGather, 2, 576 * 4 + 8}};
  TrafficOptions options;
  options.one_shot_max_bytes = 2305;
  EXPECT_EQ(TrafficOfStep(layout, 0, counts, options), expected);
  options.one_shot_max_bytes = 2304;
  const std::vector<Transfer> two_shot{
      {Axis::kTp, CommOp::kAllGather, 62, 60 * 288 * 4 + 576 * 4 + 8},
      {Axis::kTp, CommOp::kReduceScatter, 60, 60 * (1 + 288 * 4)}};
  EXPECT_EQ(TrafficOfStep(layout, 0, counts, options), two_shot);
}

TEST(Traffic, WideRowsTakeEightBytesAColumn) {
  const Layout layout = Make(DemoShape(), {.tp = 2});
  StepCounts counts{.tokens = 2, .wide_rows = 3};
  TrafficOptions options;
  options.one_shot_max_bytes = 1 << 20;
  const uint64_t narrow = 60 * 2 * 2305;
  EXPECT_EQ(TrafficOfStep(layout, 0, counts, options)[0].bytes, narrow + uint64_t{3} * 576 * 4);
}

TEST(Traffic, StagesHandOnRowsAndReturnResults) {
  const Layout layout = Make(DemoShape(), {.pp = 3, .tp = 3});
  const StepCounts counts{
      .tokens = 4, .greedy_rows = 3, .greedy_groups = 2, .full_rows = 1, .full_groups = 1};
  const auto sends = [&](uint32_t rank) {
    Transfer found{Axis::kPp, CommOp::kSend, 0, 0};
    for (const Transfer& t : TrafficOfStep(layout, rank, counts, {})) {
      if (t.axis == Axis::kPp) found = t;
    }
    return found;
  };
  for (uint32_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(sends(rank), (Transfer{Axis::kPp, CommOp::kSend, 1, 4 * 576 * 4}));
  }
  EXPECT_EQ(sends(6), (Transfer{Axis::kPp, CommOp::kSend, 3, 3 * 8 + 49152 * 4}));
  EXPECT_EQ(sends(7).calls, 0);
  EXPECT_EQ(sends(8).calls, 0);
}

TEST(Traffic, PartsOfAStepAddUp) {
  const Layout layout = Make(DemoShape(), {.pp = 2, .tp = 3});
  const StepCounts whole{.tokens = 40,
                         .greedy_rows = 9,
                         .greedy_groups = 3,
                         .full_rows = 4,
                         .full_groups = 2,
                         .embedded_tokens = 11,
                         .wide_rows = 5};
  const StepCounts forward{.tokens = 40, .embedded_tokens = 11, .wide_rows = 5};
  const StepCounts results{.greedy_rows = 9, .greedy_groups = 3, .full_rows = 4, .full_groups = 2};
  for (uint32_t rank = 0; rank < layout.ranks.size(); ++rank) {
    TrafficTotals parts;
    AddTrafficOfStep(layout, rank, results, {}, &parts);
    AddTrafficOfStep(layout, rank, forward, {}, &parts);
    EXPECT_EQ(parts.List(), TrafficOfStep(layout, rank, whole, {})) << rank;
  }
}

// Chances by drawing experts again and again.
TEST(Traffic, ExpectsWhatEvenRoutingSends) {
  ModelShape shape = DemoShape();
  shape.num_experts = 10;
  shape.experts_per_token = 3;
  const Layout layout = Make(shape, {.tp = 3, .ep = 3});
  RngStream rng(9);
  constexpr uint32_t kTokens = 3000;
  std::array<double, 3> reached{};
  for (uint32_t t = 0; t < kTokens; ++t) {
    std::array<bool, 3> goes{};
    std::array<bool, 10> taken{};
    for (uint32_t left = 3; left > 0;) {
      const uint32_t expert = Draw(&rng, 0, 9);
      if (taken[expert]) continue;
      taken[expert] = true;
      --left;
      for (uint32_t rank = 0; rank < 3; ++rank) {
        const std::vector<uint32_t>& held = layout.ranks[rank].experts;
        goes[rank] = goes[rank] || std::find(held.begin(), held.end(), expert) != held.end();
      }
    }
    for (uint32_t rank = 0; rank < 3; ++rank) reached[rank] += goes[rank] ? 1.0 / kTokens : 0;
  }
  const double layers = shape.num_layers;
  // All of a layer's experts take int8, as those of half of the layers do below.
  std::vector<LayerWires> wires(shape.num_layers, {.experts = RowWire::kInt8});
  const EpCounts counts = ExpectedEpCounts(layout, 0, {.tokens = kTokens}, wires);
  const double sent = layers * kTokens / 3 * (reached[1] + reached[2]);
  EXPECT_NEAR(static_cast<double>(counts.rows_sent[0]), sent, 0.03 * sent);
  EXPECT_EQ(counts.rows_sent[2], 0U);
  const double returned = layers * kTokens * 2 / 3 * reached[0];
  EXPECT_NEAR(static_cast<double>(counts.rows_returned), returned, 0.03 * returned);
  EXPECT_EQ(ExpectedEpCounts(Make(shape, {.tp = 3}), 0, {.tokens = kTokens}, wires), EpCounts{});
  // The same ranks as teams, all rows in the first: it sends, the others return.
  const Layout teams = Make(shape, {.teams = 3, .ep = 3});
  const EpCounts first = ExpectedEpCounts(teams, 0, {.tokens = kTokens}, wires);
  EXPECT_NEAR(static_cast<double>(first.rows_sent[0]), 3 * sent, 0.1 * sent);
  EXPECT_EQ(first.rows_returned, 0U);
  const EpCounts other = ExpectedEpCounts(teams, 1, {.others = {.tokens = kTokens}}, wires);
  EXPECT_EQ(other.rows_sent[0], 0U);
  const double all = layers * kTokens * reached[1];
  EXPECT_NEAR(static_cast<double>(other.rows_returned), all, 0.03 * all);
  for (uint32_t layer = 0; layer < wires.size(); layer += 2) wires[layer] = {};
  const EpCounts mixed = ExpectedEpCounts(layout, 0, {.tokens = kTokens}, wires);
  EXPECT_NEAR(static_cast<double>(mixed.rows_sent[0]), sent / 2, 0.03 * sent);
  EXPECT_EQ(mixed.rows_sent[0], mixed.rows_sent[2]);
  EXPECT_EQ(mixed.rows_returned, counts.rows_returned);
}

TEST(Traffic, ExpectsNormedRowsAsEachLayerTakesThem) {
  const ModelShape shape = DemoShape();
  const Layout layout = Make(shape, {.pp = 3, .tp = 2});
  std::vector<LayerWires> wires(shape.num_layers);
  const Range layers = layout.ranks[2].layers;  // of the second stage
  wires[layers.begin] = {.attention = RowWire::kInt8, .ffn = RowWire::kInt8};
  wires[layers.begin + 1] = {.attention = RowWire::kInt8, .ffn = RowWire::kFloat};
  wires[layers.begin + 2] = {.attention = RowWire::kBf16, .ffn = RowWire::kInt8};
  const uint64_t rest = 2 * (layers.size() - 3);
  // Rows 0 to 16 of 33 are the first tp rank's; int8 rows of attention have two terms.
  EXPECT_EQ(ExpectedNormedRows(layout, 2, 33, wires),
            (WireCounts{17 * (3 + 2 + 1), 17, 17 * (1 + rest)}));
  EXPECT_EQ(ExpectedNormedRows(layout, 3, 33, wires),
            (WireCounts{16 * (3 + 2 + 1), 16, 16 * (1 + rest)}));
  EXPECT_EQ(ExpectedNormedRows(layout, 2, 31, wires), WireCounts{}) << "too few to share";
  EXPECT_EQ(ExpectedNormedRows(layout, 0, 33, {}),
            (WireCounts{0, 0, uint64_t{34} * layout.ranks[0].layers.size()}));
}

TEST(Traffic, ExpectsPartialsOfTheRowsThatSeeARun) {
  const ModelShape shape = DemoShape();
  const Layout layout = Make(shape, {.cp = 2});
  const uint64_t heads = uint64_t{shape.num_layers} * shape.num_heads;
  const auto exchanged = [&](uint32_t rank, uint32_t tokens) {
    return ExpectedCpCounts(layout, rank, tokens, StepKind::kPrefill).exchanged.narrow;
  };
  // The first run is rank 0's, and rows 0 to 255 are: the others go to rank 1.
  EXPECT_EQ(exchanged(0, 512), heads * 256);
  EXPECT_EQ(exchanged(1, 512), 0U);
  // Rows from 512 on see rank 1's run: of these, rank 0 has those before 600.
  EXPECT_EQ(exchanged(0, 1200), heads * 600);
  EXPECT_EQ(exchanged(1, 1200), heads * 88);
  const CpCounts few = ExpectedCpCounts(layout, 1, 9, StepKind::kPrefill);
  EXPECT_EQ(few.gathered.narrow, 0U);
  EXPECT_EQ(few.gathers, shape.num_layers);
  EXPECT_EQ(ExpectedCpCounts(layout, 1, 9, StepKind::kDecode).gathered.narrow, heads * 9);
}

// Two teams of two ranks: 3 rows in one, none in the other.
TEST(Traffic, ATeamWithoutRowsTakesPartInEpAlone) {
  ModelShape shape = DemoShape();
  shape.num_experts = 4;
  shape.experts_per_token = 2;
  const Layout layout = Make(shape, {.teams = 2, .tp = 2, .ep = 4});
  const StepCounts with{.tokens = 3, .greedy_rows = 3, .greedy_groups = 1, .embedded_tokens = 3};
  const StepCounts without{.others = {.tokens = 3, .greedy_rows = 3, .greedy_groups = 1}};
  const auto figures = [&](uint32_t rank, const StepCounts& counts) {
    TrafficTotals totals;
    AddTrafficOfStep(layout, rank, counts, {}, &totals);
    return totals;
  };
  // Rows 0 and 1 of 3 are rank 0's: 13 bytes of route, 576 fp32 of each, in 30 layers.
  EXPECT_EQ(figures(0, with).of(Axis::kEp, CommOp::kAllGather),
            (TrafficTotals::Entry{.calls = 60, .bytes = 30 * 2 * (13 + 576 * 4)}));
  EXPECT_EQ(figures(0, with).of(Axis::kEp, CommOp::kSend).calls, 0U) << "it leads";
  EXPECT_EQ(figures(2, without).List(),
            (std::vector<Transfer>{{Axis::kEp, CommOp::kAllGather, 30, 0},
                                   {Axis::kEp, CommOp::kAllToAll, 90, 0}}));
  // The other way round its results go to the leader.
  EXPECT_EQ(figures(2, with).of(Axis::kEp, CommOp::kSend),
            (TrafficTotals::Entry{.calls = 1, .bytes = 24}));
  EXPECT_EQ(figures(3, with).of(Axis::kEp, CommOp::kSend).calls, 0U);
}

TEST(Traffic, VllmMovesTwoTensorsAHop) {
  ModelShape shape = DemoShape();
  shape.num_heads = 16;
  shape.num_kv_heads = 4;
  shape.vocab_size = 50000;
  const Layout layout = Make(shape, {.pp = 2, .tp = 2, .pp_layers = {20, 10}});
  TrafficOptions options;
  options.dialect = Dialect::kVllm;
  const StepCounts counts{.tokens = 8, .greedy_rows = 2, .full_rows = 1};
  const uint64_t rows = 8 * 576 * 2;
  const std::vector<Transfer> first{{Axis::kPp, CommOp::kSend, 2, rows},
                                    {Axis::kTp, CommOp::kAllReduce, 41, 41 * rows}};
  EXPECT_EQ(TrafficOfStep(layout, 0, counts, options), first);
  // The receiver gathers the two halves; 50000 rows are padded to 50048.
  const std::vector<Transfer> last{
      {Axis::kTp, CommOp::kAllReduce, 20, 20 * rows},
      {Axis::kTp, CommOp::kAllGather, 3, rows + uint64_t{3} * 25024 * 2}};
  EXPECT_EQ(TrafficOfStep(layout, 2, counts, options), last);
  const Layout deep = Make(shape, {.pp = 2});
  const std::vector<Transfer> whole{{Axis::kPp, CommOp::kSend, 2, 2 * rows}};
  EXPECT_EQ(TrafficOfStep(deep, 0, counts, options), whole);
  EXPECT_TRUE(TrafficOfStep(deep, 1, counts, options).empty());
}

TEST(Traffic, TotalsAddUp) {
  TrafficTotals a;
  a.Add(Axis::kCp, CommOp::kSend, 1, 10);
  a.Add(Axis::kPp, CommOp::kAllGather, 2, 0);
  TrafficTotals b = a;
  b.Add(a);
  const std::vector<Transfer> expected{{Axis::kPp, CommOp::kAllGather, 4, 0},
                                       {Axis::kCp, CommOp::kSend, 2, 20}};
  EXPECT_EQ(b.List(), expected);
  EXPECT_EQ(b.of(Axis::kCp, CommOp::kSend).bytes, 20);
}

TEST(Traffic, NamesItsOperations) {
  EXPECT_STREQ(CommOpName(CommOp::kAllReduce), "all_reduce");
  EXPECT_STREQ(CommOpName(CommOp::kAllGather), "all_gather");
  EXPECT_STREQ(CommOpName(CommOp::kReduceScatter), "reduce_scatter");
  EXPECT_STREQ(CommOpName(CommOp::kAllToAll), "all_to_all");
  EXPECT_STREQ(CommOpName(CommOp::kSend), "send");
}

TEST(Traffic, SaysWhatItLeavesOut) {
  EXPECT_TRUE(IsWhollyPriced({.tp = 2, .cp = 2, .dcp = 2}, Dialect::kCleave));
  EXPECT_TRUE(IsWhollyPriced({.dp = 2, .pp = 2, .tp = 2}, Dialect::kVllm));
  EXPECT_FALSE(IsWhollyPriced({.cp = 2}, Dialect::kVllm));
  EXPECT_FALSE(IsWhollyPriced({.tp = 2, .dcp = 2}, Dialect::kVllm));
}

}  // namespace
}  // namespace cleave

#include "kernels/attention_partial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/attention_test_support.h"
#include "kernels/isa_fixture.h"

namespace cleave {
namespace {

using attention_test::Bytes;
using attention_test::PagedHead;
using attention_test::Query;
using attention_test::SameOrBothNan;

constexpr uint32_t kRun = 512;
constexpr int32_t kNothing = std::numeric_limits<int32_t>::min();

struct Shape {
  KvShape kv;
  uint32_t heads;
  uint32_t tokens;
  uint32_t context;  // the last token's position, and one
  uint32_t window;
  uint32_t ranks;
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << NameOf(s.kv.type) << " d=" << s.kv.head_dim << " block=" << s.kv.block_tokens
             << " heads=" << s.heads << " tokens=" << s.tokens << " context=" << s.context
             << " window=" << s.window << " ranks=" << s.ranks;
}

// What one rank found: records [tokens][heads + 1], of which the last of a token is not one.
struct Records {
  std::vector<PartialCode> codes;
  std::vector<int64_t> counts;
  std::vector<Int128> wide;
};

Records Find(Isa isa, PagedHead head, const Query& query, uint32_t window, AttentionRuns runs) {
  head.KeepRuns(runs);
  const uint32_t d = head.shape().head_dim;
  const size_t stride = query.heads() + 1;
  const size_t count = query.tokens() * stride;
  Records found;
  found.codes.assign(count, PartialCode::Narrow(-77, 1));
  found.counts.assign(count * PartialCounts(d), 0x5A5A5A5A);
  found.wide.assign(count * PartialCounts(d), 0x5A5A5A5A);
  AttentionScratch scratch(d);
  AttentionPartial(isa, head.shape(), query.Job(head, window, 0, query.tokens()), runs,
                   {found.codes.data(), found.counts.data(), found.wide.data(), stride}, &scratch);
  for (size_t last = query.heads(); last < count; last += stride) {
    EXPECT_EQ(found.codes[last], PartialCode::Narrow(-77, 1)) << "between two tokens";
  }
  return found;
}

std::vector<Records> FindAll(Isa isa, const PagedHead& head, const Query& query, uint32_t window,
                             uint32_t ranks) {
  std::vector<Records> all;
  for (uint32_t r = 0; r < ranks; ++r) all.push_back(Find(isa, head, query, window, {ranks, r}));
  return all;
}

// The rows of all ranks, added up in several ways.
class Merger {
 public:
  Merger(uint32_t d, const Query& query, std::vector<Records> ranks, uint64_t seed)
      : d_(d), query_(query), ranks_(std::move(ranks)), random_(seed), sum_(d) {
    const size_t count = ranks_[0].codes.size();
    for (const Records& r : ranks_) codes_.insert(codes_.end(), r.codes.begin(), r.codes.end());
    for (size_t i = 0; i < count; ++i) {
      highest_.push_back(
          HighestBin(codes_.data() + i, count, static_cast<uint32_t>(ranks_.size())));
    }
  }

  [[nodiscard]] const std::vector<Records>& ranks() const { return ranks_; }
  [[nodiscard]] int32_t highest(size_t record) const { return highest_[record]; }

  // Every rank's counts through the wire, in random order.
  std::vector<float> ByWire(Isa isa) {
    return EachRow(isa, [&](size_t record) {
      sum_.Start(highest_[record]);
      for (size_t rank : Order()) AddByWire(ranks_[rank], record, &sum_);
    });
  }

  // Records straight from memory.
  std::vector<float> ByRecord(Isa isa) {
    return EachRow(isa, [&](size_t record) {
      sum_.Start(highest_[record]);
      for (size_t rank : Order()) {
        const Records& r = ranks_[rank];
        sum_.AddRecord(r.codes[record], CountsOf(r, record), WideOf(r, record));
      }
    });
  }

  // Groups of ranks first, each beside its own highest bin or the row's; then the groups' records,
  // by the wire or straight.
  std::vector<float> ByGroups(Isa isa) {
    return EachRow(isa, [&](size_t record) {
      const size_t groups = 1 + random_() % ranks_.size();
      std::vector<std::vector<size_t>> members(groups);
      for (size_t rank : Order()) members[random_() % groups].push_back(rank);
      Records level = Level(groups);
      for (size_t g = 0; g < groups; ++g) SumGroup(record, members[g], g, &level);
      sum_.Start(HighestBin(level.codes.data(), 1, static_cast<uint32_t>(groups)));
      for (size_t g = 0; g < groups; ++g) {
        if (random_() % 2 == 0) {
          sum_.AddRecord(level.codes[g], CountsOf(level, g), WideOf(level, g));
        } else {
          AddByWire(level, g, &sum_, highest_[record]);
        }
      }
    });
  }

 private:
  const int64_t* CountsOf(const Records& r, size_t record) const {
    return r.counts.data() + record * PartialCounts(d_);
  }
  const Int128* WideOf(const Records& r, size_t record) const {
    return r.wide.data() + record * PartialCounts(d_);
  }
  Records Level(size_t groups) const {
    const size_t counts = groups * PartialCounts(d_);
    return {std::vector<PartialCode>(groups), std::vector<int64_t>(counts, -1),
            std::vector<Int128>(counts, -1)};
  }

  void SumGroup(size_t record, const std::vector<size_t>& members, size_t group, Records* level) {
    int32_t highest = highest_[record];
    if (random_() % 2 == 0) {
      std::vector<PartialCode> codes;
      codes.reserve(members.size());
      for (size_t rank : members) codes.push_back(ranks_[rank].codes[record]);
      highest = HighestBin(codes.data(), 1, static_cast<uint32_t>(codes.size()));
    }
    sum_.Start(highest);
    for (size_t rank : members) AddByWire(ranks_[rank], record, &sum_, highest);
    level->codes[group] = sum_.Export(level->counts.data() + group * PartialCounts(d_),
                                      level->wide.data() + group * PartialCounts(d_));
  }

  void AddByWire(const Records& from, size_t record, PartialSum* sum) {
    AddByWire(from, record, sum, highest_[record]);
  }

  // Not aligned, with bytes behind that must stay.
  void AddByWire(const Records& from, size_t record, PartialSum* sum, int32_t highest) {
    const PartialCode code = from.codes[record];
    const uint64_t bytes = PartialBytes(code, highest, d_);
    EXPECT_EQ(bytes, code.CountingBins(highest) * (d_ + 1) * (code.wide() ? 16 : 8));
    wire_.assign(bytes + 9, std::byte{0xA5});
    StorePartial(code, highest, d_, CountsOf(from, record), WideOf(from, record), wire_.data() + 1);
    EXPECT_EQ(wire_[0], std::byte{0xA5});
    EXPECT_TRUE(std::all_of(wire_.begin() + static_cast<ptrdiff_t>(bytes) + 1, wire_.end(),
                            [](std::byte b) { return b == std::byte{0xA5}; }));
    sum->Add(code, wire_.data() + 1);
  }

  std::vector<size_t> Order() {
    std::vector<size_t> order(ranks_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

  template <typename Add>
  std::vector<float> EachRow(Isa isa, const Add& add) {
    std::vector<float> out(size_t{query_.tokens()} * query_.heads() * d_, -1.0F);
    for (size_t t = 0; t < query_.tokens(); ++t) {
      for (size_t h = 0; h < query_.heads(); ++h) {
        add(t * (query_.heads() + 1) + h);
        sum_.Finish(isa, out.data() + (t * query_.heads() + h) * d_);
      }
    }
    return out;
  }

  uint32_t d_;
  const Query& query_;
  std::vector<Records> ranks_;
  std::mt19937_64 random_;
  PartialSum sum_;
  std::vector<PartialCode> codes_;  // [ranks][records]
  std::vector<int32_t> highest_;    // [records]
  std::vector<std::byte> wire_;
};

void ExpectAllWays(Isa isa, Merger* merger, const std::vector<float>& truth) {
  EXPECT_TRUE(SameOrBothNan(merger->ByWire(isa), truth)) << IsaName(isa);
  EXPECT_TRUE(SameOrBothNan(merger->ByRecord(isa), truth)) << IsaName(isa);
  EXPECT_TRUE(SameOrBothNan(merger->ByGroups(isa), truth)) << IsaName(isa);
}

// A rank has a code for a row exactly where the row sees a position of its runs.
void ExpectEmptyWhereNothingIsSeen(const Shape& s, const Query& query, const Merger& merger) {
  for (uint32_t t = 0; t < query.tokens(); ++t) {
    const uint32_t end = query.first() + t + 1;
    const uint32_t begin = s.window == 0 || s.window >= end ? 0 : end - s.window;
    for (uint32_t r = 0; r < s.ranks; ++r) {
      bool seen = false;
      for (uint32_t run = begin / kRun; run * kRun < end; ++run) seen |= run % s.ranks == r;
      for (uint32_t h = 0; h < query.heads(); ++h) {
        const PartialCode code = merger.ranks()[r].codes[t * (query.heads() + 1) + h];
        ASSERT_EQ(code.empty(), !seen) << "token " << t << " rank " << r;
        ASSERT_FALSE(code.broken());
      }
    }
  }
}

void ExpectTheBitsOfAttention(const Shape& s, const std::vector<Isa>& isas, uint64_t seed) {
  SCOPED_TRACE(testing::PrintToString(s));
  const PagedHead head(s.kv, s.context, seed);
  const Query query(s.kv.head_dim, s.heads, s.tokens, s.context - s.tokens, seed + 1);
  const auto truth = query.Run(SupportedIsas().back(), head, s.window, s.tokens);
  std::vector<Records> first;
  for (Isa isa : isas) {
    Merger merger(s.kv.head_dim, query, FindAll(isa, head, query, s.window, s.ranks), seed);
    ExpectEmptyWhereNothingIsSeen(s, query, merger);
    EXPECT_EQ(Bytes(merger.ByWire(isa)), Bytes(truth)) << IsaName(isa);
    ExpectAllWays(isa, &merger, truth);
    if (first.empty()) first = merger.ranks();
    for (uint32_t r = 0; r < s.ranks; ++r) EXPECT_EQ(merger.ranks()[r].codes, first[r].codes);
  }
}

std::vector<Isa> VectorIsas() {
  auto isas = SupportedIsas();
  if (isas.size() > 1) isas.erase(isas.begin());
  return isas;
}

TEST(AttentionPartial, EveryNumberOfRanksGivesTheBitsOfAttention) {
  const ScopedFpMode mode;
  // Three runs and more for each of nine ranks; then more ranks than runs.
  for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
    ExpectTheBitsOfAttention({{KvType::kF16, 16, 16}, 3, 7, 28 * kRun + 100, 0, ranks},
                             VectorIsas(), ranks);
  }
  for (uint32_t ranks : {4U, 12U, 40U}) {
    ExpectTheBitsOfAttention({{KvType::kF32, 20, 128}, 2, 33, 2 * kRun + 11, 0, ranks},
                             VectorIsas(), ranks);
  }
}

const Shape kShapes[] = {
    // A window shorter than a run, a run long, longer; over and beside the edges of runs.
    {{KvType::kF16, 64, 16}, 3, 64, 1700, 100, 2},
    {{KvType::kF16, 64, 128}, 3, 33, 1024 + 20, 512, 2},
    {{KvType::kBF16, 80, 16}, 2, 33, 1536 + 3, 511, 3},
    {{KvType::kF32, 64, 128}, 4, 64, 2600, 1200, 3},
    {{KvType::kF16, 128, 16}, 4, 7, 3100, 1025, 2},
    {{KvType::kBF16, 20, 16}, 1, 64, 1536 + 40, 1, 3},
    // First tokens: later runs are not there yet.
    {{KvType::kF16, 64, 16}, 3, 1, 1, 0, 2},
    {{KvType::kBF16, 16, 128}, 5, 64, 64, 0, 3},
    {{KvType::kF32, 80, 16}, 3, 64, 512 + 30, 0, 4},
    // One token over three runs a rank; tiles that are not full; wide heads.
    {{KvType::kBF16, 128, 128}, 4, 1, 6 * 512 + 1, 0, 2},
    {{KvType::kF16, 64, 16}, 3, 1, 9 * 512, 0, 3},
    {{KvType::kF32, 20, 16}, 7, 33, 4000, 0, 2},
    {{KvType::kF16, 80, 128}, 1, 64, 5 * 512 + 7, 0, 5},
    {{KvType::kF16, 256, 64}, 2, 7, 1100, 0, 2},
    {{KvType::kBF16, 6, 32}, 2, 7, 1300, 700, 2},
    {{KvType::kInt8, 64, 16}, 3, 64, 1700, 0, 2},
    {{KvType::kInt8, 128, 64}, 4, 1, 6 * 512 + 1, 0, 3},
    {{KvType::kInt8, 20, 128}, 2, 33, 1536 + 3, 511, 3},
};

TEST(AttentionPartial, EveryShapeGivesTheBitsOfAttention) {
  const ScopedFpMode mode;
  uint64_t seed = 100;
  for (const Shape& s : kShapes) ExpectTheBitsOfAttention(s, VectorIsas(), ++seed);
}

TEST(AttentionPartial, EveryInstructionSetFindsTheSame) {
  const ScopedFpMode mode;
  for (const Shape& s : {Shape{{KvType::kF16, 16, 16}, 2, 7, 1400, 0, 2},
                         Shape{{KvType::kF32, 20, 128}, 1, 33, 1060, 520, 3},
                         Shape{{KvType::kBF16, 64, 16}, 3, 1, 2100, 0, 2},
                         Shape{{KvType::kInt8, 48, 16}, 3, 7, 1400, 0, 2}}) {
    ExpectTheBitsOfAttention(s, SupportedIsas(), 7);
  }
}

TEST(AttentionPartial, RandomShapesGiveTheBitsOfAttention) {
  const ScopedFpMode mode;
  std::mt19937 random(37);
  const auto pick = [&](uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random() % (high - low + 1));
  };
  const KvType types[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8};
  for (int round = 0; round < 40; ++round) {
    const uint32_t context = pick(1, 4000);
    const Shape s{{types[pick(0, 3)], 2 * pick(1, 40), 16U << pick(0, 3)},
                  pick(1, 5),
                  std::min(context, pick(1, 40)),
                  context,
                  round % 2 == 0 ? 0 : pick(1, context),
                  pick(1, 6)};
    ExpectTheBitsOfAttention(s, VectorIsas(), random());
  }
}

// Values around what 64 bits hold: some rows or ranks are wide and others not.
TEST(AttentionPartial, WideAndNarrowRowsMix) {
  const ScopedFpMode mode;
  uint32_t mixed = 0;
  for (float scale : {1e4F, 2e5F, 4e5F, 8e5F, 1e9F, 1e18F}) {
    const PagedHead head({KvType::kF32, 64, 16}, 2100, 19, 0, scale);
    const Query query(64, 2, 9, 2091, 20);
    const auto truth = query.Run(SupportedIsas().back(), head, 0, 9);
    for (uint32_t ranks : {1U, 2U, 3U}) {
      std::vector<Records> scalar;
      for (Isa isa : SupportedIsas()) {
        if (isa == Isa::kScalar && ranks != 2) continue;
        Merger merger(64, query, FindAll(isa, head, query, 0, ranks), 21);
        ExpectAllWays(isa, &merger, truth);
        if (isa == Isa::kScalar) scalar = merger.ranks();
        for (size_t i = 0; i < merger.ranks()[0].codes.size(); ++i) {
          const auto wide = std::count_if(merger.ranks().begin(), merger.ranks().end(),
                                          [i](const Records& r) { return r.codes[i].wide(); });
          if (wide > 0 && wide < static_cast<ptrdiff_t>(ranks)) ++mixed;
        }
        for (size_t r = 0; r < scalar.size(); ++r) {
          EXPECT_EQ(merger.ranks()[r].codes, scalar[r].codes) << IsaName(isa) << " " << scale;
        }
      }
    }
  }
  EXPECT_GT(mixed, 10U);
}

TEST(AttentionPartial, OneRankAloneIsWide) {
  const ScopedFpMode mode;
  PagedHead head({KvType::kF32, 32, 16}, 3000, 22);
  head.OverwriteValue(1100, 3e14F);
  const Query query(32, 3, 2, 2998, 23);
  const auto truth = query.Run(SupportedIsas().back(), head, 0, 2);
  for (Isa isa : VectorIsas()) {
    Merger merger(32, query, FindAll(isa, head, query, 0, 3), 24);
    ExpectAllWays(isa, &merger, truth);
    for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(merger.ranks()[r].codes[0].wide(), r == 2);
  }
}

// `ranks` narrow partials as large as they may be still add up in 64 bits.
TEST(AttentionPartial, NarrowRowsOfAllRanksFitTogether) {
  const ScopedFpMode mode;
  constexpr uint32_t kRanks = 8;
  PagedHead head({KvType::kF32, 16, 128}, kRanks * kRun, 25);
  for (uint32_t p = 0; p < head.context(); ++p) {
    head.SetKey(p, std::vector<float>(16, 0.0F));
    // Every probability is 1, so a run's count is 512 · value · 2^36: just under 2^61 / 8.
    head.OverwriteValue(p, 8191.0F);
  }
  const Query query(16, 1, 1, kRanks * kRun - 1, 26);
  for (Isa isa : SupportedIsas()) {
    Merger merger(16, query, FindAll(isa, head, query, 0, kRanks), 27);
    for (const Records& r : merger.ranks()) EXPECT_FALSE(r.codes[0].wide());
    ExpectAllWays(isa, &merger, query.Run(isa, head, 0, 1));
    EXPECT_EQ(merger.ByWire(isa)[0], 8191.0F);
  }
  for (uint32_t p = 0; p < head.context(); ++p) head.OverwriteValue(p, 8192.0F);
  for (const Records& r : FindAll(SupportedIsas().back(), head, query, 0, kRanks)) {
    EXPECT_TRUE(r.codes[0].wide());
  }
}

// Scores that drift by whole bins over the context: ranks keep bins that the row does not need.
TEST(AttentionPartial, BinsThatDoNotCountAreNotSent) {
  const ScopedFpMode mode;
  uint32_t silent = 0;  // partials of which nothing counts
  uint32_t cut = 0;     // partials of which some bins count and others do not
  uint32_t several = 0;
  for (float bits : {0.2F, -0.2F, 0.05F, 0.02F, -0.02F, 0.01F}) {
    PagedHead head({KvType::kF32, 64, 128}, 6000, 28);
    const Query query(64, 3, 2, 5998, 29);
    query.AddDriftTo(&head, bits);
    const auto truth = query.Run(SupportedIsas().back(), head, 0, 2);
    for (Isa isa : VectorIsas()) {
      Merger merger(64, query, FindAll(isa, head, query, 0, 3), 30);
      EXPECT_EQ(Bytes(merger.ByWire(isa)), Bytes(truth)) << bits;
      ExpectAllWays(isa, &merger, truth);
      for (const Records& r : merger.ranks()) {
        const PartialCode code = r.codes[0];
        const uint32_t held = code.CountingBins(code.top());
        const uint32_t sent = code.CountingBins(merger.highest(0));
        silent += sent == 0 ? 1 : 0;
        cut += sent > 0 && sent < held ? 1 : 0;
        several += sent > 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(silent, 0U);
  EXPECT_GT(cut, 0U);
  EXPECT_GT(several, 0U);
}

TEST(AttentionPartial, ABrokenPartialBreaksItsRowsAlone) {
  const ScopedFpMode mode;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 1e24F}) {
    PagedHead head({KvType::kF32, 16, 16}, 1570, 31);
    head.OverwriteValue(1545, bad);
    const Query query(16, 2, 40, 1530, 32);
    for (Isa isa : SupportedIsas()) {
      const auto truth = query.Run(isa, head, 0, 40);
      Merger merger(16, query, FindAll(isa, head, query, 0, 2), 33);
      ExpectAllWays(isa, &merger, truth);
      EXPECT_FALSE(std::isnan(truth[14 * 32]));
      EXPECT_TRUE(std::isnan(truth[15 * 32]));
      EXPECT_FALSE(merger.ranks()[1].codes[14 * 3].broken());
      EXPECT_EQ(merger.ranks()[1].codes[15 * 3], PartialCode::Broken());
      EXPECT_FALSE(merger.ranks()[0].codes[15 * 3].broken());
    }
  }
}

TEST(AttentionPartial, NonFiniteKeysAndHugeScoresAgree) {
  const ScopedFpMode mode;
  for (float poison : {std::numeric_limits<float>::infinity(), -1e38F,
                       std::numeric_limits<float>::quiet_NaN(), 1e12F}) {
    PagedHead head({KvType::kF32, 32, 16}, 1700, 17);
    head.OverwriteKey(100, poison);
    head.OverwriteKey(600, -poison);
    const Query query(32, 2, 3, 1697, 18);
    for (Isa isa : SupportedIsas()) {
      Merger merger(32, query, FindAll(isa, head, query, 0, 3), 34);
      ExpectAllWays(isa, &merger, query.Run(isa, head, 0, 3));
    }
  }
}

// No score lies above the lowest maximum: every mass is zero, and so is every rank's.
TEST(AttentionPartial, RowsWithoutMassAgree) {
  const ScopedFpMode mode;
  PagedHead head({KvType::kF32, 16, 16}, 1030, 35);
  const Query query(16, 1, 1, 1029, 36);
  query.AddDriftTo(&head, 1.0F);
  for (uint32_t p = 0; p < head.context(); ++p) {
    std::vector<float> key = head.key(p);
    for (float& x : key) x *= -1e12F;
    head.SetKey(p, key);
  }
  const auto truth = query.Run(Isa::kScalar, head, 1000, 1);
  EXPECT_TRUE(std::isnan(truth[0]));
  for (Isa isa : SupportedIsas()) {
    Merger merger(16, query, FindAll(isa, head, query, 1000, 2), 37);
    EXPECT_FALSE(merger.ranks()[0].codes[0].empty() || merger.ranks()[0].codes[0].broken());
    ExpectAllWays(isa, &merger, truth);
  }
}

TEST(PartialCode, TravelsAsFourBytes) {
  static_assert(std::is_trivially_copyable_v<PartialCode>);
  EXPECT_TRUE(PartialCode().empty());
  EXPECT_EQ(PartialCode().CountingBins(0), 0U);
  EXPECT_TRUE(PartialCode::Broken().broken());
  EXPECT_FALSE(PartialCode::Broken().empty());
  EXPECT_EQ(PartialCode::Broken().CountingBins(0), 0U);
  for (int32_t top : {0, 1, -1, 1000, -(1 << 25), 1 << 25}) {
    for (uint32_t held : {1U, 3U, 5U, 7U}) {
      const PartialCode narrow = PartialCode::Narrow(top, held);
      const PartialCode wide = PartialCode::Wide(top, held);
      EXPECT_FALSE(narrow == wide);
      EXPECT_FALSE(narrow.wide());
      EXPECT_TRUE(wide.wide());
      for (PartialCode code : {narrow, wide}) {
        uint32_t bits = 0;
        std::memcpy(&bits, &code, sizeof bits);
        PartialCode back;
        std::memcpy(static_cast<void*>(&back), &bits, sizeof bits);
        EXPECT_TRUE(back == code);
        EXPECT_FALSE(code.empty() || code.broken());
        EXPECT_EQ(code.top(), top);
        for (uint32_t slot = 0; slot < 3; ++slot) {
          EXPECT_EQ(code.Holds(slot), (held >> slot & 1U) != 0);
        }
      }
    }
  }
}

TEST(PartialCode, BinsCountWithinThreeOfTheHighest) {
  const PartialCode all = PartialCode::Narrow(5, 7);
  EXPECT_EQ(all.CountingBins(5), 3U);
  EXPECT_EQ(all.CountingBins(6), 2U);
  EXPECT_EQ(all.CountingBins(7), 1U);
  EXPECT_EQ(all.CountingBins(8), 0U);
  EXPECT_EQ(all.CountingBins(std::numeric_limits<int32_t>::max()), 0U);
  const PartialCode gap = PartialCode::Wide(5, 5);
  EXPECT_EQ(gap.CountingBins(5), 2U);
  EXPECT_EQ(gap.CountingBins(6), 1U);
  EXPECT_EQ(PartialBytes(all, 6, 64), 2U * 65 * 8);
  EXPECT_EQ(PartialBytes(gap, 5, 64), 2U * 65 * 16);
  EXPECT_EQ(PartialBytes(PartialCode(), 5, 64), 0U);
}

TEST(PartialCode, TheHighestBinIgnoresWhatHasNoCounts) {
  const PartialCode codes[] = {PartialCode(), PartialCode::Narrow(9, 1), PartialCode::Broken(),
                               PartialCode::Wide(-3, 1), PartialCode::Narrow(-4, 7)};
  EXPECT_EQ(HighestBin(codes, 1, 5), 9);
  EXPECT_EQ(HighestBin(codes + 1, 2, 2), 9);
  EXPECT_EQ(HighestBin(codes + 2, 1, 3), -3);
  EXPECT_EQ(HighestBin(codes, 2, 2), kNothing);
  EXPECT_EQ(HighestBin(codes, 1, 0), kNothing);
}

// Whatever four bytes a peer sends, no more than three bins are read, and those inside the sum.
TEST(PartialSum, TakesAnyCode) {
  std::mt19937 random(38);
  const Isa isa = SupportedIsas().back();
  PartialSum sum(3);
  const std::vector<std::byte> wire(3 * 4 * sizeof(Int128));
  float out[3];
  for (int round = 0; round < 20000; ++round) {
    auto bits = static_cast<uint32_t>(random());
    if (round % 2 == 0) bits = (bits & 31U) | (static_cast<uint32_t>(round % 9 - 4) << 5);
    PartialCode code;
    std::memcpy(static_cast<void*>(&code), &bits, sizeof bits);
    if (round % 5 == 0) sum.Start(round % 7 == 0 ? kNothing : round % 3);
    ASSERT_LE(PartialBytes(code, 1, 3), wire.size());
    sum.Add(code, wire.data());
    sum.Finish(isa, out);
  }
}

TEST(PartialSum, ABinAboveTheHighestBreaksTheRow) {
  const int64_t counts[] = {4, 2, 2, 2, 2, 2};
  PartialSum sum(1);
  float out = 0;
  sum.Start(3);
  sum.AddRecord(PartialCode::Narrow(3, 1), counts, nullptr);
  sum.Finish(Isa::kScalar, &out);
  EXPECT_EQ(out, 2.0F);
  sum.AddRecord(PartialCode::Narrow(4, 1), counts, nullptr);
  sum.Finish(Isa::kScalar, &out);
  EXPECT_TRUE(std::isnan(out));
  EXPECT_EQ(sum.Export(nullptr, nullptr), PartialCode::Broken());
}

TEST(PartialSum, NothingAddedIsNan) {
  PartialSum sum(2);
  for (Isa isa : SupportedIsas()) {
    float out[2] = {};
    sum.Start(kNothing);
    sum.Add(PartialCode(), nullptr);
    sum.Finish(isa, out);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
    EXPECT_TRUE(sum.Export(nullptr, nullptr).empty());
  }
}

}  // namespace
}  // namespace cleave

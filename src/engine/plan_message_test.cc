#include "engine/plan_message.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace cleave {
namespace {

struct Batch {
  std::vector<int32_t> tokens;
  std::vector<std::vector<int32_t>> tables;
  std::vector<BatchSequence> sequences;
  std::vector<WantedRow> wanted;
  [[nodiscard]] ForwardBatch view() const { return {tokens, sequences, wanted}; }
};

Batch RandomBatch(RngStream* random) {
  Batch b;
  const auto sequences = random->Below(5);
  for (uint64_t s = 0; s < sequences; ++s) {
    std::vector<int32_t> table(random->Below(7));
    for (int32_t& block : table) block = static_cast<int32_t>(random->Below(1000));
    b.tables.push_back(table);
  }
  for (uint64_t s = 0; s < sequences; ++s) {
    const auto tokens = static_cast<uint32_t>(1 + random->Below(9));
    b.sequences.push_back({static_cast<uint32_t>(random->Below(100)), tokens, b.tables[s],
                           static_cast<uint32_t>(random->Below(3))});
    for (uint32_t t = 0; t < tokens; ++t) {
      b.tokens.push_back(static_cast<int32_t>(random->Below(50000)));
      if (random->Below(3) == 0) {
        b.wanted.push_back({static_cast<uint32_t>(b.tokens.size() - 1),
                            random->Below(2) == 0 ? RowUse::kHighest : RowUse::kLogits});
      }
    }
  }
  return b;
}

TEST(PlanMessage, ComesBackAsItWas) {
  RngStream random(5);
  ParsedPlan plan;
  std::vector<std::byte> bytes;
  for (int i = 0; i < 500; ++i) {
    const Batch b = RandomBatch(&random);
    WritePlan(b.view(), &bytes);
    ASSERT_LE(bytes.size(), MaxPlanBytes(45, 5, 7));
    const Status status = ParsePlan(bytes, &plan);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(plan.token_ids, b.tokens);
    ASSERT_EQ(plan.sequences.size(), b.sequences.size());
    for (size_t s = 0; s < b.sequences.size(); ++s) {
      const BatchSequence& got = plan.sequences[s];
      EXPECT_EQ(got.first_position, b.sequences[s].first_position);
      EXPECT_EQ(got.tokens, b.sequences[s].tokens);
      EXPECT_EQ(got.team, b.sequences[s].team);
      EXPECT_EQ(std::vector<int32_t>(got.block_table.begin(), got.block_table.end()), b.tables[s]);
    }
    ASSERT_EQ(plan.wanted.size(), b.wanted.size());
    for (size_t w = 0; w < b.wanted.size(); ++w) {
      EXPECT_EQ(plan.wanted[w].row, b.wanted[w].row);
      EXPECT_EQ(plan.wanted[w].use, b.wanted[w].use);
    }
  }
}

TEST(PlanMessage, DamagedOnesAreRefusedOrStayInside) {
  RngStream random(6);
  ParsedPlan plan;
  std::vector<std::byte> bytes;
  for (int i = 0; i < 3000; ++i) {
    WritePlan(RandomBatch(&random).view(), &bytes);
    if (random.Below(2) == 0) bytes.resize(random.Below(bytes.size()));
    for (int flips = 0; flips < 3 && !bytes.empty(); ++flips) {
      bytes[random.Below(bytes.size())] = static_cast<std::byte>(random.Below(256));
    }
    if (!ParsePlan(bytes, &plan).ok()) continue;
    for (const WantedRow& row : plan.wanted) EXPECT_LT(row.row, plan.token_ids.size());
    for (const BatchSequence& s : plan.sequences) {
      if (s.block_table.empty()) continue;
      EXPECT_GE(s.block_table.data(), plan.blocks.data());
      EXPECT_LE(s.block_table.data() + s.block_table.size(),
                plan.blocks.data() + plan.blocks.size());
    }
  }
}

}  // namespace
}  // namespace cleave

#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "base/rng.h"
#include "kv/block_hash.h"
#include "kv/naive_block_pool.h"
#include "kv/partitions.h"

namespace cleave {
namespace {

using Ids = std::vector<int32_t>;

TEST(BlockHash, DependsOnEverythingBefore) {
  BlockHasher hasher({1, 2});
  const BlockHash a = hasher.First(Ids{1, 2, 3, 4}, "");
  EXPECT_EQ(a, hasher.First(Ids{1, 2, 3, 4}, ""));
  EXPECT_NE(a, hasher.First(Ids{1, 2, 3, 5}, ""));
  EXPECT_NE(a, hasher.First(Ids{1, 2, 3, 4}, "tenant"));
  EXPECT_NE(a, hasher.Next(a, Ids{1, 2, 3, 4}));
  const BlockHash other = hasher.First(Ids{9, 2, 3, 4}, "");
  EXPECT_NE(hasher.Next(a, Ids{5, 6, 7, 8}), hasher.Next(other, Ids{5, 6, 7, 8}));
  BlockHasher elsewhere({3, 4});
  EXPECT_NE(a, elsewhere.First(Ids{1, 2, 3, 4}, ""));
}

// The figures are those of
//   python3 -c "import hashlib,struct; d=hashlib.sha256(struct.pack('<QQ4i',1,2,1,2,3,4)+b's');
//               print([hex(x) for x in struct.unpack('<QQ', d.digest()[:16])])"
TEST(BlockHash, IsSha256) {
  BlockHasher hasher({1, 2});
  const BlockHash a = hasher.First(Ids{1, 2, 3, 4}, "s");
  EXPECT_EQ(a.lo, 0x41f73e4600e3c99eULL);
  EXPECT_EQ(a.hi, 0xb4c6cb46a0a78d7dULL);
}

BlockHash Name(uint64_t n) { return {n, n * 3 + 1}; }

TEST(BlockPool, FreeBlocksWithContentAreEvictedLeastRecentlyFreedTailFirst) {
  BlockPool pool(4);
  Ids table;
  for (uint64_t i = 0; i < 3; ++i) {
    table.push_back(pool.Allocate());
    pool.Publish(table.back(), Name(i));
  }
  pool.Release(table);
  EXPECT_EQ(pool.free_blocks(), 4U);
  EXPECT_EQ(pool.Allocate(), 3);         // holds nothing
  EXPECT_EQ(pool.Allocate(), table[2]);  // the tail of the freed sequence
  EXPECT_EQ(pool.Find(Name(2)), kNoBlock);
  EXPECT_EQ(pool.Find(Name(0)), table[0]);
  pool.Acquire(table[0]);
  EXPECT_EQ(pool.references(table[0]), 1U);
  EXPECT_EQ(pool.Allocate(), table[1]);
  EXPECT_EQ(pool.Allocate(), kNoBlock);
  EXPECT_EQ(pool.free_blocks(), 0U);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPool, SharedBlockIsFreeAfterItsLastReference) {
  BlockPool pool(2);
  const BlockId block = pool.Allocate();
  pool.Publish(block, Name(7));
  pool.Acquire(block);
  pool.Release(std::array{block});
  EXPECT_EQ(pool.free_blocks(), 1U);
  pool.Release(std::array{block});
  EXPECT_EQ(pool.free_blocks(), 2U);
  EXPECT_EQ(pool.Find(Name(7)), block);
}

TEST(BlockPool, FirstPublisherKeepsTheName) {
  BlockPool pool(2);
  const BlockId a = pool.Allocate();
  const BlockId b = pool.Allocate();
  pool.Publish(a, Name(1));
  pool.Publish(b, Name(1));
  pool.Publish(a, Name(2));
  EXPECT_EQ(pool.Find(Name(1)), a);
  EXPECT_EQ(pool.Find(Name(2)), kNoBlock);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPool, AnEmptyPoolHasNothing) {
  BlockPool pool(0);
  EXPECT_EQ(pool.Allocate(), kNoBlock);
  EXPECT_EQ(pool.Find(Name(1)), kNoBlock);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
  BlockPool cut(0, 3);
  EXPECT_EQ(cut.Allocate(2), kNoBlock);
  EXPECT_TRUE(cut.CheckIntegrity().ok());
}

TEST(BlockPool, APartitionGivesItsOwnBlocksOnly) {
  BlockPool pool(6, 3);
  EXPECT_EQ(pool.partitions(), 3U);
  EXPECT_EQ(pool.Allocate(1), 2);
  EXPECT_EQ(pool.Allocate(1), 3);
  EXPECT_EQ(pool.Allocate(1), kNoBlock);
  EXPECT_EQ(pool.Allocate(2), 4);
  EXPECT_EQ(pool.partition(4), 2U);
  EXPECT_EQ(pool.free_blocks(), 3U);
  EXPECT_EQ(pool.free_blocks(0), 2U);
  EXPECT_EQ(pool.free_blocks(1), 0U);
  EXPECT_EQ(pool.free_blocks(2), 1U);
  pool.Publish(3, Name(9));
  pool.Release(Ids{2, 3});
  EXPECT_EQ(pool.Find(Name(9)), 3);
  EXPECT_EQ(pool.Allocate(0), 0);
  EXPECT_EQ(pool.Allocate(1), 2) << "holds nothing";
  EXPECT_EQ(pool.Allocate(1), 3);
  EXPECT_EQ(pool.Find(Name(9)), kNoBlock);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

// Item for item: run r is in partition r mod count.
TEST(KvPartitions, CountWhatEachHolds) {
  for (uint32_t count = 1; count <= 5; ++count) {
    for (uint32_t run = 1; run <= 4; ++run) {
      const KvPartitions parts{.count = count, .run = run};
      std::vector<uint32_t> held(count, 0);
      for (uint32_t items = 0; items < 6 * count * run; ++items) {
        for (uint32_t p = 0; p < count; ++p) ASSERT_EQ(parts.Held(items, p), held[p]);
        ASSERT_EQ(parts.Fullest(items), *std::max_element(held.begin(), held.end()));
        EXPECT_LE(items, parts.Longest(held[0]));
        ASSERT_EQ(parts.Of(items), items / run % count);
        const uint32_t before = held[0];
        ++held[parts.Of(items)];
        // The first item that partition 0 has no more room for ends the longest.
        if (held[0] > before) {
          EXPECT_EQ(parts.Longest(before), items);
        }
      }
    }
  }
  EXPECT_EQ(KvPartitions::OfBlocks(3, 512, 16).run, 32U);
  EXPECT_EQ(KvPartitions::OfBlocks(1, 512, 1000).run, 1U);
  constexpr KvPartitions kWide{.count = 4096, .run = 4};
  static_assert(kWide.Longest(uint64_t{1} << 40U) == uint64_t{1} << 52U);
  static_assert(kWide.Held(UINT32_MAX, 4095) == (uint32_t{1} << 20U) - 1);
}

// Random operations on both; names collide in their low bits so that probe runs are long.
class Twins {
 public:
  Twins(uint32_t blocks, uint32_t partitions, uint64_t seed)
      : pool_(blocks, partitions), naive_(blocks, partitions), random_(seed) {}

  void Step() {
    switch (random_.Below(4)) {
      case 0:
        return Allocate();
      case 1:
        return Publish();
      case 2:
        return FindAndShare();
      default:
        return Release();
    }
  }
  void Compare() {
    ASSERT_TRUE(pool_.CheckIntegrity().ok()) << pool_.CheckIntegrity().ToString();
    ASSERT_EQ(pool_.free_blocks(), naive_.free_blocks());
    for (uint32_t p = 0; p < pool_.partitions(); ++p) {
      ASSERT_EQ(pool_.free_blocks(p), naive_.free_blocks(p));
    }
    for (uint64_t n = 0; n < kNames; ++n) ASSERT_EQ(pool_.Find(Key(n)), naive_.Find(Key(n)));
  }

 private:
  static constexpr uint64_t kNames = 96;
  static BlockHash Key(uint64_t n) { return {n % 5, n}; }

  void Allocate() {
    if (tables_.empty() || random_.Below(4) == 0) tables_.emplace_back();
    const auto partition = static_cast<uint32_t>(random_.Below(pool_.partitions()));
    const BlockId block = pool_.Allocate(partition);
    ASSERT_EQ(block, naive_.Allocate(partition));
    if (block == kNoBlock) return;
    ASSERT_EQ(pool_.partition(block), partition);
    tables_[random_.Below(tables_.size())].push_back(block);
  }
  void Publish() {
    if (tables_.empty()) return;
    const Ids& table = tables_[random_.Below(tables_.size())];
    if (table.empty()) return;
    const BlockId block = table[random_.Below(table.size())];
    const BlockHash name = Key(random_.Below(kNames));
    pool_.Publish(block, name);
    naive_.Publish(block, name);
  }
  void FindAndShare() {
    const BlockHash name = Key(random_.Below(kNames));
    const BlockId block = pool_.Find(name);
    ASSERT_EQ(block, naive_.Find(name));
    if (block == kNoBlock) return;
    pool_.Acquire(block);
    naive_.Acquire(block);
    tables_.push_back({block});
  }
  void Release() {
    if (tables_.empty()) return;
    std::swap(tables_[random_.Below(tables_.size())], tables_.back());
    pool_.Release(tables_.back());
    naive_.Release(tables_.back());
    tables_.pop_back();
  }

  BlockPool pool_;
  NaiveBlockPool naive_;
  RngStream random_;
  std::vector<Ids> tables_;
};

TEST(BlockPool, AgreesWithTheNaivePool) {
  for (uint64_t seed = 0; seed < 32; ++seed) {
    const auto partitions = static_cast<uint32_t>(1 + seed % 4);
    Twins twins(partitions * static_cast<uint32_t>(1 + seed * 2 / partitions), partitions, seed);
    for (int step = 0; step < 2000; ++step) {
      twins.Step();
      if (step % 10 == 0) twins.Compare();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace cleave

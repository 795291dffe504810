#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "comm/bill.h"
#include "comm/comm_test_support.h"
#include "comm/segment.h"
#include "comm/shared_memory.h"

namespace cleave {
namespace {

using testing::Test;

TEST(SharedMemory, IsZeroedSealedAndShared) {
  Result<SharedMemory> made = SharedMemory::Create(SharedMemoryKind::kProcesses, 10'000);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->size(), 10'000U);
  EXPECT_TRUE(std::all_of(made->data(), made->data() + 10'000,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_NE(ftruncate(made->fd(), 5'000), 0) << "a peer could make its readers crash";
  EXPECT_NE(ftruncate(made->fd(), 50'000), 0);
  EXPECT_NE(fcntl(made->fd(), F_GETFD) & FD_CLOEXEC, 0);
  Result<SharedMemory> again = SharedMemory::Attach(made->fd());
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(again->size(), 10'000U);
  EXPECT_NE(again->data(), made->data());
  made->data()[123] = std::byte{7};
  EXPECT_EQ(again->data()[123], std::byte{7});
  const SharedMemory moved = std::move(*made);
  EXPECT_EQ(made->data(), nullptr);
  EXPECT_EQ(moved.data()[123], std::byte{7});
}

TEST(SharedMemory, ForThreadsHasNoDescriptor) {
  Result<SharedMemory> made = SharedMemory::Create(SharedMemoryKind::kThreads, 1);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->fd(), -1);
  EXPECT_EQ(made->data()[0], std::byte{0});
}

TEST(SharedMemory, RefusesBadSizesAndDescriptors) {
  EXPECT_EQ(SharedMemory::Create(SharedMemoryKind::kThreads, 0).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedMemory::Create(SharedMemoryKind::kProcesses, UINT64_MAX).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedMemory::Attach(-1).status().message(),
            "descriptor -1 is not shared memory of sealed size: pass the one that made it");
  const int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_GE(unsealed, 0);
  EXPECT_EQ(SharedMemory::Attach(unsealed).status().code(), StatusCode::kInvalidArgument);
  ASSERT_EQ(fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(SharedMemory::Attach(unsealed).status().code(), StatusCode::kInvalidArgument);
  close(unsealed);
}

TEST(Segment, NothingOverlaps) {
  WorldOptions options;
  options.split = {.pp = 2, .tp = 4, .ep = 4, .cp = 2, .dcp = 2};
  options.room_bytes = 9000;
  options.channel_bytes = 5000;
  options.experts = 10;
  const Result<SegmentPlan> plan = PlanSegment(options);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->options.room_bytes, 12288U);
  EXPECT_EQ(plan->options.channel_bytes, 8192U);
  struct Piece {
    uint64_t begin;
    uint64_t size;
  };
  std::vector<Piece> pieces = {{0, sizeof(SegmentHeader)},
                               {plan->board_offset, plan->ranks * sizeof(RankLine)},
                               {plan->identity_offset, plan->ranks * sizeof(RankIdentity)},
                               {plan->bill_offset, plan->ranks * sizeof(BillLine)},
                               {plan->expert_offset, plan->ranks * plan->expert_stride}};
  for (const GroupPlace& group : plan->groups) {
    for (uint32_t member = 0; member < group.ranks.size(); ++member) {
      pieces.push_back({group.LineOffset(member), sizeof(MemberLine)});
      for (uint32_t parity = 0; parity < 2; ++parity) {
        pieces.push_back({group.SlotOffset(member, parity, 8192), 8192});
      }
      for (uint32_t to = 0; to < group.ranks.size(); ++to) {
        pieces.push_back(
            {group.ChannelOffset(member, to, 8192, 8192), sizeof(ChannelLines) + 8192});
      }
    }
  }
  // 8 pairs of pp, 4 groups of tp, 2 of ep, 8 of cp, 8 of dcp.
  EXPECT_EQ(plan->groups.size(), 30U);
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  for (size_t i = 0; i + 1 < pieces.size(); ++i) {
    EXPECT_LE(pieces[i].begin + pieces[i].size, pieces[i + 1].begin) << i;
    EXPECT_EQ(pieces[i].begin % 64, 0U);
  }
  EXPECT_LE(pieces.back().begin + pieces.back().size, plan->size);
}

TEST(Segment, RefusesWhatDoesNotFit) {
  const auto message = [](auto change) {
    WorldOptions options;
    change(&options);
    return PlanSegment(options).status().message();
  };
  EXPECT_EQ(message([](WorldOptions* o) { o->split.tp = 65; }), "tp is 65, must be 1 to 64");
  EXPECT_EQ(message([](WorldOptions* o) { o->split.pp = 0; }), "pp is 0, must be 1 to 64");
  EXPECT_EQ(message([](WorldOptions* o) {
              o->split.tp = 6;
              o->split.dcp = 4;
            }),
            "dcp is 4, must divide tp = 6");
  EXPECT_EQ(message([](WorldOptions* o) {
              o->split.tp = 16;
              o->split.cp = 8;
              o->split.ep = 8;
            }),
            "teams · tp · cp under ep is 128, must be 1 to 64");
  EXPECT_EQ(message([](WorldOptions* o) { o->deadline_ms = 0; }),
            "deadline_ms is 0, must be 1 to 86400000");
  EXPECT_EQ(message([](WorldOptions* o) { o->room_bytes = 8191; }),
            "room_bytes is 8191, must be 8192 to 1073741824");
  EXPECT_EQ(message([](WorldOptions* o) { o->channel_bytes = UINT64_MAX; }),
            "channel_bytes is 18446744073709551615, must be 4096 to 1073741824");
  EXPECT_EQ(message([](WorldOptions* o) { o->plan_ring_bytes = UINT64_MAX; }),
            "plan_ring_bytes is 18446744073709551615, must be 0 to 1073741824");
  EXPECT_EQ(message([](WorldOptions* o) { o->split = {}; }), "");
}

class Joining : public Test {
 protected:
  void SetUp() override {
    WorldOptions options = TpWorld(2);
    options.epoch = 7;
    Result<SharedMemory> made = World::Allocate(options, SharedMemoryKind::kThreads);
    ASSERT_TRUE(made.ok());
    memory_.emplace(std::move(*made));
  }
  SegmentHeader* header() { return reinterpret_cast<SegmentHeader*>(memory_->data()); }
  Status JoinStatus(uint32_t rank, uint64_t epoch) {
    return World::Join(*memory_, rank, epoch).status();
  }
  std::optional<SharedMemory> memory_;
};

TEST_F(Joining, OnceARankInItsEpoch) {
  EXPECT_EQ(JoinStatus(0, 6).code(), StatusCode::kUnavailable);
  EXPECT_EQ(JoinStatus(0, 6).message(), "the segment is of epoch 7, this rank was started for 6");
  EXPECT_EQ(JoinStatus(2, 7).message(), "rank 2 cannot join a replica of 2 ranks");
  const Result<World> world = World::Join(*memory_, 1, 7);
  ASSERT_TRUE(world.ok()) << world.status().ToString();
  EXPECT_EQ(JoinStatus(1, 7).code(), StatusCode::kInvalidArgument);
}

TEST_F(Joining, NotWhatHasEnded) {
  Result<WorldBoard> board = WorldBoard::Open(*memory_, 7);
  ASSERT_TRUE(board.ok());
  EXPECT_FALSE(board->ended());
  EXPECT_EQ(board->reason(), "");
  board->End("first");
  board->End("second");
  EXPECT_TRUE(board->ended());
  EXPECT_EQ(board->reason(), "first");
  EXPECT_EQ(JoinStatus(0, 7).code(), StatusCode::kUnavailable);
  EXPECT_EQ(JoinStatus(0, 7).message(), "the replica ended: first");
}

TEST_F(Joining, LongReasonsAreCut) {
  Result<WorldBoard> board = WorldBoard::Open(*memory_, 7);
  ASSERT_TRUE(board.ok());
  board->End(std::string(5000, 'x'));
  EXPECT_EQ(board->reason(), std::string(header()->reason.size() - 1, 'x'));
}

TEST_F(Joining, NotDamagedMemory) {
  const SegmentHeader saved = {.magic = header()->magic,
                               .version = header()->version,
                               .deadline_ms = header()->deadline_ms,
                               .epoch = header()->epoch,
                               .size = header()->size,
                               .room_bytes = header()->room_bytes,
                               .channel_bytes = header()->channel_bytes,
                               .plan_ring_bytes = header()->plan_ring_bytes,
                               .one_shot_max_bytes = header()->one_shot_max_bytes,
                               .cut = header()->cut,
                               .experts = header()->experts,
                               .state = 0,
                               .reason = {}};
  header()->version = 99;
  EXPECT_EQ(JoinStatus(0, 7).code(), StatusCode::kUnsupported);
  header()->version = saved.version;
  header()->magic ^= 1U;
  EXPECT_EQ(JoinStatus(0, 7).code(), StatusCode::kDataLoss);
  header()->magic = saved.magic;
  // Any size or count that leads elsewhere is found before an address is made of it.
  header()->cut[1] = 3;
  EXPECT_EQ(JoinStatus(0, 7).code(), StatusCode::kDataLoss);
  header()->cut[1] = 0xffffffffU;
  EXPECT_EQ(JoinStatus(0, 7).code(), StatusCode::kDataLoss);
  header()->cut = saved.cut;
  header()->room_bytes += 4096;
  EXPECT_EQ(JoinStatus(0, 7).code(), StatusCode::kDataLoss);
  header()->room_bytes = saved.room_bytes;
  for (const uint64_t ring : {uint64_t{4096}, ~uint64_t{0}}) {
    header()->plan_ring_bytes = ring;
    EXPECT_EQ(JoinStatus(0, 7).code(), StatusCode::kDataLoss) << ring;
  }
  header()->plan_ring_bytes = saved.plan_ring_bytes;
  header()->size += 4096;
  EXPECT_EQ(JoinStatus(0, 7).code(), StatusCode::kDataLoss);
  header()->size = saved.size;
  EXPECT_TRUE(JoinStatus(0, 7).ok());
  Result<SharedMemory> small = SharedMemory::Create(SharedMemoryKind::kThreads, 64);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(World::Join(*small, 0, 7).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace cleave

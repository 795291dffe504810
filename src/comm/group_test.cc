// Groups over shared memory are held equal, byte for byte, to the loopback group: what arrives and
// what is metered.
#include <gtest/gtest.h>

#include <thread>

#include "comm/comm_test_support.h"
#include "comm/loopback_group.h"
#include "comm/row_codec.h"
#include "comm/shm_group.h"

namespace cleave {
namespace {

using Bytes = std::vector<std::byte>;

struct Case {
  uint32_t size;
  uint64_t room_bytes;
  uint64_t channel_bytes;
  uint64_t one_shot_max_bytes;
  uint32_t most_bytes;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.size << " members, room " << c.room_bytes << ", one shot to " << c.one_shot_max_bytes;
}

class EqualsLoopback : public testing::TestWithParam<Case> {};

TEST_P(EqualsLoopback, InWhatArrivesAndWhatIsMetered) {
  const Case& c = GetParam();
  WorldOptions options = TpWorld(c.size);
  options.room_bytes = c.room_bytes;
  options.channel_bytes = c.channel_bytes;
  options.one_shot_max_bytes = c.one_shot_max_bytes;
  const std::vector<ScriptStep> script = MakeScript(c.size, 60, c.most_bytes, 11 * c.size + 1);
  const std::vector<Bytes> expected = ExpectedOf(c.size, script);
  std::vector<Bytes> arrived(c.size);
  std::vector<std::vector<Metered>> metered(c.size);
  const std::vector<Status> statuses = RunWorld(options, [&](World* world) -> Status {
    Group* group = world->group(Axis::kTp);
    // Members may store as they like.
    auto* shared = dynamic_cast<ShmGroup*>(group);
    EXPECT_EQ(shared != nullptr, c.size > 1);
    if (shared != nullptr && world->rank() % 2 == 0) shared->SetLargeStores(StoreKind::kStreaming);
    EXPECT_EQ(group->size(), c.size);
    EXPECT_EQ(group->rank(), world->rank());
    ASSIGN_OR_RETURN(arrived[world->rank()], RunScript(group, script));
    metered[world->rank()] = MeteredOf(group->stats());
    return OkStatus();
  });
  for (uint32_t member = 0; member < c.size; ++member) {
    EXPECT_TRUE(statuses[member].ok()) << statuses[member].ToString();
    EXPECT_TRUE(arrived[member] == expected[member]) << "member " << member;
    EXPECT_FALSE(expected[member].empty());
    EXPECT_EQ(metered[member], BillOf(script, c.size, member, c.one_shot_max_bytes));
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (uint32_t size = 1; size <= 9; ++size) {
    cases.push_back({size, 512 << 10, 1 << 20, 4096, 100'000});
    cases.push_back({size, kMinRoomBytes, 4096, 1500, 20'000});  // chunks everywhere
  }
  cases.push_back({2, 16384, 8192, 1 << 30, 200'000});  // one shot whatever the size
  cases.push_back({3, 16384, 8192, 0, 200'000});        // never
  cases.push_back({64, kMinRoomBytes, 4096, 1500, 3'000});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Sizes, EqualsLoopback, testing::ValuesIn(Cases()));

// Rows around the borders of a chunk, which every member must cut alike though its rows are narrow
// or wide.
TEST(ShmGroup, ChunkBorders) {
  WorldOptions options = TpWorld(3);
  options.room_bytes = kMinRoomBytes;
  for (const uint64_t one_shot_max : {uint64_t{0}, uint64_t{1} << 30U}) {
    options.one_shot_max_bytes = one_shot_max;
    std::vector<ScriptStep> script;
    for (const uint32_t columns : {1U, 7U, 8U, 9U, 503U, 504U, 505U, 1007U, 1008U, 1009U, 2048U}) {
      for (const uint32_t rows : {1U, 2U, 31U, 62U, 63U, 64U, 65U}) {
        if (rows * columns > 40'000) continue;
        script.push_back({.op = CommOp::kAllReduce,
                          .rows = rows,
                          .columns = columns,
                          .wide_percent = columns % 2 == 0 ? 50U : 0U,
                          .seed = rows * 4096 + columns});
        script.push_back({.op = CommOp::kReduceScatter,
                          .rows = rows,
                          .columns = columns,
                          .wide_percent = columns % 2 == 0 ? 50U : 0U,
                          .sizes = {rows / 3, 0, rows - rows / 3},
                          .seed = rows * 4096 + columns + 1});
      }
    }
    for (const uint64_t bytes : {4032ULL, 4095ULL, 4096ULL, 4097ULL, 8192ULL}) {
      script.push_back({.op = CommOp::kAllGather, .sizes = {bytes, 0, bytes - 1}, .seed = bytes});
      script.push_back({.op = CommOp::kAllToAll,
                        .sizes = {5, bytes, bytes - 64, 0, 9, bytes, bytes, bytes + 1, 3},
                        .seed = bytes});
    }
    const std::vector<Bytes> expected = ExpectedOf(3, script);
    std::vector<Bytes> arrived(3);
    const std::vector<Status> statuses = RunWorld(options, [&](World* world) -> Status {
      ASSIGN_OR_RETURN(arrived[world->rank()], RunScript(world->group(Axis::kTp), script));
      return OkStatus();
    });
    for (uint32_t member = 0; member < 3; ++member) {
      EXPECT_TRUE(statuses[member].ok()) << statuses[member].ToString();
      EXPECT_TRUE(arrived[member] == expected[member]) << "member " << member;
    }
  }
}

// Many messages on their way at once, through a ring they wrap around in, and one larger than it.
TEST(ShmGroup, SendTakesOverAndKeepsOrder) {
  WorldOptions options;
  options.split.pp = 2;
  options.deadline_ms = 60'000;
  options.channel_bytes = 4096;
  constexpr uint32_t kMessages = 500;
  const auto size_of = [](uint32_t i) { return i == 250 ? 100'000U : i * 37 % 1500; };
  const std::vector<Status> statuses = RunWorld(options, [&](World* world) -> Status {
    Group* group = world->group(Axis::kPp);
    for (uint32_t i = 0; i < kMessages; ++i) {
      Bytes bytes(size_of(i), static_cast<std::byte>(i));
      if (world->rank() == 0) {
        RETURN_IF_ERROR(group->Send(1, bytes));
        continue;
      }
      Bytes got(size_of(i));
      RETURN_IF_ERROR(group->Receive(0, got));
      EXPECT_TRUE(got == bytes) << i;
    }
    const OpStats& stats = group->stats().of(CommOp::kSend);
    EXPECT_EQ(stats.calls.load(), world->rank() == 0 ? kMessages : 0);
    EXPECT_GT(stats.transfer_ns.load() + stats.wait_ns.load(), 0U);
    return OkStatus();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
}

// Every axis of a mixed cut at work in one segment, in each group its own sums.
class WorldGroups : public testing::TestWithParam<Split> {};

TEST_P(WorldGroups, OfAllAxes) {
  WorldOptions options;
  options.split = GetParam();
  options.deadline_ms = 60'000;
  options.room_bytes = kMinRoomBytes;
  options.channel_bytes = 4096;
  const Split& split = options.split;
  const auto sum_over = [&](const std::vector<uint32_t>& ranks) {
    int64_t sum = 0;
    for (const uint32_t rank : ranks) sum += int64_t{1} << rank;
    return static_cast<float>(sum);
  };
  const std::vector<Status> statuses = RunWorld(options, [&](World* world) -> Status {
    const uint32_t rank = world->rank();
    const auto check = [&](Group* group, const std::vector<uint32_t>& ranks) -> Status {
      EXPECT_EQ(group->size(), ranks.size());
      EXPECT_EQ(ranks[group->rank()], rank);
      const int64_t total = int64_t{1} << rank;
      const uint8_t wide = 0;
      const int32_t shift = 0;
      float out = 0;
      RETURN_IF_ERROR(group->AllReduce({1, 1, &total, 1, &wide, &shift}, &out, 1));
      EXPECT_EQ(out, sum_over(ranks));
      return OkStatus();
    };
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (const Axis axis : {Axis::kDp, Axis::kPp, Axis::kTp, Axis::kEp, Axis::kCp}) {
        RETURN_IF_ERROR(check(world->group(axis), GroupOf(split, axis, rank)));
      }
      RETURN_IF_ERROR(check(world->dcp(), DcpGroupOf(split, rank)));
      const std::vector<uint32_t> alone = {rank};
      RETURN_IF_ERROR(check(world->team(), split.teams == 1 ? alone : TeamOf(split, rank)));
    }
    return OkStatus();
  });
  ASSERT_EQ(statuses.size(), 16U);
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
}

INSTANTIATE_TEST_SUITE_P(Cuts, WorldGroups,
                         testing::Values(Split{.pp = 2, .tp = 4, .ep = 2, .cp = 2, .dcp = 2},
                                         Split{.pp = 2, .teams = 2, .tp = 2, .ep = 4, .cp = 2}));

TEST(ShmGroup, RefusesWhatCannotBe) {
  const std::vector<Status> statuses = RunWorld(TpWorld(2), [](World* world) -> Status {
    Group* group = world->group(Axis::kTp);
    Bytes bytes(8);
    const std::vector<uint64_t> one = {8};
    const std::vector<uint64_t> wrong = {9, 9};
    const std::vector<uint64_t> other = {8, 7};
    EXPECT_EQ(group->AllGather(bytes, one, bytes.data()).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(group->AllGather(bytes, wrong, bytes.data()).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(group->AllToAll(bytes.data(), wrong, bytes.data(), other).code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(group->Send(2, bytes).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(group->Send(group->rank(), bytes).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(group->Receive(7, bytes).message(),
              group->rank() == 0 ? "member 0 of a group of 2 cannot exchange with member 7"
                                 : "member 1 of a group of 2 cannot exchange with member 7");
    const int64_t total = 1;
    const uint8_t wide = 0;
    const int32_t shift = kMaxShift + 1;
    float out = 0;
    EXPECT_EQ(group->AllReduce({1, 1, &total, 1, &wide, &shift}, &out, 1).code(),
              StatusCode::kInvalidArgument);
    const int32_t small = 0;
    for (const std::vector<Range>& parts :
         {std::vector<Range>{}, {{0, 1}}, {{0, 0}, {0, 0}}, {{0, 1}, {0, 1}}, {{0, 1}, {1, 2}}}) {
      EXPECT_EQ(group->ReduceScatter({1, 1, &total, 1, &wide, &small}, parts, &out, 1).code(),
                StatusCode::kInvalidArgument);
    }
    // None of that took the group along.
    const std::vector<uint64_t> sizes = {8, 8};
    Bytes out_bytes(16);
    return group->AllGather(bytes, sizes, out_bytes.data());
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
}

// A late member's time is waiting, not transfer, and is charged to that member.
TEST(ShmGroup, TimeIsSplitIntoTransferAndWaiting) {
  constexpr uint64_t kLateNs = 30'000'000;
  const std::vector<Status> statuses = RunWorld(TpWorld(2), [](World* world) -> Status {
    Group* group = world->group(Axis::kTp);
    const std::vector<uint64_t> sizes = {1, 1};
    std::array<std::byte, 1> mine{};
    std::array<std::byte, 2> out{};
    RETURN_IF_ERROR(group->AllGather(mine, sizes, out.data()));
    const uint64_t before = SteadyNanos();
    while (world->rank() == 1 && SteadyNanos() - before < kLateNs) world->Beat();
    RETURN_IF_ERROR(group->AllGather(mine, sizes, out.data()));
    const OpStats& stats = group->stats().of(CommOp::kAllGather);
    if (world->rank() == 0) {
      EXPECT_GT(stats.wait_ns.load(), kLateNs / 2);
      EXPECT_GT(world->waited_for_ns(1), kLateNs / 2);
    }
    EXPECT_EQ(world->waited_for_ns(world->rank()), 0U);
    EXPECT_EQ(stats.calls.load(), 2U);
    EXPECT_EQ(stats.bytes.load(), 2U);
    return OkStatus();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(LoopbackGroup, MetersLikeTheBill) {
  const std::vector<ScriptStep> script = MakeScript(3, 60, 30'000, 5);
  LoopbackHub hub({.size = 3, .deadline_ms = 60'000, .one_shot_max_bytes = 3000});
  std::vector<std::thread> threads;
  for (uint32_t member = 0; member < 3; ++member) {
    threads.emplace_back([&, member] {
      const std::unique_ptr<Group> group = hub.Member(member);
      EXPECT_TRUE(RunScript(group.get(), script).ok());
      EXPECT_EQ(MeteredOf(group->stats()), BillOf(script, 3, member, 3000));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cleave

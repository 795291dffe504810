#include "comm/life.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>

#include "base/rng.h"
#include "comm/shared_signal.h"

namespace cleave {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

// Signals lie behind a line of padding: an offset of 0 is none.
struct Board {
  std::array<RankLine, 5> lines;
  std::array<SharedSignal, 16> signals{};
  [[nodiscard]] RankBoard View() const {
    return {.lines = lines, .segment = std::as_bytes(std::span(signals))};
  }
  void WaitsOn(uint32_t rank, uint32_t signal, uint32_t target) {
    lines[rank].signal = signal * sizeof(SharedSignal);
    lines[rank].target = target;
  }
  void Waits(uint32_t rank, uint32_t for_rank, Axis axis = Axis::kTp, uint64_t call = 0) {
    lines[rank].Enter(RankPhase::kWaiting, kSecond);
    lines[rank].waits_for = for_rank;
    lines[rank].axis = static_cast<uint32_t>(axis);
    lines[rank].call = call;
  }
};

TEST(DescribeRank, SaysWhatItDoes) {
  const Split split = {.pp = 2, .tp = 2};
  Board board;
  board.Waits(1, 0, Axis::kTp, 381);
  board.lines[1].op = static_cast<uint32_t>(CommOp::kAllReduce);
  EXPECT_EQ(DescribeRank(board.lines[1], 1, split, 5'200'000'000),
            "rank 1 (pp 0, tp 1, cp 0) waits in tp all_reduce, call 381, for rank 0, since 4.2 s");
  board.lines[2].Enter(RankPhase::kComputing, kSecond);
  EXPECT_EQ(DescribeRank(board.lines[2], 2, split, kSecond / 2),
            "rank 2 (pp 1, tp 0, cp 0) computes, since 0.0 s");
  EXPECT_EQ(DescribeRank(board.lines[3], 3, split, 0), "rank 3 (pp 1, tp 1, cp 0) is starting");
  board.lines[3].phase = 77;  // a damaged line must not damage the report
  board.lines[1].axis = 99;
  board.lines[1].op = 99;
  EXPECT_EQ(DescribeRank(board.lines[3], 3, split, 0),
            "rank 3 (pp 1, tp 1, cp 0) is in an unknown phase");
  EXPECT_NE(DescribeRank(board.lines[1], 1, split, 0), "");
  const Split teams{.teams = 2, .tp = 2, .ep = 2};
  const std::string text = DescribeRank(board.lines[3], 3, teams, 0);
  EXPECT_EQ(text.rfind("rank 3 (pp 0, team 1, tp 1, cp 0) ", 0), 0U) << text;
}

TEST(BlamedRank, FollowsTheChainToItsEnd) {
  Board board;
  EXPECT_EQ(BlamedRank(board.View(), 0, 1), 1U);
  board.Waits(1, 2, Axis::kTp);
  board.Waits(2, 3, Axis::kPp);
  EXPECT_EQ(BlamedRank(board.View(), 0, 1), 3U);
  board.lines[3].Enter(RankPhase::kComputing, kSecond);
  EXPECT_EQ(BlamedRank(board.View(), 0, 1), 3U);
}

TEST(BlamedRank, OneWhoseWaitIsOverWasStopped) {
  Board board;
  board.Waits(1, 2);
  board.Waits(2, 3);
  board.Waits(3, 1);
  for (uint32_t rank = 1; rank < 4; ++rank) board.WaitsOn(rank, rank, 10);
  board.signals[2].Raise(9);
  EXPECT_FALSE(board.View().WaitIsOver(2));
  board.signals[2].Raise(10);  // what rank 2 waits for has come; it has not noticed
  EXPECT_TRUE(board.View().WaitIsOver(2));
  for (const uint32_t first : {1U, 2U, 3U}) EXPECT_EQ(BlamedRank(board.View(), 0, first), 2U);
  // Damaged lines point nowhere.
  for (const uint64_t offset : {uint64_t{0}, uint64_t{3}, uint64_t{128}, UINT64_MAX - 3}) {
    board.lines[2].signal = offset;
    EXPECT_FALSE(board.View().WaitIsOver(2));
  }
  EXPECT_FALSE((RankBoard{.lines = board.lines, .segment = {}}).WaitIsOver(1));
}

TEST(BlamedRank, TwoWhoWaitForEachOtherAccuseEachOther) {
  Board board;
  board.Waits(1, 0);
  EXPECT_EQ(BlamedRank(board.View(), 0, 1), 1U);
  board.Waits(0, 1);
  EXPECT_EQ(BlamedRank(board.View(), 1, 0), 0U);
}

TEST(BlamedRank, NeverTheWaiterWhateverTheBoardSays) {
  RngStream rng(3);
  for (int i = 0; i < 20'000; ++i) {
    Board board;
    for (uint32_t rank = 0; rank < 5; ++rank) {
      board.Waits(rank, static_cast<uint32_t>(rng.Below(7)), static_cast<Axis>(rng.Below(3)),
                  rng.Below(3));
      board.lines[rank].phase = static_cast<uint32_t>(rng.Below(8) == 0 ? rng.Below(9) : 3);
    }
    const auto waiter = static_cast<uint32_t>(rng.Below(5));
    const uint32_t first = (waiter + 1 + static_cast<uint32_t>(rng.Below(4))) % 5;
    const uint32_t blamed = BlamedRank(board.View(), waiter, first);
    ASSERT_LT(blamed, 5U);
    ASSERT_NE(blamed, waiter);
  }
}

TEST(Silence, CountsFromTheLastSignOfLife) {
  Board board;
  Silence silence;
  silence.Look(board.View(), 0, 1, kSecond, kSecond);
  EXPECT_EQ(silence.silent_ns(), 0U);  // the first look has nothing to compare with
  silence.Look(board.View(), 0, 1, 300, kSecond);
  silence.Look(board.View(), 0, 1, 400, kSecond);
  EXPECT_EQ(silence.silent_ns(), 700U);
  EXPECT_EQ(silence.blamed(), 1U);
  board.lines[1].Beat();
  silence.Look(board.View(), 0, 1, 400, kSecond);
  EXPECT_EQ(silence.silent_ns(), 0U);
  silence.Look(board.View(), 0, 1, 400, kSecond);
  board.Waits(1, 2);  // from now on the fault of another, who gets his own time
  silence.Look(board.View(), 0, 1, 400, kSecond);
  EXPECT_EQ(silence.blamed(), 2U);
  EXPECT_EQ(silence.silent_ns(), 0U);
}

TEST(Silence, AnObserverThatWasStoppedCannotTell) {
  Board board;
  Silence silence;
  silence.Look(board.View(), 0, 1, 10, 50);
  silence.Look(board.View(), 0, 1, 3600 * kSecond, 50);
  EXPECT_EQ(silence.silent_ns(), 50U);
}

// Two threads sleep in turn, for much longer than the test may take: a lost wake would show.
TEST(SharedSignal, LosesNoWake) {
  constexpr uint32_t kRounds = 3000;
  constexpr auto kForever = std::chrono::hours(1);
  SharedSignal ping{};
  SharedSignal pong{};
  const auto wait = [&](SharedSignal* signal, uint32_t target) {
    for (uint32_t seen = signal->Value(); !signal->Reached(target); seen = signal->Value()) {
      signal->SleepWhile(seen, kForever);
    }
  };
  std::thread other([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      wait(&ping, round);
      pong.Raise(round);
    }
  });
  for (uint32_t round = 1; round <= kRounds; ++round) {
    ping.Raise(round);
    wait(&pong, round);
  }
  other.join();
  EXPECT_EQ(ping.sleepers.load(), 0U);
}

TEST(SharedSignal, CounterWrapsAndSleepEnds) {
  SharedSignal signal{};
  signal.Raise(0xffffffffU);
  EXPECT_TRUE(signal.Reached(0xffffffffU));
  EXPECT_TRUE(signal.Reached(0xfffffff0U));
  EXPECT_FALSE(signal.Reached(0));
  signal.Raise(1);
  EXPECT_TRUE(signal.Reached(0));
  EXPECT_TRUE(signal.Reached(0xffffffffU));
  EXPECT_FALSE(signal.Reached(2));
  signal.SleepWhile(1, std::chrono::milliseconds(1));
  signal.SleepWhile(7, std::chrono::hours(1));  // it is not 7: no sleep
  EXPECT_EQ(signal.sleepers.load(), 0U);
}

}  // namespace
}  // namespace cleave

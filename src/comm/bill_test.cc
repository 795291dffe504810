#include "comm/bill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

#include "comm/bill_report.h"
#include "comm/comm_test_support.h"
#include "comm/segment_view.h"

namespace cleave {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// Every figure is a different multiple of `n`.
RankBill BillNumber(uint64_t n) {
  RankBill bill;
  uint64_t factor = 1;
  for (uint32_t axis = 0; axis < kAxes; ++axis) {
    for (uint32_t op = 0; op < kCommOps; ++op) {
      bill.of(static_cast<Axis>(axis), static_cast<CommOp>(op)) = {.calls = n * factor,
                                                                   .bytes = n * (factor + 1),
                                                                   .predicted_calls = n * 1000,
                                                                   .predicted_bytes = n * 2000,
                                                                   .transfer_ns = n * 3000,
                                                                   .wait_ns = n * 4000};
      factor += 2;
    }
  }
  bill.AddStepTime(n * 5000);
  return bill;
}

class LineInMemory {
 public:
  LineInMemory() { std::memset(bytes_, 0, sizeof bytes_); }
  BillLine* line() { return reinterpret_cast<BillLine*>(bytes_); }

 private:
  alignas(BillLine) std::byte bytes_[sizeof(BillLine)];
};

TEST(BillLine, GivesBackTheLastBillWritten) {
  LineInMemory memory;
  EXPECT_EQ(memory.line()->Read(), RankBill()) << "zeroed memory is an empty bill";
  for (uint64_t n = 1; n < 5; ++n) {
    memory.line()->Write(BillNumber(n));
    EXPECT_EQ(memory.line()->Read(), BillNumber(n));
  }
}

TEST(BillLine, IsReadWholeWhileItIsWritten) {
  constexpr uint64_t kBills = 20000;
  LineInMemory memory;
  std::atomic<bool> reading{false};
  std::thread writer([&] {
    while (!reading) std::this_thread::yield();
    for (uint64_t n = 1; n <= kBills; ++n) memory.line()->Write(BillNumber(n));
  });
  uint64_t last = 0;
  reading = true;
  while (last < kBills) {
    const RankBill bill = memory.line()->Read();
    const uint64_t n = bill.step_ns() / 5000;
    ASSERT_EQ(bill, BillNumber(n));
    ASSERT_GE(n, last);
    last = n;
  }
  writer.join();
}

TEST(Bill, AddsUpAndSaysWhetherItIsExact) {
  RankBill bill = BillNumber(1);
  bill.Add(BillNumber(2));
  EXPECT_EQ(bill, BillNumber(3));
  EXPECT_FALSE(bill.exact());

  CommStats stats;
  stats.of(CommOp::kSend).AddCall(100);
  stats.of(CommOp::kSend).AddCall(20);
  stats.of(CommOp::kSend).AddTime(50, 30);
  TrafficTotals totals;
  totals.Add(Axis::kPp, CommOp::kSend, 2, 120);
  RankBill exact;
  exact.AddMetered(Axis::kPp, stats);
  EXPECT_FALSE(exact.exact());
  exact.AddPredicted(totals);
  EXPECT_TRUE(exact.exact());
  exact.AddStepTime(120);
  EXPECT_EQ(exact.of(Axis::kPp, CommOp::kSend), (OpBill{.calls = 2,
                                                        .bytes = 120,
                                                        .predicted_calls = 2,
                                                        .predicted_bytes = 120,
                                                        .transfer_ns = 20,
                                                        .wait_ns = 30}));
  EXPECT_EQ(exact.bubble(), 0.25);
  totals.Add(Axis::kPp, CommOp::kSend, 0, 1);
  exact.AddPredicted(totals);
  EXPECT_FALSE(exact.exact());
}

TEST(Bill, OfARankThatIsGoneIsStillThere) {
  const WorldOptions options = TpWorld(2);
  const Result<SharedMemory> memory = World::Allocate(options, SharedMemoryKind::kThreads);
  ASSERT_TRUE(memory.ok());
  {
    Result<World> world = World::Join(*memory, 1, options.epoch);
    ASSERT_TRUE(world.ok());
    world->bill()->Write(BillNumber(7));
    world->End("it is over");
  }
  const Result<WorldBoard> board = WorldBoard::Open(*memory, options.epoch);
  ASSERT_TRUE(board.ok());
  EXPECT_EQ(board->bill(0), RankBill());
  EXPECT_EQ(board->bill(1), BillNumber(7));
}

TEST(Bill, TheBubbleIsThatOfTheFirstRankOfEachStage) {
  Bill bill = {.split = {.dp = 2, .pp = 2, .tp = 3}, .ranks = std::vector<RankBill>(12)};
  for (size_t i = 0; i < bill.ranks.size(); ++i) {
    const bool first = i % 3 == 0;
    bill.ranks[i].of(Axis::kPp, CommOp::kSend).wait_ns = first ? 25 : 9;
    bill.ranks[i].AddStepTime(first ? 100 : 10);
  }
  EXPECT_EQ(bill.bubble(), 0.25);
  EXPECT_EQ(Bill().bubble(), 0);
}

// Two replicas of two stages; the last rank moved less than predicted.
Bill MakeBill() {
  Bill bill = {.split = {.dp = 2, .pp = 2}, .ranks = std::vector<RankBill>(4)};
  for (RankBill& rank : bill.ranks) {
    rank.of(Axis::kPp, CommOp::kSend) = {.calls = 10,
                                         .bytes = 1000,
                                         .predicted_calls = 10,
                                         .predicted_bytes = 1000,
                                         .transfer_ns = 250'000'000,
                                         .wait_ns = 500'000'000};
    rank.AddStepTime(2'000'000'000);
  }
  bill.ranks[3].of(Axis::kPp, CommOp::kSend).bytes = 900;
  return bill;
}

TEST(BillReport, JsonHasAxesTokensAndRanks) {
  const Json json = Json::parse(BillJson(MakeBill(), 20));
  EXPECT_EQ(json["axes"], Json::parse(R"([{"axis": "pp", "ops": [{"op": "send", "calls": 40,
      "metered_bytes": 3900, "predicted_calls": 40, "predicted_bytes": 4000, "transfer_s": 1.0,
      "wait_s": 2.0}]}])"));
  EXPECT_EQ(json["exact"], false);
  EXPECT_EQ(json["bubble"], 0.25);
  EXPECT_EQ(json["per_generated_token"], Json::parse(R"({"generated_tokens": 20, "axes": [
      {"axis": "pp", "ops": [{"op": "send", "calls": 2.0, "bytes": 195.0, "transfer_s": 0.05,
      "wait_s": 0.1}]}]})"));
  ASSERT_EQ(json["ranks"].size(), 4U);
  const Json& last = json["ranks"][3];
  EXPECT_EQ(last["replica"], 1);
  EXPECT_EQ(last["rank"], 1);
  EXPECT_EQ(last["pp"], 1);
  EXPECT_EQ(last["step_s"], 2.0);
  EXPECT_EQ(last["bubble"], 0.25);
  EXPECT_EQ(last["axes"][0]["ops"][0]["metered_bytes"], 900);
}

TEST(BillReport, OneRankOwesNothing) {
  const Json json = Json::parse(BillJson({}, 7));
  EXPECT_EQ(json["axes"], Json::array());
  EXPECT_EQ(json["ranks"], Json::array());
  EXPECT_EQ(json["exact"], true);
  EXPECT_EQ(json["per_generated_token"], Json::parse(R"({"generated_tokens": 7, "axes": []})"));
  EXPECT_EQ(BillText({}, 7), "nothing was exchanged\n");
}

TEST(BillReport, BeforeTheFirstTokenThereIsNoShare) {
  const Json json = Json::parse(BillJson(MakeBill(), 0));
  EXPECT_EQ(json["per_generated_token"]["axes"], Json::array());
  EXPECT_THAT(BillText(MakeBill(), 0), HasSubstr("  -  "));
}

TEST(BillReport, TextSaysWhereThePredictionFailed) {
  EXPECT_EQ(
      BillText(MakeBill(), 20),
      "axis  operation  calls  bytes   predicted  bytes a token  transfer s  wait s\n"
      "  pp       send     40   3900  4000 in 40            195       1.000   2.000\n"
      "20 tokens generated; metered NOT as predicted on every rank; pipeline bubble 25.0 %\n");
  Bill exact = MakeBill();
  exact.ranks[3] = exact.ranks[0];
  EXPECT_THAT(BillText(exact, 20), HasSubstr("the same"));
  EXPECT_THAT(BillText(exact, 20), HasSubstr("metered as predicted on every rank"));
}

}  // namespace
}  // namespace cleave

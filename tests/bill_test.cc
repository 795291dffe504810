// bill.exact: on every rank, for every axis and operation, the calls and bytes that were metered
// are those that split/traffic.h predicts for the steps that ran. Ranks are threads here.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <vector>

#include "answer_harness.h"
#include "comm/bill.h"
#include "thread_replica.h"

namespace cleave {
namespace {

// One-shot always, never, and for steps of a few tokens only.
constexpr uint64_t kAlways = UINT64_MAX;
constexpr uint64_t kNever = 0;
constexpr uint64_t kFewTokens = 2000;

struct Case {
  std::string model;  // a tiny one, or a path
  Split split;
  uint64_t one_shot_max_bytes;
  Way way;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << ", " << c.split.ToString() << ", one-shot up to " << c.one_shot_max_bytes
       << ", " << c.way.name;
}

Bill RunAndBill(const Case& c, const Requests& requests) {
  Bill bill;
  const ThreadReplicaOptions options = {.one_shot_max_bytes = c.one_shot_max_bytes, .bill = &bill};
  const auto make = [&](const std::string& model, const ModelPlan& plan) {
    return MakeThreadReplica(model, plan, c.split, options);
  };
  const std::string path = c.model.front() == '/' ? c.model : CLEAVE_TINY "/" + c.model;
  Way way = c.way;
  way.teams = c.split.teams;
  way.kv_partitions = KvPartitionsOf(c.split);
  const Outcome outcome = RunRequests(path, way, requests, make);
  EXPECT_EQ(outcome.answers.size(), requests.size());
  return bill;
}

void ExpectExact(const Bill& bill) {
  ASSERT_EQ(bill.ranks.size(), bill.split.ranks_per_replica());
  for (uint32_t rank = 0; rank < bill.ranks.size(); ++rank) {
    for (uint32_t a = 0; a < kAxes; ++a) {
      for (uint32_t o = 0; o < kCommOps; ++o) {
        const auto axis = static_cast<Axis>(a);
        const auto op = static_cast<CommOp>(o);
        const OpBill& figures = bill.ranks[rank].of(axis, op);
        EXPECT_EQ(figures.calls, figures.predicted_calls)
            << AxisName(axis) << " " << CommOpName(op) << " of rank " << rank;
        EXPECT_EQ(figures.bytes, figures.predicted_bytes)
            << AxisName(axis) << " " << CommOpName(op) << " of rank " << rank;
      }
    }
  }
}

// What the cut must have used at all, so that nothing is exact for want of traffic.
void ExpectUsed(const Bill& bill, uint64_t one_shot_max_bytes) {
  const RankBill total = bill.Total();
  const auto calls = [&](Axis axis, CommOp op) { return total.of(axis, op).calls; };
  const bool tp = bill.split.tp > 1;
  EXPECT_EQ(calls(Axis::kTp, CommOp::kAllGather) > 0, tp);
  EXPECT_EQ(calls(Axis::kTp, CommOp::kAllReduce) > 0, tp && one_shot_max_bytes != kNever);
  // Large steps share their rows, where no ep is beside tp.
  EXPECT_EQ(calls(Axis::kTp, CommOp::kReduceScatter) > 0,
            tp && (one_shot_max_bytes != kAlways || bill.split.ep == 1));
  EXPECT_EQ(calls(Axis::kPp, CommOp::kSend) > 0, bill.split.pp > 1);
  EXPECT_EQ(calls(Axis::kCp, CommOp::kAllGather) > 0, KvPartitionsOf(bill.split) > 1);
  EXPECT_EQ(calls(Axis::kCp, CommOp::kAllToAll) > 0, KvPartitionsOf(bill.split) > 1);
  for (const CommOp op : {CommOp::kAllGather, CommOp::kAllToAll}) {
    EXPECT_EQ(calls(Axis::kEp, op) > 0, bill.split.ep > 1);
  }
  for (const RankBill& rank : bill.ranks) EXPECT_GT(rank.step_ns(), 0U);
  // Every team had results.
  const Split& split = bill.split;
  for (uint32_t team = 1; team < split.teams; ++team) {
    const uint32_t lead = RankOf(split, {.pp = split.pp - 1, .team = team});
    EXPECT_GT(bill.ranks[lead].of(Axis::kEp, CommOp::kSend).calls, 0U) << "team " << team;
  }
}

// The first experts are said to be the hottest.
Split WithCopies(Split split, uint32_t copies, uint32_t experts) {
  split.redundant_experts = copies;
  for (uint32_t e = 0; e < experts; ++e) split.expert_loads.push_back(1000 >> (2 * e));
  return split;
}

class BillExact : public testing::TestWithParam<Case> {};

// Greedy and sampled sequences, one of them with the log-probabilities of its prompt: more rows
// than go out in one group.
TEST_P(BillExact, OnEveryRank) {
  const Bill bill = RunAndBill(GetParam(), MakeRequests(10, 300, 12));
  ExpectExact(bill);
  ExpectUsed(bill, GetParam().one_shot_max_bytes);
}

const Way kBatch = {.name = "batch", .threads = 1, .max_num_seqs = 6};
const Way kChunks = {.name = "chunks of 7, preempted, cached",
                     .threads = 2,
                     .max_num_seqs = 5,
                     .chunk = 7,
                     .batched_tokens = 48,
                     .prefix_caching = true,
                     .rounds = 2,
                     .blocks_share = 30};

INSTANTIATE_TEST_SUITE_P(
    Cuts, BillExact,
    testing::Values(
        Case{"llama2", {.tp = 2}, kFewTokens, kBatch}, Case{"llama2", {.tp = 3}, kNever, kChunks},
        Case{"qwen3", {.tp = 3}, kAlways, kBatch}, Case{"llama3", {.tp = 2}, kFewTokens, kChunks},
        Case{"llama3", {.pp = 2}, kFewTokens, kBatch},
        Case{"llama3", {.pp = 3}, kFewTokens, kChunks},
        Case{"llama3", {.pp = 2, .tp = 2}, kFewTokens, kChunks},
        Case{"qwen2.gguf", {.pp = 2, .tp = 2}, kNever, kBatch},
        Case{"llama2", {.pp = 3, .tp = 2}, kFewTokens, kBatch},
        Case{"gemma3", {.tp = 2}, kFewTokens, kBatch},
        Case{"gemma3", {.pp = 2, .tp = 2}, kFewTokens, kChunks},
        Case{"mixtral", {.tp = 2}, kFewTokens, kBatch},
        Case{"mixtral", {.tp = 2, .ep = 2}, kFewTokens, kChunks},
        Case{"mixtral_q8.gguf", {.pp = 3, .tp = 4, .ep = 2}, kFewTokens, kBatch},
        Case{"mixtral_q8.gguf", {.tp = 3, .ep = 3}, kNever, kChunks},
        Case{"qwen3_moe_bf16", {.tp = 4, .ep = 4}, kAlways, kBatch},
        Case{"mixtral", WithCopies({.tp = 2, .ep = 2}, 1, 5), kFewTokens, kChunks},
        Case{"mixtral_q8.gguf", WithCopies({.tp = 3, .ep = 3}, 2, 10), kNever, kBatch},
        Case{"qwen3_moe.gguf", WithCopies({.tp = 4, .ep = 2}, 3, 10), kFewTokens, kChunks},
        Case{"mixtral", {.teams = 2, .ep = 2}, kFewTokens, kChunks},
        Case{"mixtral_q8.gguf", {.pp = 3, .teams = 2, .tp = 2, .ep = 2}, kFewTokens, kBatch},
        Case{"mixtral_q8.gguf", {.pp = 2, .teams = 3, .ep = 3}, kNever, kChunks},
        Case{"qwen3_moe.gguf", {.teams = 2, .ep = 4, .cp = 2}, kFewTokens, kBatch},
        Case{"qwen3_moe_bf16", WithCopies({.teams = 2, .tp = 2, .ep = 4}, 2, 7), kAlways, kChunks},
        Case{"llama3", {.cp = 2}, kFewTokens, kBatch},
        Case{"llama3", {.tp = 2, .dcp = 2}, kNever, kChunks},
        Case{"qwen2.gguf", {.pp = 2, .tp = 2, .cp = 2, .dcp = 2}, kFewTokens, kBatch},
        Case{"mixtral_q8.gguf", {.tp = 2, .ep = 4, .cp = 2}, kFewTokens, kBatch}));

// Sequences of several runs a rank: partials of other ranks that count, and steps of few rows.
TEST(BillExactness, LongSequences) {
  Requests requests = MakeRequests(5, 300, 12);
  Lengthen(2, 6 * kRunPositions, 300, &requests);
  for (const Split& split : {Split{.cp = 2}, Split{.tp = 2, .cp = 2, .dcp = 2}}) {
    const Bill bill = RunAndBill({"llama3", split, kFewTokens, kBatch}, requests);
    ExpectExact(bill);
    ExpectUsed(bill, kFewTokens);
  }
}

// Cuts that no tiny model is large enough for.
class BillExactFull : public testing::TestWithParam<Split> {};

TEST_P(BillExactFull, DemoModel) {
  const std::string model = "SmolLM2-135M-Instruct.Q4_1.gguf";
  const std::string path = std::string(CLEAVE_SOURCE_DIR) + "/models/" + model;
  ASSERT_TRUE(std::filesystem::exists(path)) << path << " is missing: run tools/fetch_models.sh";
  const Case c = {path, GetParam(), 20000, kBatch};
  const Bill bill = RunAndBill(c, MakeRequests(6, 40000, 8));
  ExpectExact(bill);
  ExpectUsed(bill, c.one_shot_max_bytes);
}

INSTANTIATE_TEST_SUITE_P(Cuts, BillExactFull,
                         testing::Values(Split{.tp = 4}, Split{.tp = 9}, Split{.pp = 4},
                                         Split{.pp = 3, .tp = 3}, Split{.pp = 2, .tp = 6}),
                         [](const auto& cut) {
                           return fmt::format("pp{}tp{}", cut.param.pp, cut.param.tp);
                         });

class ExpertTokensExact : public testing::TestWithParam<Case> {};

// What ranks count adds up to the choices of one rank that routes every row itself; and each counts
// what it holds.
TEST_P(ExpertTokensExact, AreTheRoutersChoices) {
  const Case& c = GetParam();
  const Requests requests = MakeRequests(10, 300, 12);
  const std::string path = CLEAVE_TINY "/" + c.model;
  const ExpertTokens plain = RunRequests(path, kBatch, requests).expert_tokens;
  auto checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok());
  const ModelConfig& config = (*checkpoint)->config();
  uint64_t rows = 0;
  for (const SequenceSpec& s : requests) rows += s.prompt.size() + s.sampling.max_tokens - 1;
  EXPECT_EQ(std::accumulate(plain.begin(), plain.end(), uint64_t{0}),
            rows * config.num_layers() * config.experts_per_token);
  const Bill bill = RunAndBill(c, requests);
  EXPECT_EQ(bill.TotalExpertTokens(), plain);
  const ModelShape shape = ShapeOf(config);
  const auto layout = MakeLayout(shape, c.split, CostsByWork(shape));
  ASSERT_TRUE(layout.ok());
  std::vector<std::set<uint32_t>> computed_by(shape.num_experts);  // ep ranks
  for (const RankLayout& rank : layout->ranks) {
    const ExpertPlace place = ExpertPlaceOf(c.split, rank.coord);
    for (uint32_t e = 0; e < shape.num_experts; ++e) {
      if (bill.expert_tokens[rank.rank][e] == 0) continue;
      EXPECT_TRUE(std::binary_search(rank.experts.begin(), rank.experts.end(), e));
      computed_by[e].insert(place.ep_rank);
    }
  }
  const bool shared = std::any_of(computed_by.begin(), computed_by.end(),
                                  [](const std::set<uint32_t>& ranks) { return ranks.size() > 1; });
  EXPECT_EQ(shared, c.split.redundant_experts > 0) << "copies are used";
}

INSTANTIATE_TEST_SUITE_P(
    Cuts, ExpertTokensExact,
    testing::Values(
        Case{"mixtral", {.pp = 3, .tp = 2}, kFewTokens, kBatch},
        Case{"mixtral_q8.gguf", {.tp = 2, .cp = 2}, kFewTokens, kBatch},
        Case{"mixtral_q8.gguf", {.pp = 2, .tp = 2, .ep = 4, .cp = 2}, kNever, kBatch},
        Case{"qwen3_moe.gguf", {.tp = 4, .ep = 2}, kFewTokens, kBatch},
        Case{"qwen3_moe.gguf", {.pp = 2, .teams = 2, .tp = 2, .ep = 2}, kFewTokens, kBatch},
        Case{"qwen3_moe.gguf", WithCopies({.pp = 2, .tp = 3, .ep = 3}, 3, 10), kFewTokens, kBatch},
        Case{"mixtral_q8.gguf", WithCopies({.tp = 4, .ep = 2}, 2, 10), kNever, kBatch}));

uint64_t TpBytes(const Bill& bill) {
  const RankBill total = bill.Total();
  return total.of(Axis::kTp, CommOp::kAllReduce).bytes;
}

// Post-norm families send every row wide: the same steps move nearly twice the bytes.
TEST(BillExactness, WideRowsAreCounted) {
  const Case c = {"gemma3", {.tp = 2}, kAlways, kBatch};
  const Bill bill = RunAndBill(c, MakeRequests(3, 300, 8));
  ExpectExact(bill);
  auto checkpoint = OpenCheckpoint(std::string(CLEAVE_TINY) + "/gemma3");
  ASSERT_TRUE(checkpoint.ok());
  const uint64_t columns = (*checkpoint)->config().hidden_size;
  // A row is its flag and its sums, of 4 or 8 bytes.
  EXPECT_EQ(TpBytes(bill) % (1 + 8 * columns), 0U);
  EXPECT_NE(TpBytes(bill) % (1 + 4 * columns), 0U);
}

// The same requests in the same steps cost the same on the second run; times alone differ.
TEST(BillExactness, IsAFunctionOfTheSteps) {
  const Case c = {
      "llama3", {.pp = 2, .tp = 2}, kFewTokens, {.name = "alone", .threads = 1, .max_num_seqs = 1}};
  const Requests requests = MakeRequests(1, 300, 12);
  const RankBill first = RunAndBill(c, requests).Total();
  const RankBill second = RunAndBill(c, requests).Total();
  for (const CommOp op : {CommOp::kAllReduce, CommOp::kAllGather, CommOp::kReduceScatter}) {
    EXPECT_EQ(first.of(Axis::kTp, op).bytes, second.of(Axis::kTp, op).bytes);
    EXPECT_GT(first.of(Axis::kTp, op).bytes, 0U);
  }
  EXPECT_EQ(first.of(Axis::kPp, CommOp::kSend).calls, second.of(Axis::kPp, CommOp::kSend).calls);
}

}  // namespace
}  // namespace cleave

#include "comm/bill.h"

#include <algorithm>
#include <bit>

namespace cleave {
namespace {

// Reads again when the writer was two steps further meanwhile: a step takes far longer than a read,
// and a segment whose writer never rests is still read.
constexpr int kReads = 10000;

using OpWords = std::array<uint64_t, kOpBillWords>;

}  // namespace

void OpBill::Add(const OpBill& more) {
  calls += more.calls;
  bytes += more.bytes;
  predicted_calls += more.predicted_calls;
  predicted_bytes += more.predicted_bytes;
  transfer_ns += more.transfer_ns;
  wait_ns += more.wait_ns;
}

void RankBill::AddMetered(Axis axis, const CommStats& stats) {
  for (uint32_t i = 0; i < kCommOps; ++i) {
    const OpStats& op = stats.ops[i];
    of(axis, static_cast<CommOp>(i))
        .Add({.calls = op.calls.load(std::memory_order_relaxed),
              .bytes = op.bytes.load(std::memory_order_relaxed),
              .transfer_ns = op.transfer_ns.load(std::memory_order_relaxed),
              .wait_ns = op.wait_ns.load(std::memory_order_relaxed)});
  }
}

void RankBill::AddPredicted(const TrafficTotals& totals) {
  for (uint32_t axis = 0; axis < kAxes; ++axis) {
    for (uint32_t op = 0; op < kCommOps; ++op) {
      const auto& entry = totals.of(static_cast<Axis>(axis), static_cast<CommOp>(op));
      of(static_cast<Axis>(axis), static_cast<CommOp>(op))
          .Add({.predicted_calls = entry.calls, .predicted_bytes = entry.bytes});
    }
  }
}

void RankBill::Add(const RankBill& more) {
  for (uint32_t i = 0; i < kOps; ++i) ops_[i].Add(more.ops_[i]);
  step_ns_ += more.step_ns_;
}

bool RankBill::exact() const {
  return std::all_of(ops_.begin(), ops_.end(), [](const OpBill& op) { return op.exact(); });
}

double RankBill::bubble() const {
  const uint64_t waited = of(Axis::kPp, CommOp::kSend).wait_ns;
  return step_ns_ == 0 ? 0 : static_cast<double>(waited) / static_cast<double>(step_ns_);
}

double Bill::bubble() const {
  RankBill firsts;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (rank_of(i) % split.ranks_per_stage() == 0) firsts.Add(ranks[i]);
  }
  return firsts.bubble();
}

RankBill Bill::Total() const {
  RankBill total;
  for (const RankBill& rank : ranks) total.Add(rank);
  return total;
}

std::span<const ExpertTokens> Bill::ExpertTokensOf(uint32_t replica) const {
  if (expert_tokens.empty()) return {};
  const size_t count = split.ranks_per_replica();
  return std::span(expert_tokens).subspan(replica * count, count);
}

ExpertTokens Bill::TotalExpertTokens() const {
  ExpertTokens total;
  for (const ExpertTokens& rank : expert_tokens) AddTokens(rank, &total);
  return total;
}

// Words are released after the count they follow, so that a reader who sees one of a later bill
// sees that its own was overtaken.
void BillLine::Write(const RankBill& bill) {
  const uint64_t number = written_.load(std::memory_order_relaxed) + 1;
  std::atomic<uint64_t>* to = copies_[number & 1U].data();
  for (const OpBill& op : bill.ops_) {
    for (const uint64_t word : std::bit_cast<OpWords>(op)) {
      (to++)->store(word, std::memory_order_release);
    }
  }
  to->store(bill.step_ns_, std::memory_order_release);
  written_.store(number, std::memory_order_release);
}

RankBill BillLine::Read() const {
  RankBill bill;
  uint64_t number = written_.load(std::memory_order_acquire);
  for (int reads = 0; reads < kReads; ++reads) {
    const std::atomic<uint64_t>* from = copies_[number & 1U].data();
    for (OpBill& op : bill.ops_) {
      OpWords words;
      for (uint64_t& word : words) word = (from++)->load(std::memory_order_acquire);
      op = std::bit_cast<OpBill>(words);
    }
    bill.step_ns_ = from->load(std::memory_order_acquire);
    const uint64_t now = written_.load(std::memory_order_acquire);
    if (now == number) break;
    number = now;
  }
  return bill;
}

}  // namespace cleave

#pragma once
// The bill: what ranks moved over each axis and how long it took, beside what split/traffic.h
// predicts for the steps they ran.
//
// A rank writes its bill whole, at the end of a step, into its line of the replica's segment:
// whoever reads sees metered and predicted figures of the same steps, and a rank that dies leaves
// those of the steps it ended.
// RankBill, Bill: values. BillLine: one writer (the rank's thread 0); readers are any thread of any
// process.

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/expert_counts.h"
#include "comm/shared_signal.h"
#include "comm/stats.h"
#include "split/traffic.h"

namespace cleave {

struct OpBill {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  uint64_t predicted_calls = 0;
  uint64_t predicted_bytes = 0;
  uint64_t transfer_ns = 0;
  uint64_t wait_ns = 0;

  void Add(const OpBill& more);
  // Metered as predicted.
  [[nodiscard]] bool exact() const { return calls == predicted_calls && bytes == predicted_bytes; }
  bool operator==(const OpBill&) const = default;
};
inline constexpr uint32_t kOpBillWords = 6;

class RankBill {
 public:
  [[nodiscard]] const OpBill& of(Axis axis, CommOp op) const { return ops_[IndexOf(axis, op)]; }
  [[nodiscard]] OpBill& of(Axis axis, CommOp op) { return ops_[IndexOf(axis, op)]; }
  // Time inside steps, waiting for other ranks included.
  [[nodiscard]] uint64_t step_ns() const { return step_ns_; }

  // What a group on `axis` metered.
  void AddMetered(Axis axis, const CommStats& stats);
  void AddPredicted(const TrafficTotals& totals);
  void AddStepTime(uint64_t ns) { step_ns_ += ns; }
  void Add(const RankBill& more);

  [[nodiscard]] bool exact() const;
  // Share of the time inside steps that went by waiting for another stage; 0 where there is none.
  [[nodiscard]] double bubble() const;
  bool operator==(const RankBill&) const = default;

 private:
  friend class BillLine;
  static constexpr uint32_t kOps = kAxes * kCommOps;
  static uint32_t IndexOf(Axis axis, CommOp op) {
    return static_cast<uint32_t>(axis) * kCommOps + static_cast<uint32_t>(op);
  }

  std::array<OpBill, kOps> ops_;
  uint64_t step_ns_ = 0;
};

// Of all ranks of all replicas since the start, those of dead ones included.
struct Bill {
  Split split;
  // [dp · ranks of a replica], by replica, then rank; empty where there is one rank in all.
  std::vector<RankBill> ranks = {};
  std::vector<ExpertTokens> expert_tokens = {};  // likewise, also of one; empty: no experts

  [[nodiscard]] uint32_t replica_of(size_t index) const {
    return static_cast<uint32_t>(index / split.ranks_per_replica());
  }
  [[nodiscard]] uint32_t rank_of(size_t index) const {
    return static_cast<uint32_t>(index % split.ranks_per_replica());
  }
  [[nodiscard]] RankBill Total() const;
  // By rank. replica < dp; empty where there are no experts.
  [[nodiscard]] std::span<const ExpertTokens> ExpertTokensOf(uint32_t replica) const;
  [[nodiscard]] ExpertTokens TotalExpertTokens() const;
  // Of all stages, by the first rank of each: while it waits for another stage, the others of a
  // stage may have no step to wait in.
  [[nodiscard]] double bubble() const;
};

// In shared memory, all zero at first. Two copies: one is read while the other is written.
class alignas(kSharedLine) BillLine {
 public:
  void Write(const RankBill& bill);
  // The last bill that was written whole.
  [[nodiscard]] RankBill Read() const;

 private:
  static constexpr uint32_t kWords = RankBill::kOps * kOpBillWords + 1;
  using Copy = std::array<std::atomic<uint64_t>, kWords>;

  std::atomic<uint64_t> written_;
  std::array<Copy, 2> copies_;
};

}  // namespace cleave

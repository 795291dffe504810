#pragma once
// RankSeat: one rank's place in a replica, and how it waits for the others.
//
// A wait looks at the flag for a while, then yields, then sleeps on it, woken by whoever raises it.
// While it sleeps it looks around every few milliseconds: has the epoch ended, has the process of
// the rank it waits for died, has that rank given no sign of life for the deadline (comm/life.h).
// The rank that finds a failure ends the epoch, so that nobody waits on.
// Owner: World. One thread. Does not outlive the segment.

#include <string>
#include <string_view>
#include <vector>

#include "comm/segment_view.h"

namespace cleave {

// What a wait belongs to, for reports.
struct OpLabel {
  GroupKind group = GroupKind::kTp;
  CommOp op = CommOp::kAllReduce;
  uint64_t call = 0;
  // "tp all_reduce, call 381"
  [[nodiscard]] std::string ToString() const;
};

class RankSeat {
 public:
  RankSeat(SegmentView view, uint32_t rank);
  ~RankSeat();
  RankSeat(const RankSeat&) = delete;
  RankSeat& operator=(const RankSeat&) = delete;

  [[nodiscard]] SegmentView& view() { return view_; }
  [[nodiscard]] uint32_t rank() const { return rank_; }
  [[nodiscard]] RankLine& line() { return *line_; }
  [[nodiscard]] const OpLabel& op() const { return op_; }

  // Before an operation: kUnavailable when the epoch has ended. Beats.
  Status Begin(const OpLabel& op);
  // Until `signal` has reached `target`, which rank `for_rank` will raise it to.
  Status Await(SharedSignal* signal, uint32_t target, uint32_t for_rank) {
    return signal->Reached(target) ? OkStatus() : AwaitLong(signal, target, for_rank);
  }
  // Time spent in Await so far, for all ranks or for rank `r`.
  [[nodiscard]] uint64_t waited_ns() const { return waited_ns_; }
  // Any thread.
  [[nodiscard]] uint64_t waited_for_ns(uint32_t r) const {
    return waited_for_ns_[r].load(std::memory_order_relaxed);
  }

  // Ends the epoch because the current operation failed, and gives the error on.
  Status Fail(StatusCode code, std::string_view why);

 private:
  enum class Patience : uint8_t { kReached, kEnded, kExhausted };

  Status AwaitLong(SharedSignal* signal, uint32_t target, uint32_t for_rank);
  Patience SpinAndYield(const SharedSignal& signal, uint32_t target, uint64_t start_ns);
  Status Sleep(SharedSignal* signal, uint32_t target, uint32_t for_rank);
  Status LookAround(const SharedSignal& signal, uint32_t target, uint32_t for_rank,
                    uint64_t elapsed_ns, Silence* silence);
  [[nodiscard]] bool HasDied(uint32_t rank);
  [[nodiscard]] Status EndedStatus() const;

  SegmentView view_;
  uint32_t rank_;
  RankLine* line_;
  uint64_t deadline_ns_;
  uint64_t slice_ns_;  // of sleep between looks around

  OpLabel op_;
  uint64_t waited_ns_ = 0;
  std::vector<std::atomic<uint64_t>> waited_for_ns_;  // [ranks]
  uint64_t crowded_until_ns_ = 0;
  std::vector<int> pidfds_;  // [ranks]; -1: not opened
};

}  // namespace cleave

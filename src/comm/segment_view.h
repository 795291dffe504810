#pragma once
// SegmentView: the words of one mapped segment, checked once. It neither owns nor outlives the
// memory. Any thread and process; End may be called by several at once, the first reason stands.

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "comm/bill.h"
#include "comm/expert_counts.h"
#include "comm/segment.h"
#include "comm/shared_memory.h"

namespace cleave {

class SegmentView {
 public:
  // Writes the header of fresh memory of plan.size bytes.
  static void Format(const SegmentPlan& plan, const SharedMemory& memory);
  // Fails: kDataLoss (not a segment, or a damaged one), kUnsupported (version),
  // kUnavailable (another epoch).
  static Result<SegmentView> Open(const SharedMemory& memory, uint64_t epoch);

  [[nodiscard]] const SegmentPlan& plan() const { return plan_; }
  [[nodiscard]] std::byte* at(uint64_t offset) const { return base_ + offset; }
  [[nodiscard]] uint64_t OffsetOf(const void* address) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(address) - base_);
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {base_, plan_.size}; }
  [[nodiscard]] std::span<RankLine> board() const;
  [[nodiscard]] std::span<RankIdentity> identities() const;
  [[nodiscard]] std::span<BillLine> bills() const;
  [[nodiscard]] std::span<ExpertCount> expert_tokens(uint32_t rank) const;

  [[nodiscard]] bool ended() const {
    return header_->state.load(std::memory_order_relaxed) != SegmentHeader::kRunning;
  }
  // "" while it runs.
  [[nodiscard]] std::string reason() const;
  // Ends the epoch for good and wakes everybody who waits.
  void End(std::string_view reason);

 private:
  SegmentView(SegmentPlan plan, std::byte* base);

  SegmentPlan plan_;
  std::byte* base_;
  SegmentHeader* header_;
};

}  // namespace cleave

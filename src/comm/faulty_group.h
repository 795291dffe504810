#pragma once
// FaultyGroup: a group that misbehaves on purpose, for tests of what the others then do.
//
// Passes calls on to another group; some come late, and from a chosen one on the member falls
// silent or dies. Seeded: the same plan delays the same calls by the same time. Thread: the
// group's.

#include <cstdint>
#include <functional>
#include <limits>

#include "base/rng.h"
#include "comm/group.h"

namespace cleave {

struct FaultPlan {
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  uint64_t seed = 1;
  uint32_t delay_percent = 0;  // of calls
  uint32_t longest_delay_us = 0;
  uint64_t drop_at = kNever;  // number of the call, from 0, that never happens
  uint64_t kill_at = kNever;  // number of the call at which the member dies
  // How long a dropped call holds its thread at most; it returns early when `released` says so.
  uint32_t drop_hold_ms = 10'000;
};

class FaultyGroup final : public Group {
 public:
  // `kill` ends the member: for a process, SIGKILL to itself. If it returns, calls fail from then.
  FaultyGroup(Group* group, const FaultPlan& plan, std::function<void()> kill,
              std::function<bool()> released);

  [[nodiscard]] uint32_t rank() const override { return group_->rank(); }
  [[nodiscard]] uint32_t size() const override { return group_->size(); }
  Status AllReduce(const IntegerRows& mine, float* out, size_t out_stride) override;
  Status ReduceScatter(const IntegerRows& mine, std::span<const Range> rows_of, float* out,
                       size_t out_stride) override;
  Status AllGather(std::span<const std::byte> mine, std::span<const uint64_t> sizes,
                   std::byte* out) override;
  Status AllToAll(const std::byte* send, std::span<const uint64_t> send_sizes, std::byte* receive,
                  std::span<const uint64_t> receive_sizes) override;
  Status Send(uint32_t to, std::span<const std::byte> bytes) override;
  Status Receive(uint32_t from, std::span<std::byte> bytes) override;
  [[nodiscard]] const CommStats& stats() const override { return group_->stats(); }
  [[nodiscard]] uint64_t one_shot_max_bytes() const override {
    return group_->one_shot_max_bytes();
  }

 private:
  // Before each call: what the plan has for it.
  Status Misbehave();

  Group* group_;
  FaultPlan plan_;
  std::function<void()> kill_;
  std::function<bool()> released_;
  RngStream rng_;
  uint64_t calls_ = 0;
};

}  // namespace cleave

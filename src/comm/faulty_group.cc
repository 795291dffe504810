#include "comm/faulty_group.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace cleave {

FaultyGroup::FaultyGroup(Group* group, const FaultPlan& plan, std::function<void()> kill,
                         std::function<bool()> released)
    : group_(group),
      plan_(plan),
      kill_(std::move(kill)),
      released_(std::move(released)),
      rng_(plan.seed) {}

Status FaultyGroup::Misbehave() {
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  const uint64_t call = calls_++;
  if (rng_.Below(100) < plan_.delay_percent) {
    std::this_thread::sleep_for(microseconds(rng_.Below(uint64_t{plan_.longest_delay_us} + 1)));
  }
  if (call >= plan_.kill_at) {
    kill_();
    return Unavailable("this member was killed by its fault plan");
  }
  if (call < plan_.drop_at) return OkStatus();
  const TimePoint end = SteadyClock::now() + milliseconds(plan_.drop_hold_ms);
  while (!released_() && SteadyClock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  return Unavailable("this member fell silent by its fault plan");
}

Status FaultyGroup::AllReduce(const IntegerRows& mine, float* out, size_t out_stride) {
  RETURN_IF_ERROR(Misbehave());
  return group_->AllReduce(mine, out, out_stride);
}

Status FaultyGroup::ReduceScatter(const IntegerRows& mine, std::span<const Range> rows_of,
                                  float* out, size_t out_stride) {
  RETURN_IF_ERROR(Misbehave());
  return group_->ReduceScatter(mine, rows_of, out, out_stride);
}

Status FaultyGroup::AllGather(std::span<const std::byte> mine, std::span<const uint64_t> sizes,
                              std::byte* out) {
  RETURN_IF_ERROR(Misbehave());
  return group_->AllGather(mine, sizes, out);
}

Status FaultyGroup::AllToAll(const std::byte* send, std::span<const uint64_t> send_sizes,
                             std::byte* receive, std::span<const uint64_t> receive_sizes) {
  RETURN_IF_ERROR(Misbehave());
  return group_->AllToAll(send, send_sizes, receive, receive_sizes);
}

Status FaultyGroup::Send(uint32_t to, std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(Misbehave());
  return group_->Send(to, bytes);
}

Status FaultyGroup::Receive(uint32_t from, std::span<std::byte> bytes) {
  RETURN_IF_ERROR(Misbehave());
  return group_->Receive(from, bytes);
}

}  // namespace cleave

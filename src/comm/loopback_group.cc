#include "comm/loopback_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/life.h"

namespace cleave {

using Bytes = std::vector<std::byte>;

// What a member brings to a collective.
struct Contribution {
  CommOp op;
  std::vector<uint64_t> shape;  // equal on all members
  Bytes bytes;
};

struct LoopbackHub::State {
  LoopbackOptions options;

  std::mutex mu;
  std::condition_variable changed;
  // Guarded by mu.
  std::string ended;                         // the reason, once the group has failed
  std::map<uint32_t, Contribution> brought;  // by member, of the collective under way
  uint32_t left_to_read = 0;                 // members that have not read it yet
  std::map<std::pair<uint32_t, uint32_t>, std::deque<Bytes>> messages;  // by (from, to)

  // Under `lock`: until `ready` or the deadline; the time is added to *waited_ns.
  template <typename Fn>
  Status Wait(std::unique_lock<std::mutex>* lock, CommOp op, uint64_t* waited_ns, Fn&& ready) {
    const uint64_t start = SteadyNanos();
    const auto deadline = SteadyClock::now() + std::chrono::milliseconds(options.deadline_ms);
    const bool met = changed.wait_until(*lock, deadline, [&] { return !ended.empty() || ready(); });
    *waited_ns += SteadyNanos() - start;
    const auto where = [&] { return fmt::format("{} {}", AxisName(options.axis), CommOpName(op)); };
    if (!ended.empty() && !ready()) return Unavailable(fmt::format("{}: {}", where(), ended));
    if (met) return OkStatus();
    ended = fmt::format("{}: a member did not come within {} ms", where(), options.deadline_ms);
    changed.notify_all();
    return DeadlineExceeded(ended);
  }
};

namespace {

using Brought = std::map<uint32_t, Contribution>;

template <typename T>
T ValueAt(const Bytes& bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

uint64_t Sum(std::span<const uint64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
}

}  // namespace

class LoopbackGroup final : public Group {
 public:
  LoopbackGroup(LoopbackHub::State* hub, uint32_t rank) : hub_(hub), rank_(rank) {}

  [[nodiscard]] uint32_t rank() const override { return rank_; }
  [[nodiscard]] uint32_t size() const override { return hub_->options.size; }
  [[nodiscard]] const CommStats& stats() const override { return stats_; }
  [[nodiscard]] uint64_t one_shot_max_bytes() const override {
    return hub_->options.one_shot_max_bytes;
  }

  Status AllReduce(const IntegerRows& mine, float* out, size_t out_stride) override {
    if (mine.rows == 0 || mine.columns == 0) return OkStatus();
    const uint64_t start = SteadyNanos();
    uint64_t waited = 0;
    RETURN_IF_ERROR(Reduce(CommOp::kAllReduce, mine, {0, mine.rows}, out, out_stride, &waited));
    MeterReduction(mine, SteadyNanos() - start, waited);
    return OkStatus();
  }

  Status ReduceScatter(const IntegerRows& mine, std::span<const Range> rows_of, float* out,
                       size_t out_stride) override {
    if (mine.rows == 0 || mine.columns == 0) return OkStatus();
    if (rows_of.size() != size()) {
      return InvalidArgument("reduce_scatter: parts do not fit the group");
    }
    const Range own = rows_of[rank_];
    const uint64_t start = SteadyNanos();
    uint64_t waited = 0;
    RETURN_IF_ERROR(Reduce(CommOp::kReduceScatter, mine, own, out, out_stride, &waited));
    uint64_t bytes = 0;
    for (uint32_t row = 0; row < mine.rows; ++row) {
      if (!own.contains(row)) bytes += 1 + uint64_t{mine.columns} * (mine.wide[row] != 0 ? 8 : 4);
    }
    Meter(CommOp::kReduceScatter, bytes, SteadyNanos() - start, waited);
    return OkStatus();
  }

  Status AllGather(std::span<const std::byte> mine, std::span<const uint64_t> sizes,
                   std::byte* out) override {
    if (sizes.size() != size() || sizes[rank_] != mine.size()) {
      return InvalidArgument("all_gather: sizes do not fit the group or what the member brings");
    }
    if (Sum(sizes) == 0) return OkStatus();
    const uint64_t start = SteadyNanos();
    uint64_t waited = 0;
    ASSIGN_OR_RETURN(
        const Brought all,
        Exchange({CommOp::kAllGather, {sizes.begin(), sizes.end()}, {mine.begin(), mine.end()}},
                 &waited));
    for (const auto& [member, theirs] : all) {
      out = std::copy(theirs.bytes.begin(), theirs.bytes.end(), out);
    }
    Meter(CommOp::kAllGather, mine.size(), SteadyNanos() - start, waited);
    return OkStatus();
  }

  Status AllToAll(const std::byte* send, std::span<const uint64_t> send_sizes, std::byte* receive,
                  std::span<const uint64_t> receive_sizes) override {
    if (send_sizes.size() != size() || receive_sizes.size() != size()) {
      return InvalidArgument("all_to_all: sizes do not fit the group");
    }
    // The table of sizes, then the bytes.
    const auto table = std::as_bytes(send_sizes);
    Bytes bytes(table.begin(), table.end());
    bytes.insert(bytes.end(), send, send + Sum(send_sizes));
    const uint64_t start = SteadyNanos();
    uint64_t waited = 0;
    ASSIGN_OR_RETURN(const Brought all,
                     Exchange({CommOp::kAllToAll, {}, std::move(bytes)}, &waited));
    for (const auto& [member, theirs] : all) {
      uint64_t offset = table.size();
      for (uint32_t to = 0; to < rank_; ++to) offset += ValueAt<uint64_t>(theirs.bytes, to);
      const auto count = ValueAt<uint64_t>(theirs.bytes, rank_);
      if (count != receive_sizes[member]) {
        return Fail(fmt::format("member {} sends {} bytes, {} were expected", member, count,
                                receive_sizes[member]));
      }
      receive = std::copy_n(theirs.bytes.begin() + static_cast<ptrdiff_t>(offset), count, receive);
    }
    Meter(CommOp::kAllToAll, Sum(send_sizes) - send_sizes[rank_], SteadyNanos() - start, waited);
    return OkStatus();
  }

  Status Send(uint32_t to, std::span<const std::byte> bytes) override {
    RETURN_IF_ERROR(CheckPeer(to));
    const std::lock_guard<std::mutex> lock(hub_->mu);
    if (!hub_->ended.empty()) return Unavailable(hub_->ended);
    hub_->messages[{rank_, to}].emplace_back(bytes.begin(), bytes.end());
    hub_->changed.notify_all();
    Meter(CommOp::kSend, bytes.size(), 0, 0);
    return OkStatus();
  }

  Status Receive(uint32_t from, std::span<std::byte> bytes) override {
    RETURN_IF_ERROR(CheckPeer(from));
    std::unique_lock<std::mutex> lock(hub_->mu);
    std::deque<Bytes>& queue = hub_->messages[{from, rank_}];
    uint64_t waited = 0;
    RETURN_IF_ERROR(hub_->Wait(&lock, CommOp::kSend, &waited, [&] { return !queue.empty(); }));
    stats_.of(CommOp::kSend).AddTime(waited, waited);
    const Bytes message = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    if (message.size() != bytes.size()) {
      return Fail(fmt::format("member {} sent {} bytes, {} were expected", from, message.size(),
                              bytes.size()));
    }
    std::copy(message.begin(), message.end(), bytes.begin());
    return OkStatus();
  }

 private:
  // Sums rows `wanted` over all members.
  Status Reduce(CommOp op, const IntegerRows& mine, Range wanted, float* out, size_t out_stride,
                uint64_t* waited_ns) {
    Contribution own = {op, {mine.rows, mine.columns}, {}};
    for (uint32_t row = 0; row < mine.rows; ++row) {
      const auto* at = reinterpret_cast<const std::byte*>(mine.totals + row * mine.stride);
      own.bytes.insert(own.bytes.end(), at, at + size_t{mine.columns} * sizeof(int64_t));
    }
    ASSIGN_OR_RETURN(const Brought all, Exchange(std::move(own), waited_ns));
    for (uint32_t row = wanted.begin; row < wanted.end; ++row) {
      for (uint32_t column = 0; column < mine.columns; ++column) {
        int64_t sum = 0;
        for (const auto& [member, theirs] : all) {
          sum += ValueAt<int64_t>(theirs.bytes, size_t{row} * mine.columns + column);
        }
        out[row * out_stride + column] =
            static_cast<float>(sum) * std::ldexp(1.0F, -mine.shift[row]);
      }
    }
    return OkStatus();
  }

  // Brings `own` and returns what all brought, once they have.
  Result<Brought> Exchange(Contribution own, uint64_t* waited_ns) {
    const CommOp op = own.op;
    std::unique_lock<std::mutex> lock(hub_->mu);
    // Members that still read the last collective come first.
    RETURN_IF_ERROR(hub_->Wait(&lock, op, waited_ns, [&] { return hub_->left_to_read == 0; }));
    if (!hub_->ended.empty()) return Unavailable(hub_->ended);
    for (const auto& [member, theirs] : hub_->brought) {
      if (theirs.op == own.op && theirs.shape == own.shape) continue;
      lock.unlock();
      return Fail(fmt::format("member {} is in {}, member {} in {}, or their shapes differ", member,
                              CommOpName(theirs.op), rank_, CommOpName(op)));
    }
    hub_->brought.emplace(rank_, std::move(own));
    if (hub_->brought.size() == size()) {
      hub_->left_to_read = size();
      hub_->changed.notify_all();
    }
    RETURN_IF_ERROR(hub_->Wait(&lock, op, waited_ns, [&] { return hub_->left_to_read > 0; }));
    Brought all = hub_->brought;
    if (--hub_->left_to_read == 0) {
      hub_->brought.clear();
      hub_->changed.notify_all();
    }
    return all;
  }

  Status Fail(std::string why) {
    const std::lock_guard<std::mutex> lock(hub_->mu);
    if (hub_->ended.empty()) hub_->ended = why;
    hub_->changed.notify_all();
    return DataLoss(std::move(why));
  }

  Status CheckPeer(uint32_t member) const {
    if (member < size() && member != rank_) return OkStatus();
    return InvalidArgument(
        fmt::format("member {} of {} cannot exchange with member {}", rank_, size(), member));
  }

  void Meter(CommOp op, uint64_t bytes, uint64_t total_ns, uint64_t waited_ns) {
    if (size() == 1) return;  // nothing is handed over
    stats_.of(op).AddCall(bytes);
    stats_.of(op).AddTime(total_ns, waited_ns);
  }

  void MeterReduction(const IntegerRows& mine, uint64_t total_ns, uint64_t waited_ns) {
    uint64_t column_bytes = 0;
    for (uint32_t row = 0; row < mine.rows; ++row) column_bytes += mine.wide[row] != 0 ? 8 : 4;
    const TrafficOptions traffic = {.one_shot_max_bytes = hub_->options.one_shot_max_bytes};
    if (IsOneShot(mine.rows, mine.columns, traffic)) {
      return Meter(CommOp::kAllReduce, mine.rows + mine.columns * column_bytes, total_ns,
                   waited_ns);
    }
    const uint64_t own = EvenShare(mine.columns, size(), rank_).size();
    Meter(CommOp::kReduceScatter, mine.rows + (mine.columns - own) * column_bytes, total_ns,
          waited_ns);
    Meter(CommOp::kAllGather, mine.rows * own * 4, 0, 0);
  }

  LoopbackHub::State* hub_;
  uint32_t rank_;
  CommStats stats_;
};

LoopbackHub::LoopbackHub(const LoopbackOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
}
LoopbackHub::~LoopbackHub() = default;

std::unique_ptr<Group> LoopbackHub::Member(uint32_t rank) {
  return std::make_unique<LoopbackGroup>(state_.get(), rank);
}

void LoopbackHub::End(std::string reason) {
  const std::lock_guard<std::mutex> lock(state_->mu);
  if (state_->ended.empty()) state_->ended = std::move(reason);
  state_->changed.notify_all();
}

}  // namespace cleave

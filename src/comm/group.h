#pragma once
// Group: ranks that exchange tensors, along one axis of the cut.
//
// Every member calls the same operations in the same order, from one thread each (the rank's
// thread 0). Calls block until done, for at most the group's deadline without a sign of life from
// the member that is waited for (a rank that computes beats, see life.h).
// Owner: the executor. Memory: bounded at creation. Nothing is allocated in a call.
// Fails, for good (the replica is then dead):
//   kDeadlineExceeded  axis, operation, call number, the rank that is missing, how long
//   kUnavailable       a member died or the epoch ended
//   kDataLoss          members disagree about the operation or its size
//   kInvalidArgument   larger than the group's room: what fits, what was asked

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "comm/stats.h"

namespace cleave {

// Rows of integer partial sums, counts of 2^-shift[row] (kernels/matmul.h). A row whose sums may
// pass int32 is wide; members may disagree about that, the sum is the same.
struct IntegerRows {
  uint32_t rows = 0;
  uint32_t columns = 0;
  const int64_t* totals = nullptr;  // [rows][stride]
  size_t stride = 0;
  const uint8_t* wide = nullptr;   // [rows]
  const int32_t* shift = nullptr;  // [rows]; equal on all members
};

class Group {
 public:
  virtual ~Group() = default;

  [[nodiscard]] virtual uint32_t rank() const = 0;  // in the group
  [[nodiscard]] virtual uint32_t size() const = 0;

  // out[row][column] = float(Σ over members) · 2^-shift[row], on every member. The sum is exact, so
  // neither its order nor the algorithm shows. out: [rows][out_stride].
  virtual Status AllReduce(const IntegerRows& mine, float* out, size_t out_stride) = 0;
  // The same of rows rows_of[rank()] alone; each member has its own part of all rows, in order.
  virtual Status ReduceScatter(const IntegerRows& mine, std::span<const Range> rows_of, float* out,
                               size_t out_stride) = 0;
  // Member i's sizes[i] bytes, one after another, on every member that gives `out`; sizes are known
  // to all.
  virtual Status AllGather(std::span<const std::byte> mine, std::span<const uint64_t> sizes,
                           std::byte* out) = 0;
  // send holds send_sizes[i] bytes for member i, one after another; likewise what is received.
  virtual Status AllToAll(const std::byte* send, std::span<const uint64_t> send_sizes,
                          std::byte* receive, std::span<const uint64_t> receive_sizes) = 0;
  // Point to point, in order between a pair. Send returns when the bytes were taken over, which
  // waits only when the channel's room is full.
  virtual Status Send(uint32_t to, std::span<const std::byte> bytes) = 0;
  virtual Status Receive(uint32_t from, std::span<std::byte> bytes) = 0;

  [[nodiscard]] virtual const CommStats& stats() const = 0;
  // Up to where reductions go by one exchange (split/traffic.h); 0 where nothing is exchanged.
  [[nodiscard]] virtual uint64_t one_shot_max_bytes() const { return 0; }
};

}  // namespace cleave

#pragma once
// BroadcastRing: messages from one rank to all others of its replica, in order, through shared
// memory: the plans of the steps.
//
// Readers may wait for hours: waiting here is idleness, not a miss. The writer waits only when the
// slowest reader is a ring behind, and then for the deadline at most.
// Owner: the executor. One thread a side; sides may be processes. Nothing is allocated in a call
// once buffers have grown. Fails: kUnavailable when `ended` says so, kDeadlineExceeded (the reader
// that is behind), kInvalidArgument (a message larger than the ring), kDataLoss (a damaged ring).

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"

namespace cleave {

class BroadcastRing {
 public:
  // Whether the replica's epoch is over; looked at while waiting.
  using Ended = std::function<bool()>;

  static uint64_t SizeFor(uint32_t readers, uint64_t ring_bytes);
  // Formats zeroed memory of SizeFor bytes, at a cache line. ring_bytes: a power of two, at most
  // kMaxRingBytes.
  static constexpr uint64_t kMaxRingBytes = uint64_t{1} << 30U;
  static void Format(std::span<std::byte> memory, uint32_t readers, uint64_t ring_bytes);
  // `reader`: which one this side is; the writer gives -1.
  static Result<BroadcastRing> Open(std::span<std::byte> memory, int32_t reader,
                                    uint32_t deadline_ms, Ended ended);

  Status Write(std::span<const std::byte> message);
  // The next message, copied to `message`.
  Status Read(std::vector<std::byte>* message);

 private:
  struct Header;
  struct ReaderLine;

  BroadcastRing() = default;
  [[nodiscard]] ReaderLine* Line(uint32_t reader) const;
  Status AwaitRoom(uint32_t bytes);
  Status AwaitMessage();
  void Put(uint32_t position, std::span<const std::byte> bytes);
  void Take(uint32_t position, std::span<std::byte> bytes) const;

  Header* header_ = nullptr;
  std::byte* ring_ = nullptr;
  uint32_t ring_bytes_ = 0;
  uint32_t readers_ = 0;
  int32_t reader_ = -1;
  uint32_t deadline_ms_ = 0;
  uint32_t position_ = 0;  // bytes written or read so far, modulo 2^32
  Ended ended_;
};

}  // namespace cleave

#include "comm/broadcast_ring.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "comm/shared_signal.h"

namespace cleave {
namespace {

constexpr uint64_t kMagic = 0x676e697276746c63;  // "cltvring"
constexpr uint32_t kPadding = 8;                 // messages start at multiples of it
// A reader looks at the flag, then yields between looks, then sleeps: between two steps of a busy
// engine lie tens of microseconds.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kYield = std::chrono::microseconds(400);
constexpr auto kSlice = std::chrono::milliseconds(50);

uint32_t Padded(uint32_t bytes) { return (bytes + kPadding - 1) / kPadding * kPadding; }

}  // namespace

struct BroadcastRing::Header {
  uint64_t magic;
  uint32_t ring_bytes;
  uint32_t readers;
  alignas(128) SharedSignal written;
};

struct alignas(128) BroadcastRing::ReaderLine {
  SharedSignal taken;
};

uint64_t BroadcastRing::SizeFor(uint32_t readers, uint64_t ring_bytes) {
  return sizeof(Header) + readers * sizeof(ReaderLine) + ring_bytes;
}

void BroadcastRing::Format(std::span<std::byte> memory, uint32_t readers, uint64_t ring_bytes) {
  CLEAVE_CHECK(std::has_single_bit(ring_bytes) && ring_bytes <= kMaxRingBytes);
  CLEAVE_CHECK(memory.size() == SizeFor(readers, ring_bytes));
  auto* header = reinterpret_cast<Header*>(memory.data());
  header->magic = kMagic;
  header->ring_bytes = static_cast<uint32_t>(ring_bytes);
  header->readers = readers;
}

Result<BroadcastRing> BroadcastRing::Open(std::span<std::byte> memory, int32_t reader,
                                          uint32_t deadline_ms, Ended ended) {
  auto* header = reinterpret_cast<Header*>(memory.data());
  if (memory.size() < sizeof(Header) || header->magic != kMagic) {
    return DataLoss(fmt::format("{} bytes of shared memory are no ring of plans", memory.size()));
  }
  BroadcastRing ring;
  ring.header_ = header;
  ring.ring_bytes_ = header->ring_bytes;
  ring.readers_ = header->readers;
  if (!std::has_single_bit(ring.ring_bytes_) || ring.ring_bytes_ > kMaxRingBytes ||
      memory.size() != SizeFor(ring.readers_, ring.ring_bytes_)) {
    return DataLoss(fmt::format("a ring of plans of {} bytes for {} readers in {} bytes",
                                ring.ring_bytes_, ring.readers_, memory.size()));
  }
  if (reader >= static_cast<int32_t>(ring.readers_)) {
    return InvalidArgument(fmt::format("reader {} of a ring for {}", reader, ring.readers_));
  }
  ring.ring_ = memory.data() + memory.size() - ring.ring_bytes_;
  ring.reader_ = reader;
  ring.deadline_ms_ = deadline_ms;
  ring.ended_ = std::move(ended);
  return ring;
}

BroadcastRing::ReaderLine* BroadcastRing::Line(uint32_t reader) const {
  return reinterpret_cast<ReaderLine*>(header_ + 1) + reader;
}

Status BroadcastRing::Write(std::span<const std::byte> message) {
  if (message.size() > ring_bytes_ - 2 * kPadding) {
    return InvalidArgument(
        fmt::format("a plan of {} bytes; the ring holds {}", message.size(), ring_bytes_));
  }
  const auto size = static_cast<uint32_t>(message.size());
  const uint32_t bytes = kPadding + Padded(size);
  RETURN_IF_ERROR(AwaitRoom(bytes));
  Put(position_, std::as_bytes(std::span(&size, 1)));
  Put(position_ + kPadding, message);
  position_ += bytes;
  header_->written.Raise(position_);
  return OkStatus();
}

Status BroadcastRing::AwaitRoom(uint32_t bytes) {
  for (uint32_t reader = 0; reader < readers_; ++reader) {
    SharedSignal& taken = Line(reader)->taken;
    const TimePoint start = SteadyClock::now();
    for (;;) {
      const uint32_t seen = taken.Value();
      if (position_ - seen + bytes <= ring_bytes_) break;
      if (ended_()) return Unavailable("the replica has ended");
      if (SteadyClock::now() - start > std::chrono::milliseconds(deadline_ms_)) {
        return DeadlineExceeded(fmt::format(
            "rank {} has not taken the plans of its steps for {} ms", reader + 1, deadline_ms_));
      }
      taken.SleepWhile(seen, kSlice);
    }
  }
  return OkStatus();
}

Status BroadcastRing::Read(std::vector<std::byte>* message) {
  RETURN_IF_ERROR(AwaitMessage());
  uint32_t size = 0;
  Take(position_, std::as_writable_bytes(std::span(&size, 1)));
  if (size > ring_bytes_ - 2 * kPadding) {
    return DataLoss(fmt::format("a plan of {} bytes in a ring of {}", size, ring_bytes_));
  }
  message->resize(size);
  Take(position_ + kPadding, *message);
  position_ += kPadding + Padded(size);
  Line(static_cast<uint32_t>(reader_))->taken.Raise(position_);
  return OkStatus();
}

Status BroadcastRing::AwaitMessage() {
  const TimePoint start = SteadyClock::now();
  const auto waiting = [this] { return header_->written.Value() == position_; };
  while (waiting() && SteadyClock::now() - start < kSpin) {
  }
  while (waiting() && SteadyClock::now() - start < kYield) ::sched_yield();
  while (waiting()) {
    if (ended_()) return Unavailable("the replica has ended");
    header_->written.SleepWhile(position_, kSlice);
  }
  return OkStatus();
}

void BroadcastRing::Put(uint32_t position, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const uint32_t at = position & (ring_bytes_ - 1);
  const size_t first = std::min<size_t>(bytes.size(), ring_bytes_ - at);
  std::memcpy(ring_ + at, bytes.data(), first);
  if (first < bytes.size()) std::memcpy(ring_, bytes.data() + first, bytes.size() - first);
}

void BroadcastRing::Take(uint32_t position, std::span<std::byte> bytes) const {
  if (bytes.empty()) return;
  const uint32_t at = position & (ring_bytes_ - 1);
  const size_t first = std::min<size_t>(bytes.size(), ring_bytes_ - at);
  std::memcpy(bytes.data(), ring_ + at, first);
  if (first < bytes.size()) std::memcpy(bytes.data() + first, ring_, bytes.size() - first);
}

}  // namespace cleave

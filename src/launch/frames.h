#pragma once
// Frames over a stream socket between the front and its workers.
//
//   0  u32 bytes   of the payload, at most kMaxFrameBytes
//   4  u8  type    FrameType
//   5  payload     launch/wire.h
//
// Both ends are processes of one host and one binary: numbers are in native order.
// Fails: kUnavailable (the peer closed), kDataLoss (a size or type that can not be),
// kDeadlineExceeded, kInternal (the system call and its errno). A stream that failed stays failed.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launch/codec.h"

namespace cleave {

// The largest is a step's log-probabilities: 20 for each of a million positions. Memory is taken as
// bytes arrive, not as they are announced.
inline constexpr uint32_t kMaxFrameBytes = 256U << 20U;
inline constexpr size_t kFrameHeadBytes = 5;

enum class FrameType : uint8_t {
  // Of a rank's control socket. From the front:
  kSpec = 1,  // WorkerSpec, once, first
  kEnd,       // finish and exit
  // From the worker:
  kProgress,  // f64: share of the weights loaded
  kReady,
  kError,  // Status: the rank is lost
  // Of a replica's link. From the front:
  kSubmit,
  kAbort,
  kStartDrain,
  kFailAll,
  // From rank 0:
  kReply,
  kStep,
};
inline constexpr FrameType kLastFrameType = FrameType::kStep;

struct FrameView {
  FrameType type = FrameType::kSpec;
  std::span<const std::byte> payload;
};

// A frame is Put between the two; BeginFrame returns where it begins. EndFrame takes a frame that
// grew too large back out and fails with kResourceExhausted.
size_t BeginFrame(ByteWriter* writer, FrameType type);
Status EndFrame(ByteWriter* writer, size_t begin);

// Cuts what a socket delivers into frames. Owner: the socket's; one thread.
class FrameReader {
 public:
  explicit FrameReader(int fd) : fd_(fd) {}

  // Takes what is there, without waiting; also ok when nothing is.
  Status Fill();
  // The next whole frame, valid until the next Fill; nothing while it is not whole.
  Result<std::optional<FrameView>> Next();
  // Waits for the next frame.
  Result<FrameView> Read(TimePoint deadline);

 private:
  void MakeRoom();

  const int fd_;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0;  // of what is not yet handed out
  size_t end_ = 0;
};

// Sends all bytes.
Status SendAll(int fd, std::span<const std::byte> bytes, TimePoint deadline);
// Sends what goes without waiting; the count.
Result<size_t> SendSome(int fd, std::span<const std::byte> bytes);
// Sends a frame that has no payload, or one that `fill` puts.
template <typename Fill>
Status SendFrame(int fd, FrameType type, TimePoint deadline, Fill&& fill) {
  ByteWriter writer;
  const size_t begin = BeginFrame(&writer, type);
  fill(&writer);
  RETURN_IF_ERROR(EndFrame(&writer, begin));
  return SendAll(fd, writer.bytes(), deadline);
}
inline Status SendFrame(int fd, FrameType type, TimePoint deadline) {
  return SendFrame(fd, type, deadline, [](ByteWriter*) {});
}

// Waits until `events` (poll) may be had of fd, an error or hang-up included; false at the
// deadline.
bool WaitFor(int fd, short events, TimePoint deadline);

}  // namespace cleave

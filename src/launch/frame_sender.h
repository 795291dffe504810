#pragma once
// FrameSender: frames out of a socket, for threads that must not wait for the peer.
//
// A frame leaves at once when the socket has room, else a thread of the sender's own sends it.
// Bounded: a Push that finds max_buffered_bytes unsent waits for room. A peer that takes nothing
// for the deadline while something is unsent is given up; that, or a broken socket, fails every
// Push from then on.
// Owner: one end of a link, which owns the socket for longer. Threads: any.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "launch/codec.h"
#include "launch/frames.h"

namespace cleave {

struct SenderOptions {
  size_t max_buffered_bytes = 64U << 20U;
  std::chrono::milliseconds deadline{30000};
};

class FrameSender {
 public:
  FrameSender(int fd, const SenderOptions& options);
  ~FrameSender();  // what is unsent is lost, unless flushed
  FrameSender(const FrameSender&) = delete;
  FrameSender& operator=(const FrameSender&) = delete;

  // `fill` puts the payload; it is called under the sender's lock.
  // kResourceExhausted: the frame is too large, and only it is lost. Else the sender has failed.
  template <typename Fill>
  Status Push(FrameType type, Fill&& fill) {
    std::unique_lock<std::mutex> lock(mu_);
    RETURN_IF_ERROR(AwaitRoom(&lock));
    const bool was_empty = unsent() == 0;
    const size_t begin = BeginFrame(&out_, type);
    fill(&out_);
    RETURN_IF_ERROR(EndFrame(&out_, begin));
    return Departed(was_empty);
  }
  Status Push(FrameType type) {
    return Push(type, [](ByteWriter*) {});
  }
  // Whether all was sent before the deadline.
  bool Flush(TimePoint deadline);

 private:
  [[nodiscard]] size_t unsent() const { return out_.size() - sent_; }
  Status AwaitRoom(std::unique_lock<std::mutex>* lock);
  // Of a frame just put: under the lock.
  Status Departed(bool was_empty);
  void SendLocked();
  void Loop();

  const int fd_;
  const SenderOptions options_;
  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  ByteWriter out_;
  size_t sent_ = 0;  // of out_
  Status failed_;
  TimePoint last_sent_;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace cleave

#include "launch/frame_sender.h"

#include <fmt/format.h>
#include <poll.h>

namespace cleave {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(100);

}  // namespace

FrameSender::FrameSender(int fd, const SenderOptions& options)
    : fd_(fd), options_(options), last_sent_(SteadyClock::now()), thread_([this] { Loop(); }) {}

FrameSender::~FrameSender() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status FrameSender::AwaitRoom(std::unique_lock<std::mutex>* lock) {
  const TimePoint deadline = SteadyClock::now() + options_.deadline;
  const bool room = changed_.wait_until(*lock, deadline, [this] {
    return stopping_ || !failed_.ok() || unsent() < options_.max_buffered_bytes;
  });
  if (!failed_.ok()) return failed_;
  if (stopping_) return Unavailable("this end of the link is closing");
  if (!room) return DeadlineExceeded("the peer takes less than it is sent");
  return OkStatus();
}

Status FrameSender::Departed(bool was_empty) {
  if (!was_empty) return OkStatus();  // the thread is at it
  last_sent_ = SteadyClock::now();
  SendLocked();
  if (unsent() > 0) changed_.notify_all();
  return failed_;
}

void FrameSender::SendLocked() {
  const auto sent = SendSome(fd_, out_.bytes().subspan(sent_));
  if (!sent.ok()) {
    failed_ = sent.status();
    out_.Clear();
    sent_ = 0;
    return;
  }
  sent_ += *sent;
  if (*sent > 0) last_sent_ = SteadyClock::now();
  if (unsent() == 0) {
    out_.Clear();
    sent_ = 0;
  } else if (sent_ > out_.size() / 2) {
    out_.EraseFront(sent_);
    sent_ = 0;
  }
}

void FrameSender::Loop() {
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || (failed_.ok() && unsent() > 0); });
    if (stopping_) return;
    lock.unlock();
    WaitFor(fd_, POLLOUT, SteadyClock::now() + kSlice);
    lock.lock();
    SendLocked();
    if (failed_.ok() && unsent() > 0 && SteadyClock::now() - last_sent_ > options_.deadline) {
      failed_ = DeadlineExceeded(
          fmt::format("the peer has read nothing for {} s; {} bytes wait for it",
                      std::chrono::duration<double>(options_.deadline).count(), unsent()));
    }
    changed_.notify_all();
  }
}

bool FrameSender::Flush(TimePoint deadline) {
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait_until(lock, deadline, [this] { return !failed_.ok() || unsent() == 0; });
  return failed_.ok() && unsent() == 0;
}

}  // namespace cleave

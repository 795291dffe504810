#include "launch/frames.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace cleave {
namespace {

constexpr size_t kReadBytes = 64U << 10U;
constexpr size_t kKeptBytes = 4U << 20U;  // a buffer grown past it is given back

Status SystemError(const char* call) {
  const int error = errno;
  if (error == EPIPE || error == ECONNRESET) return Unavailable("the peer closed its socket");
  return Internal(fmt::format("{}: {}", call, std::strerror(error)));
}

}  // namespace

size_t BeginFrame(ByteWriter* writer, FrameType type) {
  const size_t begin = writer->size();
  writer->Put(uint32_t{0});
  writer->Put(type);
  return begin;
}

Status EndFrame(ByteWriter* writer, size_t begin) {
  const size_t bytes = writer->size() - begin - kFrameHeadBytes;
  if (bytes > kMaxFrameBytes || writer->overflowed()) {
    writer->Truncate(begin);
    return ResourceExhausted(
        fmt::format("a message of {} bytes passes the {} that go from process to process; ask for "
                    "fewer log-probabilities or a shorter prompt",
                    bytes, kMaxFrameBytes));
  }
  writer->Patch(begin, static_cast<uint32_t>(bytes));
  return OkStatus();
}

void FrameReader::MakeRoom() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (buffer_.size() > kKeptBytes) {
      buffer_.clear();
      buffer_.shrink_to_fit();
    }
  }
  if (buffer_.size() - end_ >= kReadBytes) return;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // Twice what came so far: a large frame costs a logarithm of copies.
  if (buffer_.size() - end_ < kReadBytes) buffer_.resize(2 * end_ + kReadBytes);
}

Status FrameReader::Fill() {
  for (;;) {
    MakeRoom();
    const ssize_t got =
        ::recv(fd_, buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (got > 0) {
      end_ += static_cast<size_t>(got);
      return OkStatus();
    }
    if (got == 0) return Unavailable("the peer closed its socket");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return OkStatus();
    if (errno != EINTR) return SystemError("recv");
  }
}

Result<std::optional<FrameView>> FrameReader::Next() {
  const size_t have = end_ - begin_;
  if (have < kFrameHeadBytes) return std::optional<FrameView>();
  const std::byte* head = buffer_.data() + begin_;
  uint32_t bytes = 0;
  std::memcpy(&bytes, head, sizeof(bytes));
  const auto type = static_cast<uint8_t>(head[4]);
  if (bytes > kMaxFrameBytes || type == 0 || type > static_cast<uint8_t>(kLastFrameType)) {
    return DataLoss(
        fmt::format("a frame of type {} and {} bytes can not be: types end at {}, "
                    "sizes at {}",
                    type, bytes, static_cast<uint8_t>(kLastFrameType), kMaxFrameBytes));
  }
  if (have - kFrameHeadBytes < bytes) return std::optional<FrameView>();
  begin_ += kFrameHeadBytes + bytes;
  return std::optional<FrameView>(
      FrameView{.type = static_cast<FrameType>(type), .payload = {head + kFrameHeadBytes, bytes}});
}

Result<FrameView> FrameReader::Read(TimePoint deadline) {
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<FrameView> frame, Next());
    if (frame) return *frame;
    if (!WaitFor(fd_, POLLIN, deadline)) {
      return DeadlineExceeded("no whole message came from the peer in time");
    }
    RETURN_IF_ERROR(Fill());
  }
}

bool WaitFor(int fd, short events, TimePoint deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const auto wait = std::clamp<int64_t>(left.count(), 0, 1 << 30);
    const int count = ::poll(&entry, 1, static_cast<int>(wait));
    if (count > 0) return true;
    if (count == 0 && left.count() <= wait) return false;
    if (count < 0 && errno != EINTR) return true;  // the call on fd that follows says what it is
  }
}

Result<size_t> SendSome(int fd, std::span<const std::byte> bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count =
        ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      return SystemError("send");
    }
  }
  return sent;
}

Status SendAll(int fd, std::span<const std::byte> bytes, TimePoint deadline) {
  for (;;) {
    ASSIGN_OR_RETURN(const size_t sent, SendSome(fd, bytes));
    bytes = bytes.subspan(sent);
    if (bytes.empty()) return OkStatus();
    if (!WaitFor(fd, POLLOUT, deadline)) {
      return DeadlineExceeded(
          fmt::format("the peer did not take {} bytes of a message in time", bytes.size()));
    }
  }
}

}  // namespace cleave

#include "launch/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "base/rng.h"
#include "base/unique_fd.h"

namespace cleave {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

TimePoint In(std::chrono::milliseconds time) { return SteadyClock::now() + time; }

class Frames : public testing::Test {
 protected:
  Frames() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ours_.Reset(fds[0]);
    theirs_.Reset(fds[1]);
  }
  UniqueFd ours_, theirs_;
};

void Send(int fd, const std::vector<uint8_t>& bytes) {
  ASSERT_TRUE(SendAll(fd, std::as_bytes(std::span(bytes)), In(10s)).ok());
}

TEST_F(Frames, ArriveWholeHoweverTheyAreCut) {
  ByteWriter writer;
  const size_t first = BeginFrame(&writer, FrameType::kProgress);
  writer.Put(0.5);
  ASSERT_TRUE(EndFrame(&writer, first).ok());
  const size_t second = BeginFrame(&writer, FrameType::kReady);
  ASSERT_TRUE(EndFrame(&writer, second).ok());

  FrameReader reader(theirs_.get());
  std::vector<FrameType> seen;
  for (const std::byte byte : writer.bytes()) {
    ASSERT_TRUE(SendAll(ours_.get(), {&byte, 1}, In(10s)).ok());
    ASSERT_TRUE(reader.Fill().ok());
    const auto frame = reader.Next();
    ASSERT_TRUE(frame.ok());
    if (frame.value()) seen.push_back(frame.value()->type);
  }
  EXPECT_THAT(seen, testing::ElementsAre(FrameType::kProgress, FrameType::kReady));
}

TEST_F(Frames, LargeOnesPassWhileTheReaderReads) {
  const std::vector<int32_t> numbers(3 << 20, 42);
  std::thread sender([&] {
    const Status sent = SendFrame(ours_.get(), FrameType::kSubmit, In(60s),
                                  [&](ByteWriter* w) { w->Put(numbers); });
    EXPECT_TRUE(sent.ok()) << sent.ToString();
  });
  FrameReader reader(theirs_.get());
  const auto frame = reader.Read(In(60s));
  sender.join();
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  ByteReader values(frame->payload);
  EXPECT_EQ(values.GetArray<int32_t>(), numbers);
}

TEST_F(Frames, AReaderThatReadsNothingIsNotWaitedForLong) {
  const std::vector<std::byte> much(8 << 20);
  const Status status = SendAll(ours_.get(), much, In(50ms));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
}

TEST_F(Frames, SayWhenThePeerIsGone) {
  theirs_.Reset();
  FrameReader reader(ours_.get());
  EXPECT_EQ(reader.Read(In(10s)).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(SendFrame(ours_.get(), FrameType::kEnd, In(10s)).code(), StatusCode::kUnavailable);
}

TEST_F(Frames, WaitOnlyUntilTheDeadline) {
  Send(ours_.get(), {8, 0, 0, 0, 3, 1, 2});  // a part
  FrameReader reader(theirs_.get());
  EXPECT_EQ(reader.Read(In(20ms)).status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(Frames, RefuseSizesAndTypesThatCanNotBe) {
  Send(ours_.get(), {0xff, 0xff, 0xff, 0xff, 3});
  FrameReader reader(theirs_.get());
  EXPECT_THAT(reader.Read(In(10s)).status().ToString(), HasSubstr("data_loss: a frame of type 3"));

  Send(theirs_.get(), {1, 0, 0, 0, 99});
  FrameReader other(ours_.get());
  EXPECT_EQ(other.Read(In(10s)).status().code(), StatusCode::kDataLoss);
}

TEST_F(Frames, OneTooLargeIsTakenBackOut) {
  ByteWriter writer;
  const size_t begin = BeginFrame(&writer, FrameType::kStep);
  writer.Truncate(kFrameHeadBytes + size_t{kMaxFrameBytes} + 1);
  const Status status = EndFrame(&writer, begin);
  EXPECT_THAT(status.ToString(), HasSubstr("resource_exhausted: a message of 268435457 bytes"));
  EXPECT_EQ(writer.size(), 0U);
}

TEST_F(Frames, AnyBytesGiveFramesOrAnError) {
  RngStream rng(11);
  for (int round = 0; round < 300; ++round) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    const UniqueFd in(fds[0]);
    UniqueFd out(fds[1]);
    std::vector<uint8_t> bytes(rng.Below(400));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng.Below(4) == 0 ? rng.Next() : 0);
    Send(out.get(), bytes);
    out.Reset();
    FrameReader reader(in.get());
    Result<FrameView> frame = reader.Read(In(10s));
    while (frame.ok()) frame = reader.Read(In(10s));
    EXPECT_NE(frame.status().code(), StatusCode::kDeadlineExceeded);
  }
}

}  // namespace
}  // namespace cleave

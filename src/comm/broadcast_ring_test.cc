#include "comm/broadcast_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/rng.h"
#include "comm/shared_memory.h"

namespace cleave {
namespace {

using testing::HasSubstr;

std::vector<std::byte> Message(uint64_t index, uint64_t most) {
  RngStream random(index);
  std::vector<std::byte> message(random.Below(most));
  for (std::byte& b : message) b = static_cast<std::byte>(random.Below(256));
  return message;
}

class RingTest : public testing::Test {
 protected:
  void Make(uint32_t readers, uint64_t ring_bytes) {
    auto memory = SharedMemory::Create(SharedMemoryKind::kThreads,
                                       BroadcastRing::SizeFor(readers, ring_bytes));
    ASSERT_TRUE(memory.ok()) << memory.status().ToString();
    memory_ = std::make_unique<SharedMemory>(std::move(*memory));
    BroadcastRing::Format(bytes(), readers, ring_bytes);
  }
  BroadcastRing Open(int32_t reader, uint32_t deadline_ms = 20000) {
    auto ring = BroadcastRing::Open(bytes(), reader, deadline_ms, [this] { return ended_.load(); });
    EXPECT_TRUE(ring.ok()) << ring.status().ToString();
    return std::move(*ring);
  }

  [[nodiscard]] std::span<std::byte> bytes() const { return {memory_->data(), memory_->size()}; }

  std::unique_ptr<SharedMemory> memory_;
  std::atomic<bool> ended_{false};
};

TEST_F(RingTest, EveryReaderGetsEveryMessageInOrderThroughASmallRing) {
  constexpr uint64_t kMessages = 3000;
  Make(3, 1024);
  std::vector<std::thread> readers;
  readers.reserve(3);
  for (int32_t r = 0; r < 3; ++r) {
    readers.emplace_back([this, r] {
      BroadcastRing ring = Open(r);
      std::vector<std::byte> message;
      for (uint64_t i = 0; i < kMessages; ++i) {
        ASSERT_TRUE(ring.Read(&message).ok());
        ASSERT_EQ(message, Message(i, 500));
      }
    });
  }
  BroadcastRing ring = Open(-1);
  for (uint64_t i = 0; i < kMessages; ++i) ASSERT_TRUE(ring.Write(Message(i, 500)).ok());
  for (std::thread& t : readers) t.join();
}

TEST_F(RingTest, ASleepingReaderIsWoken) {
  Make(1, 1024);
  std::thread reader([this] {
    BroadcastRing ring = Open(0);
    std::vector<std::byte> message;
    ASSERT_TRUE(ring.Read(&message).ok());
    EXPECT_EQ(message.size(), 3U);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ASSERT_TRUE(Open(-1).Write(std::vector<std::byte>(3)).ok());
  reader.join();
}

TEST_F(RingTest, AReaderThatIsBehindIsNamedAtTheDeadline) {
  Make(2, 256);
  BroadcastRing ring = Open(-1, 50);
  BroadcastRing fast = Open(0);
  std::vector<std::byte> message;
  Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) {
    status = ring.Write(std::vector<std::byte>(64));
    if (!status.ok()) break;
    ASSERT_TRUE(fast.Read(&message).ok());
  }
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("rank 2"));
}

TEST_F(RingTest, TheEndOfTheReplicaEndsAWait) {
  Make(1, 256);
  std::thread reader([this] {
    std::vector<std::byte> message;
    EXPECT_EQ(Open(0).Read(&message).code(), StatusCode::kUnavailable);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ended_ = true;
  reader.join();
}

TEST_F(RingTest, WhatDoesNotFitIsRefused) {
  Make(1, 256);
  EXPECT_EQ(Open(-1).Write(std::vector<std::byte>(256)).code(), StatusCode::kInvalidArgument);
}

TEST_F(RingTest, DamagedMemoryIsRefused) {
  Make(1, 256);
  memory_->data()[8] = std::byte{3};  // ring_bytes
  const auto ring = BroadcastRing::Open(bytes(), 0, 10, [] { return false; });
  EXPECT_EQ(ring.status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace cleave

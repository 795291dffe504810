#pragma once
// ShmGroup: the members of one group on one host, over shared memory.
//
// Collectives go in rounds. In a round each member writes its slot, raises its flag, waits for all
// flags and reads the others' slots. Slots alternate between two: a member that raised its flag for
// round r has read all of round r-1, so that its slot of r-1 may be written again in r+1. Messages
// larger than a slot take several rounds. Rows go by one exchange when they are small, else each
// member sums its columns of all (reduce-scatter) and all collect them (all-gather). Where members
// want rows of their own only, a slot has a part for each of the others.
// Sums are exact integers: neither the way nor the chunks show. Metered as split/traffic.h says.

#include <array>
#include <memory>

#include "comm/channel.h"
#include "comm/group.h"
#include "comm/rank_seat.h"
#include "comm/row_codec.h"

namespace cleave {

class ShmGroup final : public Group {
 public:
  // Member of `place` is the seat's rank, which outlives the group.
  ShmGroup(RankSeat* seat, const GroupPlace& place);

  [[nodiscard]] uint32_t rank() const override { return me_; }
  [[nodiscard]] uint32_t size() const override { return size_; }
  Status AllReduce(const IntegerRows& mine, float* out, size_t out_stride) override;
  Status ReduceScatter(const IntegerRows& mine, std::span<const Range> rows_of, float* out,
                       size_t out_stride) override;
  Status AllGather(std::span<const std::byte> mine, std::span<const uint64_t> sizes,
                   std::byte* out) override;
  Status AllToAll(const std::byte* send, std::span<const uint64_t> send_sizes, std::byte* receive,
                  std::span<const uint64_t> receive_sizes) override;
  Status Send(uint32_t to, std::span<const std::byte> bytes) override;
  Status Receive(uint32_t from, std::span<std::byte> bytes) override;
  [[nodiscard]] const CommStats& stats() const override { return stats_; }

  [[nodiscard]] Axis axis() const { return AxisOf(place_.kind); }
  [[nodiscard]] uint64_t one_shot_max_bytes() const override { return traffic_.one_shot_max_bytes; }
  // All members must set the same, between calls.
  void SetOneShotMaxBytes(uint64_t bytes) { traffic_.one_shot_max_bytes = bytes; }
  // How large messages are stored; each member for itself.
  void SetLargeStores(StoreKind store) { large_store_ = store; }
  // After calls that are no part of the bill.
  void ForgetStats();

 private:
  // A part of a reduction that fits its room with every row wide.
  struct Chunk {
    Range rows;
    Range columns;
  };
  // Time of one operation and of the waits in it.
  struct OpTimes {
    uint64_t start_ns;
    uint64_t waited_ns;
  };

  [[nodiscard]] StoreKind StoreFor(uint64_t bytes) const {
    return bytes >= kStreamFromBytes ? large_store_ : StoreKind::kOrdinary;
  }
  Status Begin(CommOp op, uint64_t call, OpTimes* times);
  void BookTime(CommOp op, const OpTimes& times);
  Status Finish(const Status& status, CommOp op, const OpTimes& times, uint64_t bytes);
  // Publishes my slot and waits for all; then Theirs() are this round's slots.
  Status Exchange(uint64_t size, uint32_t chunk, bool any_wide);
  Status CheckHeader(uint32_t member, const MessageHeader& mine);
  [[nodiscard]] std::byte* MySlot() const { return Slot(me_, round_); }
  [[nodiscard]] const std::byte* Theirs(uint32_t member) const { return Slot(member, round_ - 1); }
  [[nodiscard]] const MessageHeader& HeaderOf(uint32_t member) const;
  [[nodiscard]] std::byte* Slot(uint32_t member, uint32_t round) const {
    return slots_ + (uint64_t{member} * 2 + (round & 1U)) * room_;
  }

  [[nodiscard]] static Chunk ChunkAt(uint64_t room, uint32_t rows, uint32_t columns, uint32_t row,
                                     uint32_t column);
  // Calls fn(chunk, index) for all of [rows, columns], each chunk in `room` bytes.
  template <typename Fn>
  static Status ForEachChunk(uint64_t room, uint32_t rows, uint32_t columns, Fn&& fn);
  Status CheckShifts(const IntegerRows& mine) const;
  Status OneShot(const IntegerRows& mine, float* out, size_t out_stride);
  Status TwoShot(const IntegerRows& mine, float* out, size_t out_stride);
  // In a slot, the room of what `from` hands to `to` alone: one of size() - 1.
  [[nodiscard]] uint64_t PartRoom() const;
  [[nodiscard]] uint64_t PartOffset(uint32_t from, uint32_t to) const;
  // Writes my rows of the chunk to `to`, without the columns of `skip`. Whether any is wide.
  bool Pack(const IntegerRows& mine, const Chunk& chunk, Range skip, std::byte* to);
  // Sums columns `part` of the chunk, which others packed at theirs[member] (mine: unused).
  void Sum(const IntegerRows& mine, const Chunk& chunk, Range part,
           const std::array<const std::byte*, kMaxGroupSize>& theirs, float* out,
           size_t out_stride);
  [[nodiscard]] std::array<const std::byte*, kMaxGroupSize> AllTheirs() const;
  void PutSums(const Chunk& chunk, Range part, const float* out, size_t out_stride);
  void TakeSums(const Chunk& chunk, uint32_t member, Range part, float* out, size_t out_stride);

  Status GatherRounds(std::span<const std::byte> mine, std::span<const uint64_t> sizes,
                      std::byte* out);
  struct Incoming;  // an AllToAll's view of one member
  Status AllToAllRounds(const std::byte* send, std::span<const uint64_t> send_sizes,
                        std::byte* receive, std::span<const uint64_t> receive_sizes);
  Status CheckIncoming(uint32_t member, uint64_t expected);
  Status CheckPeer(uint32_t member) const;

  RankSeat* seat_;
  GroupPlace place_;
  uint32_t me_ = 0;
  uint32_t size_ = 0;
  uint64_t room_ = 0;
  const RowCodec* codec_;
  TrafficOptions traffic_;
  StoreKind large_store_ = StoreKind::kOrdinary;
  std::array<MemberLine*, kMaxGroupSize> lines_{};
  std::byte* slots_ = nullptr;
  std::vector<Channel> to_;    // [size]
  std::vector<Channel> from_;  // [size]

  Status dead_;  // of the first failure; stays
  uint32_t round_ = 0;
  uint64_t calls_ = 0;  // collectives so far
  CommStats stats_;
};

}  // namespace cleave

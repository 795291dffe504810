#pragma once
// Channel: bytes from one rank to another, in order, through a ring in shared memory.
//
// A message is a header line and its bytes, padded to whole lines. The sender makes room line by
// line known as it copies, the receiver gives it back as it reads, so that a message may be larger
// than the ring. Each side belongs to one rank's comm thread.

#include <cstdint>
#include <span>

#include "comm/rank_seat.h"
#include "comm/row_codec.h"

namespace cleave {

// One direction of a pair, as one of the two sees it. Zeroed memory is an empty ring.
class Channel {
 public:
  Channel() = default;
  Channel(std::byte* lines, uint32_t ring_bytes, uint32_t peer_rank);

  // The seat's operation is under way (RankSeat::Begin). Waits when the ring is full.
  // `large`: how pieces from kStreamFromBytes on are stored.
  Status Send(RankSeat* seat, std::span<const std::byte> bytes, StoreKind large);
  // kDataLoss when the next message has another number or size.
  Status Receive(RankSeat* seat, std::span<std::byte> bytes);
  [[nodiscard]] uint64_t messages() const { return messages_; }

 private:
  [[nodiscard]] uint32_t PieceOf(size_t left) const;
  void Put(uint32_t position, std::span<const std::byte> bytes, StoreKind large);
  void Take(uint32_t position, std::span<std::byte> bytes);

  ChannelLines* lines_ = nullptr;
  std::byte* ring_ = nullptr;
  uint32_t ring_bytes_ = 0;  // a power of two
  uint32_t peer_rank_ = 0;   // of the replica
  uint32_t position_ = 0;    // bytes written or taken so far, modulo 2^32
  uint64_t messages_ = 0;    // sent or received so far
};

}  // namespace cleave

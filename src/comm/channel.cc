#include "comm/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace cleave {
namespace {

constexpr uint32_t kLine = 64;
// So many pieces fit the ring: the receiver reads one while the sender writes the next.
constexpr uint32_t kPiecesOfRing = 4;

// First line of a message.
struct Opening {
  uint64_t number = 0;
  uint64_t size = 0;
};

}  // namespace

Channel::Channel(std::byte* lines, uint32_t ring_bytes, uint32_t peer_rank)
    : lines_(reinterpret_cast<ChannelLines*>(lines)),
      ring_(lines + sizeof(ChannelLines)),
      ring_bytes_(ring_bytes),
      peer_rank_(peer_rank) {}

uint32_t Channel::PieceOf(size_t left) const {
  return static_cast<uint32_t>(std::min<size_t>(left, ring_bytes_ / kPiecesOfRing));
}

void Channel::Put(uint32_t position, std::span<const std::byte> bytes, StoreKind large) {
  const StoreKind store = bytes.size() >= kStreamFromBytes ? large : StoreKind::kOrdinary;
  const uint32_t begin = position & (ring_bytes_ - 1);
  const size_t before_end = std::min<size_t>(bytes.size(), ring_bytes_ - begin);
  CopyTo(ring_ + begin, bytes.data(), before_end, store);
  CopyTo(ring_, bytes.data() + before_end, bytes.size() - before_end, store);
  if (store == StoreKind::kStreaming) StreamFence();
}

void Channel::Take(uint32_t position, std::span<std::byte> bytes) {
  const uint32_t begin = position & (ring_bytes_ - 1);
  const size_t before_end = std::min<size_t>(bytes.size(), ring_bytes_ - begin);
  CopyTo(bytes.data(), ring_ + begin, before_end, StoreKind::kOrdinary);
  CopyTo(bytes.data() + before_end, ring_, bytes.size() - before_end, StoreKind::kOrdinary);
}

Status Channel::Send(RankSeat* seat, std::span<const std::byte> bytes, StoreKind large) {
  const Opening opening = {.number = messages_, .size = bytes.size()};
  uint32_t header = kLine;
  do {  // the header goes with the first piece
    const uint32_t piece = PieceOf(bytes.size());
    const uint32_t end = position_ + header + RoundUp(piece, kLine);
    RETURN_IF_ERROR(seat->Await(&lines_->taken, end - ring_bytes_, peer_rank_));
    if (header != 0) Put(position_, std::as_bytes(std::span(&opening, 1)), large);
    Put(position_ + header, bytes.first(piece), large);
    bytes = bytes.subspan(piece);
    position_ = end;
    header = 0;
    lines_->written.Raise(position_);
  } while (!bytes.empty());
  ++messages_;
  return OkStatus();
}

Status Channel::Receive(RankSeat* seat, std::span<std::byte> bytes) {
  RETURN_IF_ERROR(seat->Await(&lines_->written, position_ + kLine, peer_rank_));
  Opening opening;
  Take(position_, std::as_writable_bytes(std::span(&opening, 1)));
  if (opening.number != messages_ || opening.size != bytes.size()) {
    return seat->Fail(
        StatusCode::kDataLoss,
        fmt::format("rank {} sent message {} of {} bytes, message {} of {} bytes was "
                    "expected",
                    peer_rank_, opening.number, opening.size, messages_, bytes.size()));
  }
  uint32_t header = kLine;
  do {
    const uint32_t piece = PieceOf(bytes.size());
    const uint32_t end = position_ + header + RoundUp(piece, kLine);
    RETURN_IF_ERROR(seat->Await(&lines_->written, end, peer_rank_));
    Take(position_ + header, bytes.first(piece));
    bytes = bytes.subspan(piece);
    position_ = end;
    header = 0;
    lines_->taken.Raise(position_);
  } while (!bytes.empty());
  ++messages_;
  return OkStatus();
}

}  // namespace cleave

#include "comm/shm_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/checked.h"
#include "base/rng.h"

namespace cleave {
namespace {

// What members compare of a list of sizes.
uint64_t Fingerprint(std::span<const uint64_t> sizes) {
  uint64_t code = sizes.size();
  for (const uint64_t size : sizes) code = MixBits(code ^ size);
  return code;
}

struct Overlap {
  uint64_t begin = 0;
  uint64_t size = 0;
};
// What [begin, begin + size) and the window of `room` bytes from `window` have in common.
Overlap OverlapOf(uint64_t begin, uint64_t size, uint64_t window, uint64_t room) {
  const uint64_t low = std::max(begin, window);
  const uint64_t high = std::min(begin + size, window + room);
  return low < high ? Overlap{low, high - low} : Overlap{};
}

}  // namespace

ShmGroup::ShmGroup(RankSeat* seat, const GroupPlace& place)
    : seat_(seat),
      place_(place),
      me_(static_cast<uint32_t>(std::find(place.ranks.begin(), place.ranks.end(), seat->rank()) -
                                place.ranks.begin())),
      size_(static_cast<uint32_t>(place.ranks.size())),
      room_(seat->view().plan().options.room_bytes),
      codec_(&BestRowCodec()) {
  const SegmentView& view = seat->view();
  const WorldOptions& options = view.plan().options;
  traffic_.one_shot_max_bytes = options.one_shot_max_bytes;
  slots_ = view.at(place_.SlotOffset(0, 0, room_));
  const auto channel = [&](uint32_t from, uint32_t to, uint32_t peer) {
    return Channel(view.at(place_.ChannelOffset(from, to, room_, options.channel_bytes)),
                   static_cast<uint32_t>(options.channel_bytes), place_.ranks[peer]);
  };
  for (uint32_t member = 0; member < size_; ++member) {
    lines_[member] = reinterpret_cast<MemberLine*>(view.at(place_.LineOffset(member)));
    to_.push_back(channel(me_, member, member));
    from_.push_back(channel(member, me_, member));
  }
}

void ShmGroup::ForgetStats() {
  for (OpStats& op : stats_.ops) {
    for (std::atomic<uint64_t>* counter : {&op.calls, &op.bytes, &op.transfer_ns, &op.wait_ns}) {
      counter->store(0, std::memory_order_relaxed);
    }
  }
}

Status ShmGroup::Begin(CommOp op, uint64_t call, OpTimes* times) {
  RETURN_IF_ERROR(dead_);
  *times = {.start_ns = SteadyNanos(), .waited_ns = seat_->waited_ns()};
  dead_ = seat_->Begin({.group = place_.kind, .op = op, .call = call});
  return dead_;
}

void ShmGroup::BookTime(CommOp op, const OpTimes& times) {
  stats_.of(op).AddTime(SteadyNanos() - times.start_ns, seat_->waited_ns() - times.waited_ns);
}

Status ShmGroup::Finish(const Status& status, CommOp op, const OpTimes& times, uint64_t bytes) {
  BookTime(op, times);
  if (status.ok()) {
    stats_.of(op).AddCall(bytes);
  } else if (dead_.ok()) {
    dead_ = status;
  }
  return status;
}

const MessageHeader& ShmGroup::HeaderOf(uint32_t member) const {
  return lines_[member]->headers[(round_ - 1) & 1U];
}

Status ShmGroup::Exchange(uint64_t size, uint32_t chunk, bool any_wide) {
  const OpLabel& op = seat_->op();
  const MessageHeader mine = {.call = op.call,
                              .size = size,
                              .chunk = chunk,
                              .op = static_cast<uint16_t>(op.op),
                              .any_wide = static_cast<uint16_t>(any_wide)};
  lines_[me_]->headers[round_ & 1U] = mine;
  lines_[me_]->posted.Raise(++round_);
  for (uint32_t member = 0; member < size_; ++member) {
    if (member == me_) continue;
    RETURN_IF_ERROR(seat_->Await(&lines_[member]->posted, round_, place_.ranks[member]));
  }
  for (uint32_t member = 0; member < size_; ++member) {
    if (member != me_) RETURN_IF_ERROR(CheckHeader(member, mine));
  }
  return OkStatus();
}

Status ShmGroup::CheckHeader(uint32_t member, const MessageHeader& mine) {
  const MessageHeader& theirs = HeaderOf(member);
  if (theirs.call == mine.call && theirs.op == mine.op && theirs.size == mine.size &&
      theirs.chunk == mine.chunk) {
    return OkStatus();
  }
  const auto op = static_cast<CommOp>(std::min<uint32_t>(theirs.op, kCommOps - 1));
  const OpLabel label = {.group = place_.kind, .op = op, .call = theirs.call};
  return seat_->Fail(
      StatusCode::kDataLoss,
      fmt::format("members disagree: rank {} is at chunk {} of shape {:x}, rank {} in {}, at chunk "
                  "{} of shape {:x}",
                  seat_->rank(), mine.chunk, mine.size, place_.ranks[member], label.ToString(),
                  theirs.chunk, theirs.size));
}

Status ShmGroup::AllGather(std::span<const std::byte> mine, std::span<const uint64_t> sizes,
                           std::byte* out) {
  if (sizes.size() != size_ || sizes[me_] != mine.size()) {
    return InvalidArgument(
        fmt::format("all_gather over {} members got {} sizes and {} bytes of its own", size_,
                    sizes.size(), mine.size()));
  }
  if (std::all_of(sizes.begin(), sizes.end(), [](uint64_t size) { return size == 0; })) {
    return dead_;
  }
  OpTimes times;
  RETURN_IF_ERROR(Begin(CommOp::kAllGather, calls_++, &times));
  return Finish(GatherRounds(mine, sizes, out), CommOp::kAllGather, times, mine.size());
}

Status ShmGroup::GatherRounds(std::span<const std::byte> mine, std::span<const uint64_t> sizes,
                              std::byte* out) {
  const uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  const uint64_t shape = Fingerprint(sizes);
  uint32_t chunk = 0;
  for (uint64_t window = 0; window < longest; window += room_, ++chunk) {
    const Overlap part = OverlapOf(0, mine.size(), window, room_);
    CopyTo(MySlot(), mine.data() + part.begin, part.size, StoreFor(part.size));
    StreamFence();
    RETURN_IF_ERROR(Exchange(shape, chunk, false));
    if (out == nullptr) continue;
    uint64_t offset = 0;
    for (uint32_t member = 0; member < size_; offset += sizes[member++]) {
      const Overlap theirs = OverlapOf(0, sizes[member], window, room_);
      if (member == me_ || theirs.size == 0) continue;
      std::memcpy(out + offset + theirs.begin, Theirs(member), theirs.size);
    }
  }
  const uint64_t own = std::accumulate(sizes.begin(), sizes.begin() + me_, uint64_t{0});
  if (!mine.empty() && out != nullptr) std::memmove(out + own, mine.data(), mine.size());
  return OkStatus();
}

Status ShmGroup::AllToAll(const std::byte* send, std::span<const uint64_t> send_sizes,
                          std::byte* receive, std::span<const uint64_t> receive_sizes) {
  if (send_sizes.size() != size_ || receive_sizes.size() != size_ ||
      send_sizes[me_] != receive_sizes[me_]) {
    return InvalidArgument(fmt::format(
        "all_to_all over {} members got {} sizes to send, {} to receive, which must agree on "
        "the rank's own part",
        size_, send_sizes.size(), receive_sizes.size()));
  }
  OpTimes times;
  RETURN_IF_ERROR(Begin(CommOp::kAllToAll, calls_++, &times));
  const uint64_t all = std::accumulate(send_sizes.begin(), send_sizes.end(), uint64_t{0});
  return Finish(AllToAllRounds(send, send_sizes, receive, receive_sizes), CommOp::kAllToAll, times,
                all - send_sizes[me_]);
}

// What comes from one member: a part of its stream, the concatenation of all it sends to others.
struct ShmGroup::Incoming {
  uint64_t begin = 0;  // in the stream
  uint64_t total = 0;  // of the stream

  static Incoming Of(const std::byte* table, uint32_t size, uint32_t from, uint32_t to) {
    Incoming part;
    for (uint32_t member = 0; member < size; ++member) {
      if (member == from) continue;
      if (member == to) part.begin = part.total;
      uint64_t bytes = 0;
      std::memcpy(&bytes, table + member * sizeof bytes, sizeof bytes);
      part.total += bytes;
    }
    return part;
  }
};

Status ShmGroup::AllToAllRounds(const std::byte* send, std::span<const uint64_t> send_sizes,
                                std::byte* receive, std::span<const uint64_t> receive_sizes) {
  // A slot is the member's table of sizes, then a window of its stream.
  const uint64_t table = RoundUp<uint64_t>(size_ * sizeof(uint64_t), 64);
  const uint64_t room = room_ - table;
  const uint64_t own_begin =
      std::accumulate(send_sizes.begin(), send_sizes.begin() + me_, uint64_t{0});
  const uint64_t own = send_sizes[me_];
  const uint64_t stream = std::accumulate(send_sizes.begin(), send_sizes.end(), uint64_t{0}) - own;
  std::array<Incoming, kMaxGroupSize> incoming;
  uint64_t longest = stream;
  uint64_t window = 0;
  for (uint32_t chunk = 0; chunk == 0 || window < longest; ++chunk, window += room) {
    std::byte* slot = MySlot();
    std::memcpy(slot, send_sizes.data(), send_sizes.size_bytes());
    const Overlap before = OverlapOf(0, own_begin, window, room);
    const Overlap after = OverlapOf(own_begin, stream - own_begin, window, room);
    const StoreKind store = StoreFor(before.size + after.size);
    CopyTo(slot + table + (before.begin - window) * (before.size != 0), send + before.begin,
           before.size, store);
    if (after.size != 0) {
      CopyTo(slot + table + (after.begin - window), send + own + after.begin, after.size, store);
    }
    StreamFence();
    RETURN_IF_ERROR(Exchange(0, chunk, false));
    uint64_t offset = 0;
    for (uint32_t member = 0; member < size_; offset += receive_sizes[member++]) {
      if (member == me_) continue;
      if (chunk == 0) {
        RETURN_IF_ERROR(CheckIncoming(member, receive_sizes[member]));
        incoming[member] = Incoming::Of(Theirs(member), size_, member, me_);
        longest = std::max(longest, incoming[member].total);
      }
      const Overlap part = OverlapOf(incoming[member].begin, receive_sizes[member], window, room);
      if (part.size == 0) continue;
      std::memcpy(receive + offset + (part.begin - incoming[member].begin),
                  Theirs(member) + table + (part.begin - window), part.size);
    }
  }
  const uint64_t own_at =
      std::accumulate(receive_sizes.begin(), receive_sizes.begin() + me_, uint64_t{0});
  if (own != 0) std::memmove(receive + own_at, send + own_begin, own);
  return OkStatus();
}

Status ShmGroup::CheckIncoming(uint32_t member, uint64_t expected) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, Theirs(member) + me_ * sizeof bytes, sizeof bytes);
  if (bytes == expected) return OkStatus();
  return seat_->Fail(StatusCode::kDataLoss,
                     fmt::format("rank {} sends {} bytes to rank {}, which expects {}",
                                 place_.ranks[member], bytes, seat_->rank(), expected));
}

Status ShmGroup::CheckPeer(uint32_t member) const {
  if (member < size_ && member != me_) return OkStatus();
  return InvalidArgument(
      fmt::format("member {} of a group of {} cannot exchange with member {}", me_, size_, member));
}

Status ShmGroup::Send(uint32_t to, std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(CheckPeer(to));
  OpTimes times;
  RETURN_IF_ERROR(Begin(CommOp::kSend, to_[to].messages(), &times));
  return Finish(to_[to].Send(seat_, bytes, large_store_), CommOp::kSend, times, bytes.size());
}

Status ShmGroup::Receive(uint32_t from, std::span<std::byte> bytes) {
  RETURN_IF_ERROR(CheckPeer(from));
  OpTimes times;
  RETURN_IF_ERROR(Begin(CommOp::kSend, from_[from].messages(), &times));
  dead_ = from_[from].Receive(seat_, bytes);
  BookTime(CommOp::kSend, times);
  return dead_;
}

}  // namespace cleave

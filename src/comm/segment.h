#pragma once
// Segment: what lies where in the shared memory of one replica's ranks.
//
//   header | one RankLine a rank | one RankIdentity a rank | one BillLine a rank
//   one count of tokens an expert, for each rank
//   groups, each at a page:
//     one MemberLine a member | two slots of room_bytes a member | one channel an ordered pair
//   the ring of plans (comm/broadcast_ring.h), at a page, when there is one
//
// A pure function of WorldOptions, computed alike by all who map it. Any thread.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "comm/life.h"
#include "comm/shared_signal.h"
#include "split/split.h"

namespace cleave {

struct WorldOptions {
  Split split;         // dp is not part of it: a segment is one replica's
  uint64_t epoch = 1;  // a restarted replica counts up; what belongs to another epoch is refused
  uint32_t deadline_ms = 3000;          // without a sign of life from whom is waited for
  uint64_t room_bytes = 512 << 10;      // of one slot; larger messages go in chunks
  uint64_t channel_bytes = 1 << 20;     // of one point-to-point channel; rounded up to 2^k
  uint64_t plan_ring_bytes = 0;         // of the leader's plans, rounded up to 2^k; 0: none
  uint64_t one_shot_max_bytes = 16384;  // see split/traffic.h; comm/crossover.h measures it
  uint32_t experts = 0;                 // of a layer, whose tokens ranks count; 0: none
};

// A part for each of 63 others that holds a flag's line and another of sums.
inline constexpr uint64_t kMinRoomBytes = 8192;
inline constexpr uint64_t kMaxRoomBytes = uint64_t{1} << 30U;
inline constexpr uint64_t kMaxChannelBytes = uint64_t{1} << 30U;

// What a message is, beside the flag that announces it.
struct MessageHeader {
  uint64_t call = 0;
  uint64_t size = 0;  // what members must agree on: shape or sizes
  uint32_t chunk = 0;
  uint16_t op = 0;
  uint16_t any_wide = 0;
};

struct alignas(kSharedLine) MemberLine {
  SharedSignal posted;  // messages this member has made readable
  std::array<MessageHeader, 2> headers;
};
static_assert(offsetof(MemberLine, headers) + 2 * sizeof(MessageHeader) <= 64);

// A ring of bytes from one member to another. Counters are of bytes, modulo 2^32.
struct ChannelLines {
  alignas(kSharedLine) SharedSignal written;
  alignas(kSharedLine) SharedSignal taken;
};

// Who a rank is to the system, for those who want to know whether it still runs.
struct alignas(64) RankIdentity {
  std::atomic<uint64_t> pid_namespace;
  std::atomic<uint32_t> pid;  // 0: not joined yet
};

struct SegmentHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t deadline_ms;
  uint64_t epoch;
  uint64_t size;
  uint64_t room_bytes;
  uint64_t channel_bytes;
  uint64_t plan_ring_bytes;
  uint64_t one_shot_max_bytes;
  std::array<uint32_t, 6> cut;  // pp, teams, tp, ep, cp, dcp
  uint32_t experts;

  enum : uint32_t { kRunning = 0, kEnding = 1, kEnded = 2 };
  alignas(kSharedLine) std::atomic<uint32_t> state;
  std::array<char, 1020> reason;  // of the end, zero-terminated; readable when kEnded
};
inline constexpr uint64_t kSegmentMagic = 0x646c726f77766c63;  // "clvworld"
inline constexpr uint32_t kSegmentVersion = 4;

// kTeam: the ranks of a team, where ep goes beyond them.
enum class GroupKind : uint8_t { kPp, kTp, kEp, kCp, kDcp, kTeam };
inline constexpr uint32_t kGroupKinds = 6;
Axis AxisOf(GroupKind kind);  // dcp's collectives are cp's, a team's are ep's

struct GroupPlace {
  GroupKind kind = GroupKind::kTp;
  std::vector<uint32_t> ranks;  // of the replica, in group order; at least two
  uint64_t offset = 0;

  [[nodiscard]] uint64_t LineOffset(uint32_t member) const;
  [[nodiscard]] uint64_t SlotOffset(uint32_t member, uint32_t parity, uint64_t room_bytes) const;
  // Lines, then channel_bytes of ring.
  [[nodiscard]] uint64_t ChannelOffset(uint32_t from, uint32_t to, uint64_t room_bytes,
                                       uint64_t channel_bytes) const;
};

struct SegmentPlan {
  WorldOptions options;  // as asked for, room and channel rounded up
  uint32_t ranks = 0;
  uint64_t board_offset = 0;
  uint64_t identity_offset = 0;
  uint64_t bill_offset = 0;
  uint64_t expert_offset = 0;
  uint64_t expert_stride = 0;     // bytes of one rank's counts
  uint64_t plan_ring_offset = 0;  // 0: none
  uint64_t plan_ring_size = 0;    // with its lines
  std::vector<GroupPlace> groups;
  uint64_t size = 0;
};

// kInvalidArgument: the number that is wrong and its limit.
Result<SegmentPlan> PlanSegment(const WorldOptions& options);

}  // namespace cleave

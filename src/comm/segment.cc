#include "comm/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.h"
#include "comm/bill.h"
#include "comm/broadcast_ring.h"
#include "comm/row_codec.h"
#include "split/layout.h"

namespace cleave {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMinChannelBytes = 4096;
constexpr uint64_t kMaxSegmentBytes = uint64_t{1} << 44U;

std::vector<uint32_t> MembersOf(const Split& split, GroupKind kind, uint32_t rank) {
  if (kind == GroupKind::kDcp) return DcpGroupOf(split, rank);
  if (kind == GroupKind::kTeam) {
    return split.teams == 1 ? std::vector<uint32_t>{rank} : TeamOf(split, rank);
  }
  return GroupOf(split, AxisOf(kind), rank);
}

uint64_t RingsOffset(uint64_t members, uint64_t room_bytes) {
  return RoundUp<uint64_t>(members * sizeof(MemberLine), kPage) + members * 2 * room_bytes;
}

uint64_t GroupBytes(uint64_t members, const WorldOptions& options) {
  return RingsOffset(members, options.room_bytes) +
         members * members * (sizeof(ChannelLines) + options.channel_bytes);
}

static_assert(kMaxGroupSize == kMaxGroupRanks, "MakeLayout refuses what no group can be");

Status CheckRange(const char* what, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return OkStatus();
  return InvalidArgument(fmt::format("{} is {}, must be {} to {}", what, value, least, most));
}

Status CheckOptions(const WorldOptions& options) {
  const Split& split = options.split;
  const std::array<std::pair<const char*, uint32_t>, 6> axes = {{{"pp", split.pp},
                                                                 {"teams", split.teams},
                                                                 {"tp", split.tp},
                                                                 {"ep", split.ep},
                                                                 {"cp", split.cp},
                                                                 {"dcp", split.dcp}}};
  for (const auto& [name, size] : axes) RETURN_IF_ERROR(CheckRange(name, size, 1, kMaxGroupSize));
  const uint64_t stage = uint64_t{split.teams} * split.tp * split.cp;
  RETURN_IF_ERROR(CheckRange("pp · teams · tp · cp, the ranks of a replica,", stage * split.pp, 1,
                             kMaxReplicaRanks));
  if (split.ep > 1) {
    RETURN_IF_ERROR(CheckRange("teams · tp · cp under ep", stage, 1, kMaxGroupSize));
  }
  if (split.tp % split.dcp != 0) {
    return InvalidArgument(fmt::format("dcp is {}, must divide tp = {}", split.dcp, split.tp));
  }
  RETURN_IF_ERROR(CheckRange("deadline_ms", options.deadline_ms, 1, 24 * 3600 * 1000));
  RETURN_IF_ERROR(CheckRange("room_bytes", options.room_bytes, kMinRoomBytes, kMaxRoomBytes));
  RETURN_IF_ERROR(
      CheckRange("plan_ring_bytes", options.plan_ring_bytes, 0, BroadcastRing::kMaxRingBytes));
  RETURN_IF_ERROR(CheckRange("experts", options.experts, 0, kMaxExperts));
  return CheckRange("channel_bytes", options.channel_bytes, kMinChannelBytes, kMaxChannelBytes);
}

// Groups of two or more, each found at its first rank.
std::vector<GroupPlace> PlaceGroups(const WorldOptions& options, uint32_t ranks, uint64_t* offset) {
  std::vector<GroupPlace> groups;
  for (uint32_t k = 0; k < kGroupKinds; ++k) {
    const auto kind = static_cast<GroupKind>(k);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      std::vector<uint32_t> members = MembersOf(options.split, kind, rank);
      if (members.size() < 2 || members.front() != rank) continue;
      const uint64_t bytes = GroupBytes(members.size(), options);
      groups.push_back({.kind = kind, .ranks = std::move(members), .offset = *offset});
      *offset += RoundUp<uint64_t>(bytes, kPage);
    }
  }
  return groups;
}

}  // namespace

Axis AxisOf(GroupKind kind) {
  switch (kind) {
    case GroupKind::kPp:
      return Axis::kPp;
    case GroupKind::kTp:
      return Axis::kTp;
    case GroupKind::kEp:
    case GroupKind::kTeam:
      return Axis::kEp;
    case GroupKind::kCp:
    case GroupKind::kDcp:
      return Axis::kCp;
  }
  return Axis::kDp;
}

uint64_t GroupPlace::LineOffset(uint32_t member) const {
  return offset + member * sizeof(MemberLine);
}

uint64_t GroupPlace::SlotOffset(uint32_t member, uint32_t parity, uint64_t room_bytes) const {
  return offset + RoundUp<uint64_t>(ranks.size() * sizeof(MemberLine), kPage) +
         (uint64_t{member} * 2 + parity) * room_bytes;
}

uint64_t GroupPlace::ChannelOffset(uint32_t from, uint32_t to, uint64_t room_bytes,
                                   uint64_t channel_bytes) const {
  return offset + RingsOffset(ranks.size(), room_bytes) +
         (from * ranks.size() + to) * (sizeof(ChannelLines) + channel_bytes);
}

Result<SegmentPlan> PlanSegment(const WorldOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  SegmentPlan plan;
  plan.options = options;
  plan.options.room_bytes = RoundUp<uint64_t>(options.room_bytes, kPage);
  plan.options.channel_bytes = std::bit_ceil(options.channel_bytes);
  plan.ranks = options.split.ranks_per_replica();
  plan.board_offset = RoundUp<uint64_t>(sizeof(SegmentHeader), kSharedLine);
  plan.identity_offset = plan.board_offset + plan.ranks * sizeof(RankLine);
  plan.bill_offset =
      RoundUp<uint64_t>(plan.identity_offset + plan.ranks * sizeof(RankIdentity), kSharedLine);
  plan.expert_offset =
      RoundUp<uint64_t>(plan.bill_offset + plan.ranks * sizeof(BillLine), kSharedLine);
  plan.expert_stride = RoundUp<uint64_t>(options.experts * sizeof(uint64_t), kSharedLine);
  uint64_t end = RoundUp<uint64_t>(plan.expert_offset + plan.ranks * plan.expert_stride, kPage);
  plan.groups = PlaceGroups(plan.options, plan.ranks, &end);
  if (options.plan_ring_bytes > 0 && plan.ranks > 1) {
    plan.options.plan_ring_bytes = std::bit_ceil(options.plan_ring_bytes);
    plan.plan_ring_offset = end;
    plan.plan_ring_size = BroadcastRing::SizeFor(plan.ranks - 1, plan.options.plan_ring_bytes);
    end += RoundUp<uint64_t>(plan.plan_ring_size, kPage);
  }
  if (end > kMaxSegmentBytes) {
    return InvalidArgument(
        fmt::format("groups of {} would take {} bytes of address space, at most {} are given: "
                    "lower room_bytes or channel_bytes",
                    options.split.ToString(), end, kMaxSegmentBytes));
  }
  plan.size = end;
  return plan;
}

}  // namespace cleave

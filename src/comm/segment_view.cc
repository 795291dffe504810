#include "comm/segment_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/checked.h"

#include "comm/broadcast_ring.h"

namespace cleave {
namespace {

std::array<uint32_t, 6> CutOf(const Split& split) {
  return {split.pp, split.teams, split.tp, split.ep, split.cp, split.dcp};
}

Status NotASegment(const SharedMemory& memory, std::string_view why) {
  return DataLoss(
      fmt::format("shared memory of {} bytes is no segment of a replica: {}", memory.size(), why));
}

void WakeGroup(const SegmentView& view, const GroupPlace& group) {
  const WorldOptions& options = view.plan().options;
  const auto members = static_cast<uint32_t>(group.ranks.size());
  for (uint32_t from = 0; from < members; ++from) {
    reinterpret_cast<MemberLine*>(view.at(group.LineOffset(from)))->posted.WakeAll();
    for (uint32_t to = 0; to < members; ++to) {
      auto* lines = reinterpret_cast<ChannelLines*>(
          view.at(group.ChannelOffset(from, to, options.room_bytes, options.channel_bytes)));
      // Pages of channels that nobody used stay untouched: only a sleeper needs a wake.
      if (from == to) continue;
      if (lines->written.sleepers.load() != 0) lines->written.WakeAll();
      if (lines->taken.sleepers.load() != 0) lines->taken.WakeAll();
    }
  }
}

}  // namespace

SegmentView::SegmentView(SegmentPlan plan, std::byte* base)
    : plan_(std::move(plan)), base_(base), header_(reinterpret_cast<SegmentHeader*>(base)) {}

void SegmentView::Format(const SegmentPlan& plan, const SharedMemory& memory) {
  auto* header = new (memory.data()) SegmentHeader{};
  header->version = kSegmentVersion;
  header->deadline_ms = plan.options.deadline_ms;
  header->epoch = plan.options.epoch;
  header->size = plan.size;
  header->room_bytes = plan.options.room_bytes;
  header->channel_bytes = plan.options.channel_bytes;
  header->plan_ring_bytes = plan.options.plan_ring_bytes;
  header->one_shot_max_bytes = plan.options.one_shot_max_bytes;
  header->cut = CutOf(plan.options.split);
  header->experts = plan.options.experts;
  if (plan.plan_ring_offset > 0) {
    BroadcastRing::Format({memory.data() + plan.plan_ring_offset, plan.plan_ring_size},
                          plan.ranks - 1, plan.options.plan_ring_bytes);
  }
  header->magic = kSegmentMagic;
}

Result<SegmentView> SegmentView::Open(const SharedMemory& memory, uint64_t epoch) {
  if (memory.size() < sizeof(SegmentHeader)) return NotASegment(memory, "too short for a header");
  const auto* header = reinterpret_cast<const SegmentHeader*>(memory.data());
  if (header->magic != kSegmentMagic) return NotASegment(memory, "its first word is not the mark");
  if (header->version != kSegmentVersion) {
    return Unsupported(fmt::format(
        "the segment has version {}, this program speaks {}: all ranks must run the same build",
        header->version, kSegmentVersion));
  }
  if (header->epoch != epoch) {
    return Unavailable(fmt::format("the segment is of epoch {}, this rank was started for {}",
                                   header->epoch, epoch));
  }
  WorldOptions options;
  options.split.pp = header->cut[0];
  options.split.teams = header->cut[1];
  options.split.tp = header->cut[2];
  options.split.ep = header->cut[3];
  options.split.cp = header->cut[4];
  options.split.dcp = header->cut[5];
  options.epoch = header->epoch;
  options.deadline_ms = header->deadline_ms;
  options.room_bytes = header->room_bytes;
  options.channel_bytes = header->channel_bytes;
  options.plan_ring_bytes = header->plan_ring_bytes;
  options.one_shot_max_bytes = header->one_shot_max_bytes;
  options.experts = header->experts;
  Result<SegmentPlan> plan = PlanSegment(options);
  if (!plan.ok()) return NotASegment(memory, plan.status().message());
  if (plan->size != header->size || plan->size != memory.size()) {
    return NotASegment(memory, fmt::format("its header says {} bytes, its groups take {}",
                                           header->size, plan->size));
  }
  return SegmentView(std::move(plan).value(), memory.data());
}

std::span<RankLine> SegmentView::board() const {
  return {reinterpret_cast<RankLine*>(base_ + plan_.board_offset), plan_.ranks};
}

std::span<RankIdentity> SegmentView::identities() const {
  return {reinterpret_cast<RankIdentity*>(base_ + plan_.identity_offset), plan_.ranks};
}

std::span<BillLine> SegmentView::bills() const {
  return {reinterpret_cast<BillLine*>(base_ + plan_.bill_offset), plan_.ranks};
}

std::span<ExpertCount> SegmentView::expert_tokens(uint32_t rank) const {
  return {reinterpret_cast<ExpertCount*>(base_ + plan_.expert_offset + rank * plan_.expert_stride),
          plan_.options.experts};
}

std::string SegmentView::reason() const {
  switch (header_->state.load(std::memory_order_acquire)) {
    case SegmentHeader::kRunning:
      return "";
    case SegmentHeader::kEnded: {
      const auto end = std::find(header_->reason.begin(), header_->reason.end(), '\0');
      return {header_->reason.begin(), end};
    }
    default:
      return "the reason is being written";
  }
}

void SegmentView::End(std::string_view reason) {
  uint32_t running = SegmentHeader::kRunning;
  if (!header_->state.compare_exchange_strong(running, SegmentHeader::kEnding)) return;
  const size_t length = std::min(reason.size(), header_->reason.size() - 1);
  std::copy_n(reason.begin(), length, header_->reason.begin());
  header_->reason[length] = '\0';
  header_->state.store(SegmentHeader::kEnded);
  for (const GroupPlace& group : plan_.groups) WakeGroup(*this, group);
}

}  // namespace cleave

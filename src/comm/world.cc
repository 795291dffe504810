#include "comm/world.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "comm/crossover.h"
#include "comm/rank_seat.h"
#include "comm/segment_view.h"
#include "comm/self_group.h"
#include "comm/shm_group.h"

namespace cleave {
namespace {

uint64_t PidNamespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

}  // namespace

struct World::State {
  State(SegmentView view, uint32_t rank) : seat(std::move(view), rank) {
    const SegmentPlan& plan = seat.view().plan();
    for (const GroupPlace& place : plan.groups) {
      if (std::find(place.ranks.begin(), place.ranks.end(), rank) == place.ranks.end()) continue;
      groups[static_cast<uint32_t>(place.kind)] = std::make_unique<ShmGroup>(&seat, place);
    }
  }

  ShmGroup* Shared(GroupKind kind) { return groups[static_cast<uint32_t>(kind)].get(); }
  ShmGroup* Shared(Axis axis) {
    for (const GroupKind kind : {GroupKind::kPp, GroupKind::kTp, GroupKind::kEp, GroupKind::kCp}) {
      if (AxisOf(kind) == axis) return Shared(kind);
    }
    return nullptr;
  }
  Group* OrSelf(ShmGroup* shared) {
    return shared != nullptr ? static_cast<Group*>(shared) : &self;
  }

  RankSeat seat;
  std::array<std::unique_ptr<ShmGroup>, kGroupKinds> groups;  // null: of one
  SelfGroup self;
};

Result<SharedMemory> World::Allocate(const WorldOptions& options, SharedMemoryKind kind) {
  ASSIGN_OR_RETURN(const SegmentPlan plan, PlanSegment(options));
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create(kind, plan.size));
  SegmentView::Format(plan, memory);
  return memory;
}

Result<World> World::Join(const SharedMemory& memory, uint32_t rank, uint64_t epoch) {
  ASSIGN_OR_RETURN(SegmentView view, SegmentView::Open(memory, epoch));
  if (rank >= view.plan().ranks) {
    return InvalidArgument(
        fmt::format("rank {} cannot join a replica of {} ranks", rank, view.plan().ranks));
  }
  if (view.ended()) return Unavailable(fmt::format("the replica ended: {}", view.reason()));
  RankIdentity& identity = view.identities()[rank];
  uint64_t unset = 0;
  identity.pid_namespace.compare_exchange_strong(unset, PidNamespace());
  uint32_t nobody = 0;
  if (!identity.pid.compare_exchange_strong(nobody, static_cast<uint32_t>(getpid()))) {
    return InvalidArgument(fmt::format("rank {} has joined already, as process {}", rank, nobody));
  }
  return World(std::make_unique<State>(std::move(view), rank));
}

World::World(std::unique_ptr<State> state) : state_(std::move(state)) {}
World::World(World&& other) noexcept = default;
World& World::operator=(World&& other) noexcept = default;
World::~World() {
  if (state_ != nullptr) Enter(RankPhase::kEnded);
}

uint32_t World::rank() const { return state_->seat.rank(); }

Group* World::group(Axis axis) { return state_->OrSelf(state_->Shared(axis)); }

Group* World::dcp() { return state_->OrSelf(state_->Shared(GroupKind::kDcp)); }

Group* World::team() { return state_->OrSelf(state_->Shared(GroupKind::kTeam)); }

Result<BroadcastRing> World::OpenPlanRing() {
  SegmentView& view = state_->seat.view();
  const SegmentPlan& plan = view.plan();
  if (plan.plan_ring_offset == 0) return InvalidArgument("the segment has no ring of plans");
  return BroadcastRing::Open({view.at(plan.plan_ring_offset), plan.plan_ring_size},
                             static_cast<int32_t>(rank()) - 1, plan.options.deadline_ms,
                             [&view] { return view.ended(); });
}

RankLine& World::line() { return state_->seat.line(); }

BillLine* World::bill() { return &state_->seat.view().bills()[rank()]; }

std::span<ExpertCount> World::expert_tokens() { return state_->seat.view().expert_tokens(rank()); }

uint64_t World::waited_for_ns(uint32_t r) const { return state_->seat.waited_for_ns(r); }

void World::End(std::string_view reason) { state_->seat.view().End(reason); }

bool World::ended() const { return state_->seat.view().ended(); }

Status World::MeasureCrossovers() {
  for (const auto& group : state_->groups) {
    if (group == nullptr) continue;
    RETURN_IF_ERROR(MeasureStores(group.get()).status());
    if (group->axis() != Axis::kPp) RETURN_IF_ERROR(MeasureCrossover(group.get()).status());
  }
  return OkStatus();
}

void World::SetOneShotMaxBytes(uint64_t bytes) {
  for (const auto& group : state_->groups) {
    if (group != nullptr) group->SetOneShotMaxBytes(bytes);
  }
}

uint64_t World::one_shot_max_bytes(Axis axis) const {
  const ShmGroup* group = state_->Shared(axis);
  return group == nullptr ? 0 : group->one_shot_max_bytes();
}

WorldBoard::WorldBoard(std::unique_ptr<SegmentView> view) : view_(std::move(view)) {}
WorldBoard::WorldBoard(WorldBoard&& other) noexcept = default;
WorldBoard& WorldBoard::operator=(WorldBoard&& other) noexcept = default;
WorldBoard::~WorldBoard() = default;

Result<WorldBoard> WorldBoard::Open(const SharedMemory& memory, uint64_t epoch) {
  ASSIGN_OR_RETURN(SegmentView view, SegmentView::Open(memory, epoch));
  return WorldBoard(std::make_unique<SegmentView>(std::move(view)));
}

std::span<const RankLine> WorldBoard::lines() const { return view_->board(); }

RankBill WorldBoard::bill(uint32_t rank) const { return view_->bills()[rank].Read(); }

ExpertTokens WorldBoard::expert_tokens(uint32_t rank) const {
  return ReadCounts(view_->expert_tokens(rank));
}

std::string WorldBoard::Describe(uint32_t rank) const {
  return DescribeRank(view_->board()[rank], rank, view_->plan().options.split, SteadyNanos());
}

void WorldBoard::End(std::string_view reason) { view_->End(reason); }
bool WorldBoard::ended() const { return view_->ended(); }
std::string WorldBoard::reason() const { return view_->reason(); }

}  // namespace cleave

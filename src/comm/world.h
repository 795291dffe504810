#pragma once
// World: the groups of one replica's ranks, in one shared segment (comm/segment.h).
//
// Somebody allocates the memory and hands it to every rank; each rank joins once and gets its group
// on each axis. The supervisor opens a WorldBoard: signs of life, and the right to end the epoch.
// Owner: each rank's executor. Thread: the rank's thread 0, except for what says any thread. The
// memory outlives the World.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/bill.h"
#include "comm/broadcast_ring.h"
#include "comm/expert_counts.h"
#include "comm/group.h"
#include "comm/life.h"
#include "comm/segment.h"
#include "comm/shared_memory.h"

namespace cleave {

class RankSeat;
class SegmentView;
class ShmGroup;

class World {
 public:
  // kInvalidArgument: the option that is wrong and its limits.
  static Result<SharedMemory> Allocate(const WorldOptions& options, SharedMemoryKind kind);
  // Fails: kDataLoss (not such memory), kUnsupported (its version), kUnavailable (another epoch, or
  // ended already), kInvalidArgument (no such rank, or one that joined before).
  static Result<World> Join(const SharedMemory& memory, uint32_t rank, uint64_t epoch);

  World(World&& other) noexcept;
  World& operator=(World&& other) noexcept;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  // Leaves: whoever still waits for this rank fails at once.
  ~World();

  [[nodiscard]] uint32_t rank() const;
  // The rank's group on an axis; of one where the split does not cut. dp: always of one.
  [[nodiscard]] Group* group(Axis axis);
  // The tp ranks that share their KV by position. Its stats belong to axis cp.
  [[nodiscard]] Group* dcp();
  // The ranks of its team; of one where there are no others. Its stats belong to axis ep.
  [[nodiscard]] Group* team();

  // This rank's end of the ring of plans: rank 0 writes, the others read. It does not outlive the
  // World. kInvalidArgument when the segment has none.
  Result<BroadcastRing> OpenPlanRing();

  // This rank's signs of life; the rank's thread.
  [[nodiscard]] RankLine& line();
  void Beat() { line().Beat(); }
  void Enter(RankPhase phase) { line().Enter(phase, SteadyNanos()); }

  // Where this rank writes its bill; the rank's thread. It does not outlive the segment.
  [[nodiscard]] BillLine* bill();
  // Where this rank counts tokens of experts; likewise. Empty where the segment has no room for it.
  [[nodiscard]] std::span<ExpertCount> expert_tokens();

  // Time spent waiting for rank `r` on all axes. Any thread.
  [[nodiscard]] uint64_t waited_for_ns(uint32_t r) const;

  // Every wait of every rank returns kUnavailable with the reason, now and from now on. The first
  // reason stands. Any thread.
  void End(std::string_view reason);
  [[nodiscard]] bool ended() const;

  // Sets where reductions over tp, ep, cp and dcp leave the single exchange: by measurement, which
  // all ranks make at the same time, before their first operation (comm/crossover.h), and which
  // finds how large messages are best stored too; or as given.
  Status MeasureCrossovers();
  void SetOneShotMaxBytes(uint64_t bytes);
  // In force on an axis; 0 for a group of one.
  [[nodiscard]] uint64_t one_shot_max_bytes(Axis axis) const;

 private:
  struct State;
  explicit World(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What a supervisor sees and may do. Any thread; not the ranks' processes only.
class WorldBoard {
 public:
  static Result<WorldBoard> Open(const SharedMemory& memory, uint64_t epoch);
  WorldBoard(WorldBoard&& other) noexcept;
  WorldBoard& operator=(WorldBoard&& other) noexcept;
  WorldBoard(const WorldBoard&) = delete;
  WorldBoard& operator=(const WorldBoard&) = delete;
  ~WorldBoard();

  [[nodiscard]] std::span<const RankLine> lines() const;
  // As of the last step that the rank ended.
  [[nodiscard]] RankBill bill(uint32_t rank) const;
  [[nodiscard]] ExpertTokens expert_tokens(uint32_t rank) const;
  // "rank 1 (pp 0, tp 1, cp 0) computes, since 0.2 s"
  [[nodiscard]] std::string Describe(uint32_t rank) const;
  void End(std::string_view reason);
  [[nodiscard]] bool ended() const;
  [[nodiscard]] std::string reason() const;

 private:
  explicit WorldBoard(std::unique_ptr<SegmentView> view);
  std::unique_ptr<SegmentView> view_;
};

}  // namespace cleave

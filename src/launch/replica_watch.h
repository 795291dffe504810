#pragma once
// ReplicaWatch: a replica's life as a state machine. Events and times go in, decisions come out; it
// starts, kills and reads nothing itself.
//
//   idle → starting → serving → dying → resting → starting …     (--dp ≥ 2, once it has served)
//                                     ↘ over                     (else, or asked to end)
//
// A replica dies when one of its ranks exits, reports an error, stays stopped for longer than the
// grace, or has work and gives no sign of life for the deadline; when its link breaks; when it does
// not get ready. The reason names the rank, where it stands in the split, what it was at, and who
// waits for it in which operation. Its ranks then are killed together; a rank that would have
// woken later is dead. Time counts only as far as ticks come regularly: a supervisor that was
// itself kept from running does not take the others for hung.
// Owner: the replica's driver; one thread. The board outlives what follows Spawned.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/life.h"
#include "split/split.h"

namespace cleave {

struct WatchOptions {
  using Duration = std::chrono::milliseconds;

  uint32_t replica = 0;
  Split split;
  Duration start_deadline{600000};  // without progress
  Duration hang_deadline{10000};
  Duration stop_grace{1500};  // a debugger may look
  Duration link_grace{250};   // a broken link usually is a death that is about to be told
  Duration end_deadline{3000};
  enum class OnDeath { kEnd, kRestart };
  OnDeath on_death = OnDeath::kEnd;
  Duration backoff_first{500};  // doubles with each death
  Duration backoff_most{30000};
  Duration steady{60000};  // serving for so long forgets earlier deaths
};

enum class WatchState { kIdle, kStarting, kServing, kDying, kResting, kEnding, kOver };

struct WatchDecision {
  enum class Kind {
    kSpawn,    // start all ranks, then call Spawned or Failed
    kReady,    // every rank is: take requests
    kKill,     // SIGKILL every rank
    kFail,     // end every stream with `why`
    kAskToEnd  // tell the ranks to finish
  };
  Kind kind = Kind::kSpawn;
  Status why;
};

class ReplicaWatch {
 public:
  explicit ReplicaWatch(const WatchOptions& options);

  void Start(TimePoint now);
  void Spawned(const RankBoard& board);
  void RankReady(uint32_t rank);
  void RankProgressed(uint32_t rank, double share);
  void RankStopped(uint32_t rank);
  void RankContinued(uint32_t rank);
  // `how` as launch/process.h describes it.
  void RankExited(uint32_t rank, const std::string& how);
  // A rank said it is lost, or (kAnyRank) the replica could not be started.
  void Failed(uint32_t rank, const Status& why);
  void LinkClosed(const Status& why);
  void Tick(TimePoint now);
  // Asked to end: nothing that happens from now on is a failure.
  void End();
  // What is to be done, in order; each decision once.
  std::vector<WatchDecision> Take();

  static constexpr uint32_t kAnyRank = UINT32_MAX;

  [[nodiscard]] WatchState state() const { return state_; }
  // Ok until it died; then why it did last, until it serves again.
  [[nodiscard]] const Status& why() const { return why_; }
  // While it serves: a rank that is stopped, for less than the grace; else ok.
  [[nodiscard]] Status trouble() const;
  [[nodiscard]] double loaded_share() const;  // of the weights, over all ranks

 private:
  struct Rank {
    bool ready = false;
    bool gone = true;
    bool stopped = false;
    double share = 0;
    std::chrono::nanoseconds stopped_for{0};
    uint64_t beat = 0;
    std::chrono::nanoseconds silent_for{0};  // while it has work
    Silence silence;                         // of the one it waits for
  };

  void Decide(WatchDecision::Kind kind, Status why = {});
  void Spawn();
  void Die(const Status& why);
  void Reaped();
  void LookForHangs(std::chrono::nanoseconds elapsed);
  void LookForStops(std::chrono::nanoseconds elapsed);
  void Hang(uint32_t rank, std::chrono::nanoseconds silent_for);
  [[nodiscard]] std::string Scene(uint32_t rank) const;
  [[nodiscard]] bool alive() const {
    return state_ == WatchState::kStarting || state_ == WatchState::kServing;
  }

  const WatchOptions options_;
  WatchState state_ = WatchState::kIdle;
  std::vector<Rank> ranks_;
  RankBoard board_;
  std::vector<WatchDecision> decisions_;
  Status why_;
  Status link_error_;
  bool served_ = false;  // since the first start
  uint32_t deaths_ = 0;  // since it last served for `steady`
  TimePoint now_;
  std::chrono::nanoseconds in_state_{0};  // starting: since the last progress
  std::chrono::nanoseconds link_closed_for_{0};
};

}  // namespace cleave

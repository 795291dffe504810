#include "launch/replica_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cleave {
namespace {

// Of a gap between two ticks no more counts: whoever was not run for longer saw nothing.
constexpr std::chrono::nanoseconds kMostPerTick = std::chrono::milliseconds(250);
constexpr size_t kMostWaitersNamed = 3;

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

RankPhase PhaseOf(const RankLine& line) {
  return static_cast<RankPhase>(line.phase.load(std::memory_order_relaxed));
}

}  // namespace

ReplicaWatch::ReplicaWatch(const WatchOptions& options)
    : options_(options), ranks_(options.split.ranks_per_replica()) {}

void ReplicaWatch::Start(TimePoint now) {
  now_ = now;
  Spawn();
}

void ReplicaWatch::Spawn() {
  state_ = WatchState::kStarting;
  in_state_ = {};
  link_closed_for_ = {};
  link_error_ = OkStatus();
  board_ = {};
  Decide(WatchDecision::Kind::kSpawn);
}

void ReplicaWatch::Spawned(const RankBoard& board) {
  board_ = board;
  for (Rank& rank : ranks_) {
    rank = Rank();
    rank.gone = false;
  }
}

void ReplicaWatch::RankReady(uint32_t rank) {
  if (state_ != WatchState::kStarting) return;
  ranks_[rank].ready = true;
  ranks_[rank].share = 1;
  in_state_ = {};
  if (!std::ranges::all_of(ranks_, &Rank::ready)) return;
  state_ = WatchState::kServing;
  served_ = true;
  why_ = OkStatus();
  Decide(WatchDecision::Kind::kReady);
}

void ReplicaWatch::RankProgressed(uint32_t rank, double share) {
  if (share <= ranks_[rank].share) return;
  ranks_[rank].share = share;
  if (state_ == WatchState::kStarting) in_state_ = {};
}

void ReplicaWatch::RankStopped(uint32_t rank) {
  ranks_[rank].stopped = true;
  ranks_[rank].stopped_for = {};
}

void ReplicaWatch::RankContinued(uint32_t rank) { ranks_[rank].stopped = false; }

void ReplicaWatch::RankExited(uint32_t rank, const std::string& how) {
  ranks_[rank].gone = true;
  if (alive()) Die(Unavailable(fmt::format("its rank {} {}; {}", rank, how, Scene(rank))));
  Reaped();
}

void ReplicaWatch::Failed(uint32_t rank, const Status& why) {
  if (!alive()) return;
  Die(rank == kAnyRank ? why : why.Annotate(fmt::format("rank {}", rank)));
  Reaped();  // at once when none was started
}

void ReplicaWatch::LinkClosed(const Status& why) {
  if (alive() && link_error_.ok()) link_error_ = why;
}

void ReplicaWatch::End() {
  if (state_ == WatchState::kOver || state_ == WatchState::kEnding) return;
  const bool were_alive = alive();
  const bool dying = state_ == WatchState::kDying;
  state_ = WatchState::kEnding;
  in_state_ = {};
  if (were_alive) Decide(WatchDecision::Kind::kAskToEnd);
  if (dying) Decide(WatchDecision::Kind::kKill);
  Reaped();
}

void ReplicaWatch::Tick(TimePoint now) {
  const std::chrono::nanoseconds elapsed =
      std::clamp<std::chrono::nanoseconds>(now - now_, std::chrono::nanoseconds(0), kMostPerTick);
  now_ = now;
  in_state_ += elapsed;
  if (alive() && !link_error_.ok()) {
    link_closed_for_ += elapsed;
    if (link_closed_for_ > options_.link_grace) Die(link_error_);
  }
  if (alive()) LookForStops(elapsed);
  if (state_ == WatchState::kStarting && in_state_ > options_.start_deadline) {
    const auto late = std::ranges::find(ranks_, false, &Rank::ready);
    Die(DeadlineExceeded(fmt::format(
        "its rank {} did not get ready: no progress for {:.1f} s, {:.0f} % of its weights loaded",
        late - ranks_.begin(), Seconds(in_state_), late->share * 100)));
  }
  if (state_ == WatchState::kServing) LookForHangs(elapsed);
  if (state_ == WatchState::kServing && in_state_ > options_.steady) deaths_ = 0;
  if (state_ == WatchState::kEnding && in_state_ > options_.end_deadline) {
    in_state_ = {};
    Decide(WatchDecision::Kind::kKill);
  }
  if (state_ == WatchState::kResting) {
    const auto rest =
        std::min(options_.backoff_most, options_.backoff_first * (1 << std::min(deaths_ - 1, 16U)));
    if (in_state_ > rest) Spawn();
  }
}

void ReplicaWatch::LookForStops(std::chrono::nanoseconds elapsed) {
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    if (!rank.stopped) continue;
    rank.stopped_for += elapsed;
    if (rank.stopped_for <= options_.stop_grace) continue;
    return Die(
        DeadlineExceeded(fmt::format("its rank {} was stopped and did not go on for {:.1f} "
                                     "s; {}",
                                     r, Seconds(rank.stopped_for), Scene(r))));
  }
}

void ReplicaWatch::LookForHangs(std::chrono::nanoseconds elapsed) {
  const auto most = static_cast<uint64_t>(kMostPerTick.count());
  for (uint32_t r = 0; r < board_.lines.size(); ++r) {
    Rank& rank = ranks_[r];
    const RankLine& line = board_.lines[r];
    const RankPhase phase = PhaseOf(line);
    // Whoever waits for what has come has work of its own.
    const bool waits = phase == RankPhase::kWaiting && !board_.WaitIsOver(r);
    const bool works = phase == RankPhase::kComputing || (phase == RankPhase::kWaiting && !waits);
    const uint64_t beat = line.beat.load(std::memory_order_relaxed);
    const bool silent = works && beat == rank.beat;
    rank.silent_for = silent ? rank.silent_for + elapsed : std::chrono::nanoseconds(0);
    rank.beat = beat;
    if (rank.silent_for > options_.hang_deadline) return Hang(r, rank.silent_for);

    const uint32_t other = line.waits_for.load(std::memory_order_relaxed);
    if (!waits || other >= board_.lines.size() || other == r) {
      rank.silence = Silence();
      continue;
    }
    rank.silence.Look(board_, r, other, static_cast<uint64_t>(elapsed.count()), most);
    const std::chrono::nanoseconds silence(rank.silence.silent_ns());
    if (silence > options_.hang_deadline) return Hang(rank.silence.blamed(), silence);
  }
}

void ReplicaWatch::Hang(uint32_t rank, std::chrono::nanoseconds silent_for) {
  Die(DeadlineExceeded(fmt::format("its rank {} gave no sign of life for {:.1f} s; {}", rank,
                                   Seconds(silent_for), Scene(rank))));
}

std::string ReplicaWatch::Scene(uint32_t rank) const {
  if (rank >= board_.lines.size()) return "it had not begun";
  const auto now_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now_.time_since_epoch()).count());
  std::string scene = DescribeRank(board_.lines[rank], rank, options_.split, now_ns);
  size_t waiters = 0;
  for (uint32_t r = 0; r < board_.lines.size(); ++r) {
    const uint32_t other = board_.lines[r].waits_for.load(std::memory_order_relaxed);
    const bool waits = PhaseOf(board_.lines[r]) == RankPhase::kWaiting && !board_.WaitIsOver(r);
    if (r == rank || !waits || other >= board_.lines.size()) continue;
    if (BlamedRank(board_, r, other) != rank) continue;
    if (++waiters <= kMostWaitersNamed) {
      scene += "; " + DescribeRank(board_.lines[r], r, options_.split, now_ns);
    }
  }
  if (waiters > kMostWaitersNamed) {
    scene += fmt::format("; and {} more ranks wait", waiters - kMostWaitersNamed);
  }
  return scene;
}

void ReplicaWatch::Die(const Status& why) {
  why_ = why.Annotate(fmt::format("replica {} died", options_.replica));
  ++deaths_;
  state_ = WatchState::kDying;
  in_state_ = {};
  Decide(WatchDecision::Kind::kKill);
  Decide(WatchDecision::Kind::kFail, why_);
}

void ReplicaWatch::Reaped() {
  if (!std::ranges::all_of(ranks_, &Rank::gone)) return;
  if (state_ == WatchState::kEnding) {
    state_ = WatchState::kOver;
  } else if (state_ == WatchState::kDying) {
    const bool again = options_.on_death == WatchOptions::OnDeath::kRestart && served_;
    state_ = again ? WatchState::kResting : WatchState::kOver;
    in_state_ = {};
  }
}

void ReplicaWatch::Decide(WatchDecision::Kind kind, Status why) {
  decisions_.push_back({kind, std::move(why)});
}

Status ReplicaWatch::trouble() const {
  const auto stopped = std::ranges::find(ranks_, true, &Rank::stopped);
  if (state_ != WatchState::kServing || stopped == ranks_.end()) return OkStatus();
  const auto rank = static_cast<uint32_t>(stopped - ranks_.begin());
  return Unavailable(fmt::format("replica {} waits: its rank {} is stopped; {}", options_.replica,
                                 rank, Scene(rank)));
}

std::vector<WatchDecision> ReplicaWatch::Take() { return std::exchange(decisions_, {}); }

double ReplicaWatch::loaded_share() const {
  double sum = 0;
  for (const Rank& rank : ranks_) sum += rank.share;
  return sum / static_cast<double>(ranks_.size());
}

}  // namespace cleave

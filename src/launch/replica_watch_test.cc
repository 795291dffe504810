#include "launch/replica_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace cleave {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using namespace std::chrono_literals;
using Kind = WatchDecision::Kind;

Split Cut(uint32_t pp, uint32_t tp) {
  Split split;
  split.pp = pp;
  split.tp = tp;
  return split;
}

// A replica that obeys at once: what is killed exits.
class Watched {
 public:
  explicit Watched(Split split, WatchOptions::OnDeath on_death = WatchOptions::OnDeath::kEnd)
      : ranks_(split.ranks_per_replica()),
        lines_(new RankLine[ranks_]),
        watch(Options(std::move(split), on_death)) {}

  static WatchOptions Options(Split split, WatchOptions::OnDeath on_death) {
    WatchOptions options;
    options.split = std::move(split);
    options.on_death = on_death;
    return options;
  }

  void Start() {
    watch.Start(now);
    EXPECT_THAT(Kinds(), ElementsAre(Kind::kSpawn));
    Spawned();
  }
  void Spawned() {
    for (uint32_t r = 0; r < ranks_; ++r) Set(r, RankPhase::kStarting);
    watch.Spawned({.lines = {lines_.get(), ranks_}, .segment = std::as_bytes(std::span(signals_))});
  }
  void Serve() {
    Start();
    AllReady();
  }
  void AllReady() {
    for (uint32_t r = 0; r < ranks_; ++r) {
      Set(r, RankPhase::kIdle);
      watch.RankReady(r);
    }
    EXPECT_THAT(Kinds(), ElementsAre(Kind::kReady));
  }
  // Ticks of 50 ms; each calls `each` first.
  template <typename F>
  void Pass(std::chrono::milliseconds time, F&& each) {
    for (; time > 0ms && Alive(); time -= 50ms) {
      each();
      now += 50ms;
      watch.Tick(now);
    }
  }
  void Pass(std::chrono::milliseconds time) {
    Pass(time, [] {});
  }
  void Set(uint32_t rank, RankPhase phase) {
    lines_[rank].Enter(phase, static_cast<uint64_t>(now.time_since_epoch().count()));
  }
  void Wait(uint32_t rank, uint32_t for_rank, uint64_t call) {
    lines_[rank].axis = static_cast<uint32_t>(Axis::kTp);
    lines_[rank].op = static_cast<uint32_t>(CommOp::kAllReduce);
    lines_[rank].call = call;
    lines_[rank].waits_for = for_rank;
    Set(rank, RankPhase::kWaiting);
  }
  // What the rank waits for comes; it has not noticed.
  void EndWait(uint32_t rank) {
    signals_[1].value = 4;
    lines_[rank].signal = sizeof(SharedSignal);
    lines_[rank].target = 4;
  }
  void Beat(uint32_t rank) { lines_[rank].Beat(); }
  void AllExit() {
    for (uint32_t r = 0; r < ranks_; ++r) watch.RankExited(r, "was killed by signal 9 (Killed)");
  }
  bool Alive() const {
    return watch.state() != WatchState::kDying && watch.state() != WatchState::kOver;
  }
  std::vector<Kind> Kinds() {
    std::vector<Kind> kinds;
    for (const WatchDecision& d : watch.Take()) kinds.push_back(d.kind);
    return kinds;
  }
  std::string why() const { return watch.why().ToString(); }

 private:
  const uint32_t ranks_;
  const std::unique_ptr<RankLine[]> lines_;
  std::array<SharedSignal, 2> signals_{};

 public:
  ReplicaWatch watch;
  TimePoint now = TimePoint(1000s);
};

TEST(ReplicaWatch, ServesOnceEveryRankIsReady) {
  Watched w(Cut(1, 2));
  w.Start();
  w.watch.RankProgressed(0, 0.5);
  EXPECT_EQ(w.watch.loaded_share(), 0.25);
  w.watch.RankReady(1);
  EXPECT_EQ(w.watch.state(), WatchState::kStarting);
  EXPECT_THAT(w.Kinds(), IsEmpty());
  w.watch.RankReady(0);
  EXPECT_EQ(w.watch.state(), WatchState::kServing);
  EXPECT_THAT(w.Kinds(), ElementsAre(Kind::kReady));
}

TEST(ReplicaWatch, AnExitKillsAllAndNamesRankPlaceAndWaiters) {
  Watched w(Cut(2, 2));
  w.Serve();
  w.Set(1, RankPhase::kComputing);
  w.Wait(0, 1, 381);
  w.Pass(500ms);
  w.watch.RankExited(1, "was killed by signal 9 (Killed)");
  EXPECT_EQ(w.watch.state(), WatchState::kDying);
  EXPECT_THAT(w.Kinds(), ElementsAre(Kind::kKill, Kind::kFail));
  EXPECT_EQ(
      w.why(),
      "unavailable: replica 0 died: its rank 1 was killed by signal 9 (Killed); rank 1 (pp 0, "
      "tp 1, cp 0) computes, since 0.5 s; rank 0 (pp 0, tp 0, cp 0) waits in tp all_reduce, "
      "call 381, for rank 1, since 0.5 s");
  w.AllExit();
  EXPECT_EQ(w.watch.state(), WatchState::kOver);
  EXPECT_THAT(w.Kinds(), IsEmpty());
}

TEST(ReplicaWatch, AStopIsForgivenWithinTheGraceOnly) {
  Watched w(Cut(1, 2));
  w.Serve();
  w.Wait(1, 0, 7);
  w.watch.RankStopped(0);
  w.Pass(1400ms);
  EXPECT_EQ(w.watch.state(), WatchState::kServing);
  EXPECT_THAT(w.watch.trouble().message(), HasSubstr("its rank 0 is stopped"));
  EXPECT_THAT(w.watch.trouble().message(), HasSubstr("waits in tp all_reduce, call 7, for rank 0"));
  w.watch.RankContinued(0);
  EXPECT_TRUE(w.watch.trouble().ok());
  w.Pass(1000ms);
  w.watch.RankStopped(0);
  w.Pass(1400ms);
  EXPECT_EQ(w.watch.state(), WatchState::kServing);
  w.Pass(200ms);
  EXPECT_EQ(w.watch.state(), WatchState::kDying);
  EXPECT_THAT(w.why(), HasSubstr("its rank 0 was stopped and did not go on for 1.6 s"));
  EXPECT_THAT(w.why(), HasSubstr("rank 1 (pp 0, tp 1, cp 0) waits in tp all_reduce, call 7, for"));
  // Its waking changes nothing.
  w.watch.RankContinued(0);
  w.watch.RankReady(0);
  EXPECT_EQ(w.watch.state(), WatchState::kDying);
}

TEST(ReplicaWatch, WorkWithoutASignOfLifeIsAHang) {
  Watched w(Cut(1, 2));
  w.Serve();
  w.Set(0, RankPhase::kComputing);
  w.Wait(1, 0, 9);
  w.Pass(9900ms);
  EXPECT_EQ(w.watch.state(), WatchState::kServing);
  w.Pass(300ms);
  EXPECT_THAT(w.why(), HasSubstr("deadline_exceeded: replica 0 died: its rank 0 gave no sign"));
  EXPECT_THAT(w.why(), HasSubstr("waits in tp all_reduce, call 9, for rank 0"));
}

TEST(ReplicaWatch, AnIdleHourIsNoHang) {
  Watched w(Cut(1, 2));
  w.Serve();
  w.Pass(3600s);
  EXPECT_EQ(w.watch.state(), WatchState::kServing);
}

TEST(ReplicaWatch, ALongPrefillThatBeatsIsNoHang) {
  Watched w(Cut(3, 1));
  w.Serve();
  w.Set(0, RankPhase::kComputing);
  w.Wait(1, 0, 1);
  w.Wait(2, 1, 1);
  int tick = 0;
  w.Pass(600s, [&] {
    if (++tick % 100 == 0) w.Beat(0);  // every five seconds
  });
  EXPECT_EQ(w.watch.state(), WatchState::kServing);
  // When it is over the waits turn round; that the waiters waited long is held against nobody.
  w.Wait(0, 2, 2);
  w.Pass(5s);
  EXPECT_EQ(w.watch.state(), WatchState::kServing);
}

TEST(ReplicaWatch, AWaitIsChargedToTheEndOfItsChain) {
  Watched w(Cut(3, 1));
  w.Serve();
  w.Wait(2, 1, 5);
  w.Wait(1, 0, 5);
  w.Pass(11s);  // rank 0 stays idle: it missed what the others are at
  EXPECT_THAT(w.why(), HasSubstr("its rank 0 gave no sign of life for 10.1 s; rank 0 (pp 0, tp 0, "
                                 "cp 0) is idle"));
  EXPECT_THAT(w.why(), HasSubstr("; rank 1"));
  EXPECT_THAT(w.why(), HasSubstr("; rank 2"));
}

TEST(ReplicaWatch, RanksThatWaitForEachOtherHang) {
  Watched w(Cut(1, 2));
  w.Serve();
  w.Wait(0, 1, 5);
  w.Wait(1, 0, 5);
  w.Pass(11s);
  EXPECT_EQ(w.watch.state(), WatchState::kDying);
}

TEST(ReplicaWatch, AWaitThatIsOverIsTheWaitersOwnSilence) {
  Watched w(Cut(1, 2));
  w.Serve();
  w.Wait(1, 0, 5);
  w.EndWait(1);
  w.Pass(9s);
  EXPECT_EQ(w.watch.state(), WatchState::kServing);
  w.Pass(2s);
  EXPECT_THAT(w.why(), HasSubstr("its rank 1 gave no sign of life for 10."));
}

TEST(ReplicaWatch, TimeInWhichItDidNotRunIsNotHeldAgainstOthers) {
  Watched w(Cut(1, 2));
  w.Serve();
  w.Set(0, RankPhase::kComputing);
  w.watch.RankStopped(1);
  w.now += 1h;  // the whole container was frozen
  w.watch.Tick(w.now);
  w.watch.RankContinued(1);
  w.Pass(5s);
  EXPECT_EQ(w.watch.state(), WatchState::kServing);
}

TEST(ReplicaWatch, AnErrorOfARankEndsTheReplica) {
  Watched w(Cut(1, 2));
  w.Serve();
  w.watch.Failed(1, DataLoss("the members disagree"));
  EXPECT_THAT(w.Kinds(), ElementsAre(Kind::kKill, Kind::kFail));
  EXPECT_EQ(w.why(), "data_loss: replica 0 died: rank 1: the members disagree");
  w.watch.Failed(0, Internal("later"));  // only the first is told
  EXPECT_THAT(w.why(), HasSubstr("rank 1"));
  EXPECT_THAT(w.Kinds(), IsEmpty());
}

TEST(ReplicaWatch, ABrokenLinkWaitsForTheDeathItUsuallyIs) {
  Watched w(Cut(1, 2));
  w.Serve();
  w.watch.LinkClosed(Unavailable("the link broke"));
  w.Pass(200ms);
  EXPECT_EQ(w.watch.state(), WatchState::kServing);
  w.watch.RankExited(0, "ended with exit code 3");
  EXPECT_THAT(w.why(), HasSubstr("its rank 0 ended with exit code 3"));

  Watched alone(Cut(1, 2));
  alone.Serve();
  alone.watch.LinkClosed(Unavailable("the link broke"));
  alone.Pass(400ms);
  EXPECT_EQ(alone.why(), "unavailable: replica 0 died: the link broke");
}

TEST(ReplicaWatch, AStartHasADeadlineThatProgressResets) {
  Watched w(Cut(1, 2));
  w.Start();
  w.watch.RankReady(0);
  w.Pass(599s);
  w.watch.RankProgressed(1, 0.4);
  w.Pass(599s);
  w.watch.RankProgressed(1, 0.4);  // none
  EXPECT_EQ(w.watch.state(), WatchState::kStarting);
  w.Pass(2s);
  EXPECT_THAT(w.why(), HasSubstr("its rank 1 did not get ready: no progress for 600.0 s, 40 % of"));
}

TEST(ReplicaWatch, AFailedFirstStartIsNotTriedAgain) {
  Watched w(Cut(1, 2), WatchOptions::OnDeath::kRestart);
  w.Start();
  w.watch.Failed(1, NotFound("no such file"));
  w.AllExit();
  EXPECT_EQ(w.watch.state(), WatchState::kOver);
}

TEST(ReplicaWatch, RestartsRestLongerAfterEachDeath) {
  Watched w(Cut(1, 2), WatchOptions::OnDeath::kRestart);
  w.Serve();
  std::chrono::milliseconds expected = 500ms;
  for (int death = 0; death < 9; ++death) {
    w.watch.RankExited(0, "is gone");
    w.AllExit();
    ASSERT_EQ(w.watch.state(), WatchState::kResting);
    (void)w.Kinds();
    w.Pass(expected);
    ASSERT_EQ(w.watch.state(), WatchState::kResting) << death;
    w.Pass(100ms);
    ASSERT_THAT(w.Kinds(), ElementsAre(Kind::kSpawn)) << death;
    w.Spawned();
    if (death % 2 == 0) {
      EXPECT_THAT(w.why(), HasSubstr("replica 0 died"));
      w.AllReady();
      EXPECT_EQ(w.why(), "ok");
    }
    expected = std::min<std::chrono::milliseconds>(2 * expected, 30s);
  }
}

TEST(ReplicaWatch, ALongServiceForgetsEarlierDeaths) {
  Watched w(Cut(1, 1), WatchOptions::OnDeath::kRestart);
  w.Serve();
  for (int death = 0; death < 3; ++death) {
    w.watch.RankExited(0, "is gone");
    w.Pass(550ms);
    EXPECT_EQ(w.watch.state(), WatchState::kStarting) << death;
    w.Spawned();
    (void)w.Kinds();
    w.AllReady();
    w.Pass(61s);
  }
}

TEST(ReplicaWatch, AStartThatDoesNotEvenBeginRests) {
  Watched w(Cut(1, 1), WatchOptions::OnDeath::kRestart);
  w.Serve();
  w.watch.RankExited(0, "is gone");
  w.Pass(550ms);
  (void)w.Kinds();
  w.watch.Failed(ReplicaWatch::kAnyRank, ResourceExhausted("no more processes"));
  EXPECT_EQ(w.watch.state(), WatchState::kResting);
  EXPECT_EQ(w.why(), "resource_exhausted: replica 0 died: no more processes");
}

TEST(ReplicaWatch, AskedToEndItWaitsThenKills) {
  Watched w(Cut(1, 2));
  w.Serve();
  w.watch.End();
  EXPECT_THAT(w.Kinds(), ElementsAre(Kind::kAskToEnd));
  w.watch.RankExited(1, "ended with exit code 0");
  w.Pass(2900ms);
  EXPECT_THAT(w.Kinds(), IsEmpty());
  w.Pass(200ms);
  EXPECT_THAT(w.Kinds(), ElementsAre(Kind::kKill));
  w.watch.RankExited(0, "was killed by signal 9 (Killed)");
  EXPECT_EQ(w.watch.state(), WatchState::kOver);
  EXPECT_EQ(w.why(), "ok");
}

TEST(ReplicaWatch, AskedToEndWhileItRestsItIsOver) {
  Watched w(Cut(1, 1), WatchOptions::OnDeath::kRestart);
  w.Serve();
  w.watch.RankExited(0, "is gone");
  EXPECT_EQ(w.watch.state(), WatchState::kResting);
  w.watch.End();
  EXPECT_EQ(w.watch.state(), WatchState::kOver);
}

}  // namespace
}  // namespace cleave

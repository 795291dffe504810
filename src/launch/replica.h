#pragma once
// Replica: one replica's processes, shared memory and link, and the thread that watches them.
//
// The thread starts a process per rank, hands each its orders, waits until all are ready, then
// looks every 50 ms (and at once when a socket or a process says something) and does what its
// ReplicaWatch decides: kill all together, end every stream, start again after a rest.
// Owner: the replica set, or a verb. Threads: all methods any.
// Memory and descriptors of a dead start are given back before the next.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "comm/world.h"
#include "launch/engine_link.h"
#include "launch/replica_watch.h"
#include "launch/worker_spec.h"

namespace cleave {

struct ReplicaOptions {
  std::string executable = "/proc/self/exe";
  std::vector<std::string> arguments = {"cleave", "worker"};
  WatchOptions watch;  // split, replica are filled in from the orders
  WorldOptions world;  // split, epoch likewise
  LinkOptions link;
  // What is known of the experts' loads when a replica is started again: its ranks then place them
  // by it. Null: they stay. Called on the replica's thread.
  std::function<ExpertTokens()> expert_loads = nullptr;
};

class Replica {
 public:
  // `orders`: of each rank, by rank; epoch and fds are filled in. The events' on_trouble is not
  // used.
  Replica(std::vector<WorkerSpec> orders, ReplicaOptions options, LinkEvents events);
  ~Replica();  // as Stop
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  void Start();
  // Ok once it serves; why it died if it did first; kUnavailable when it did neither.
  Status WaitReady(TimePoint deadline);
  // Whether it has neither served nor died yet.
  [[nodiscard]] bool loading() const;
  // Asks the ranks to finish; those that do not are killed after a while, and what is open ends
  // with an error.
  void AskToStop();
  // And waits for it: a few seconds at most.
  void Stop();

  // Shared with a Submit that may still run when the replica dies; null unless it serves.
  [[nodiscard]] std::shared_ptr<EngineLink> link() const;
  // Ok while it serves and no rank of it is stopped.
  [[nodiscard]] Status health() const;
  // Why it died, until it serves again; ok else, also while a rank is stopped.
  [[nodiscard]] Status death() const;
  // Of all starts together: totals go on, levels are the present ones.
  [[nodiscard]] EngineStats stats() const;
  // What its ranks moved, by rank, likewise.
  [[nodiscard]] std::vector<RankBill> bills() const;
  [[nodiscard]] std::vector<ExpertTokens> expert_tokens() const;  // empty: a model without experts
  [[nodiscard]] double loaded_share() const;
  [[nodiscard]] uint64_t epoch() const;
  // Of the present processes, by rank.
  [[nodiscard]] std::vector<int> pids() const;

 private:
  class Driver;
  // What the driver publishes and is told.
  struct Board {
    mutable std::mutex mu;
    std::condition_variable changed;
    // Guarded by mu.
    WatchState state = WatchState::kIdle;
    Status why;
    Status trouble;
    std::shared_ptr<EngineLink> link;         // see link()
    EngineStats retired;                      // of links that died
    std::vector<RankBill> bills;              // by rank, of starts that are over
    std::vector<ExpertTokens> expert_tokens;  // likewise
    const WorldBoard* signs = nullptr;        // of the present start
    double loaded_share = 0;
    uint64_t epoch = 0;
    std::vector<int> pids;
    bool stop = false;
    Status link_broke;
    Status engine_died;
    uint64_t trouble_epoch = 0;  // of the two
  };

  void Wake();

  Board board_;
  const UniqueFd wake_;
  const std::unique_ptr<Driver> driver_;
  std::thread thread_;
};

// Totals of `more` added; levels and times too.
void AddStats(const EngineStats& more, EngineStats* sum);

}  // namespace cleave

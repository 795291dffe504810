#pragma once
// Replica::Driver: the thread of a replica. Private to the folder.

#include <memory>
#include <optional>
#include <vector>

#include "launch/frames.h"
#include "launch/process.h"
#include "launch/replica.h"

namespace cleave {

class Replica::Driver {
 public:
  Driver(std::vector<WorkerSpec> orders, ReplicaOptions options, LinkEvents events, Board* board,
         int wake_fd);

  // Until the replica is over. The processes die with the thread that runs this.
  void Run();

 private:
  // One rank's process and the socket to it.
  struct RankProcess {
    RankProcess(ChildProcess process, UniqueFd socket)
        : child(std::move(process)), control(std::move(socket)), reader(control.get()) {}
    ChildProcess child;
    UniqueFd control;
    FrameReader reader;
    bool open = true;  // the socket
  };

  Status Spawn();
  void PlaceExperts();
  Status SpawnRank(uint32_t rank, int link_fd);
  void Perform(const WatchDecision& decision);
  void Serve();
  void CloseLink(const Status& why);
  void Poll();
  void LookAt(uint32_t rank);
  void Pump(uint32_t rank);
  void Take(uint32_t rank, const FrameView& frame);
  void TakeMail();
  void Publish();
  void RetireBills();
  void Clear();

  // Set by the constructor.
  std::vector<WorkerSpec> orders_;  // but for the epoch
  ReplicaOptions options_;
  const LinkEvents events_;
  Board* const board_;
  const int wake_fd_;

  // The driver's thread's.
  ReplicaWatch watch_;
  uint64_t epoch_ = 0;
  std::vector<std::unique_ptr<RankProcess>> processes_;  // by rank
  std::optional<SharedMemory> memory_;
  std::optional<WorldBoard> signs_;
  UniqueFd link_socket_;  // until the link is made
};

}  // namespace cleave

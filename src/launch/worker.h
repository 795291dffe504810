#pragma once
// A worker process: one rank of a replica, from its orders to its end.
//
// The front starts it (launch/process.h) with a control socket, the replica's shared memory and,
// for rank 0, the link of its engine. It reads its WorkerSpec, joins the World, loads, says that it
// is ready, and serves (rank 0) or follows until the front asks it to end. A front that is gone
// takes its workers with it: the kernel kills them, and a thread that watches the control socket
// ends the process where the kernel did not.
// Main thread. What fails is told to the front, which then ends the whole replica.

#include <functional>

#include "base/status.h"
#include "comm/world.h"
#include "launch/engine_link_server.h"
#include "launch/worker_spec.h"

namespace cleave {

// What a rank does; the model's side of a worker. Called on the main thread, in this order.
class WorkerBody {
 public:
  virtual ~WorkerBody() = default;
  // Everything up to a smoke forward. `progress`: share of this rank's weights, any thread. `world`
  // and `spec` outlive the body's calls.
  virtual Status Load(const WorkerSpec& spec, World* world,
                      const std::function<void(double)>& progress) = 0;
  // Rank 0: an engine on link->sink() and link->observer(), then link->Serve. Returns when that
  // does, with the engine gone and the other ranks told to finish.
  virtual Status Serve(EngineLinkServer* link) = 0;
  // Other ranks: runs the plans of rank 0 until it says that there are no more.
  virtual Status Follow() = 0;
};

// The process's exit code: 0 when it was asked to end, 1 when it failed.
int RunWorker(WorkerBody* body, int control_fd = WorkerFds().control);

}  // namespace cleave

#pragma once
// RankWorker: a worker's side of the model: it loads its rank of the layout and runs it.
//
// A replica of one rank computes inline; one of several through the replica's groups and its ring
// of plans (engine/split_executor.h). All ranks come to the same sizes from the same orders.
// Owner: the worker's main. Main thread. Fails as RankRunner, World and Engine do.

#include <functional>
#include <memory>

#include "comm/broadcast_ring.h"
#include "engine/open_model.h"
#include "engine/rank_runner.h"
#include "launch/worker.h"

namespace cleave {

class RankWorker final : public WorkerBody {
 public:
  Status Load(const WorkerSpec& spec, World* world,
              const std::function<void(double)>& progress) override;
  Status Serve(EngineLinkServer* link) override;
  Status Follow() override;

 private:
  Status LoadLeader(std::unique_ptr<RankRunner> runner);

  const WorkerSpec* spec_ = nullptr;
  World* world_ = nullptr;
  std::unique_ptr<Executor> executor_;  // of rank 0
  std::unique_ptr<RankRunner> runner_;  // of the others
};

// A group where the split cuts; null where the rank is alone. `world` outlives it.
RankComm CommOf(World* world, const Split& split);

// What a replica's shared memory must hold for batches of this plan.
WorldOptions WorldFor(const ModelPlan& plan);

}  // namespace cleave

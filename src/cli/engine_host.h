#pragma once
// EngineHost: a model's engine, in this process for a world of one rank, in a process a rank for
// more (launch/). What cleave serve answers with and what cleave bench engine measures.
//
//   ASSIGN_OR_RETURN(auto host, EngineHost::Open(order));         // planned; nothing loaded
//   RETURN_IF_ERROR(host->LoadWeights(progress));                 // of a world of one
//   RETURN_IF_ERROR(host->Start(config, sink, observer, progress));
//   host->client()->Submit(…)
//
// Owner: a verb. Open, LoadWeights and Start: one thread, in this order, once; after Start all
// methods from any. The sink and the observer are called as Engine's and ReplicaSet's are.
// Open fails as PlanModel does, before anything is loaded; the others as LoadModel and
// ReplicaSet::Start.

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "engine/open_model.h"
#include "launch/auto_split.h"
#include "launch/replica_set.h"

namespace cleave {

// The limits that a plan sets: model length, sequences, step size, blocks and their partitions.
EngineConfig EngineConfigOf(const ModelPlan& plan);

class EngineHost {
 public:
  struct Order {
    std::string model_path;
    ModelSettings settings;  // with its split
    AutoParts to_measure;    // of the split
    std::string log_level = "info";
    std::string log_format = "text";
  };

  static Result<std::unique_ptr<EngineHost>> Open(Order order);
  ~EngineHost();  // every open sequence gets its end
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  // Reads the weights and runs a smoke forward; ranks in other processes do so in Start.
  Status LoadWeights(const LoadProgress& progress);
  // `observer` may be null and outlives the host.
  Status Start(const EngineConfig& config, Engine::Sink sink, EngineObserver* observer,
               const LoadProgress& progress);

  [[nodiscard]] const ModelPlan& plan() const { return plan_; }
  [[nodiscard]] const ModelSettings& settings() const { return order_.settings; }
  // Until LoadWeights or Start took it over.
  [[nodiscard]] const Checkpoint& checkpoint() const { return *checkpoint_; }
  [[nodiscard]] bool in_process() const { return order_.settings.split.world_size() == 1; }
  // Of a rank, and the processors they are pinned to: of each rank of all replicas, empty where
  // they are not pinned.
  [[nodiscard]] uint32_t threads() const { return threads_; }
  [[nodiscard]] const std::vector<std::vector<int>>& rank_cpus() const { return rank_cpus_; }

  // Null before Start.
  [[nodiscard]] EngineClient* client() const;
  // Why it can not serve any more and will not again; ok before Start.
  [[nodiscard]] Status death() const;

 private:
  EngineHost(Order order, std::unique_ptr<Checkpoint> checkpoint, ModelPlan plan)
      : order_(std::move(order)),
        checkpoint_(std::move(checkpoint)),
        plan_(std::move(plan)),
        threads_(plan_.executor.threads) {}
  Status StartReplicas(const EngineConfig& config, Engine::Sink sink, EngineObserver* observer,
                       const LoadProgress& progress);

  const Order order_;
  std::unique_ptr<Checkpoint> checkpoint_;
  const ModelPlan plan_;
  uint32_t threads_;
  std::vector<std::vector<int>> rank_cpus_;
  std::unique_ptr<InlineExecutor> executor_;  // between LoadWeights and Start
  std::unique_ptr<Engine> engine_;            // of one rank
  std::unique_ptr<EngineClient> client_;
  std::unique_ptr<ReplicaSet> replicas_;  // of several
};

}  // namespace cleave

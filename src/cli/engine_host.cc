#include "cli/engine_host.h"

#include <utility>

#include "base/clock.h"
#include "cli/replica_orders.h"
#include "cli/split_flags.h"
#include "launch/rank_worker.h"

namespace cleave {

EngineConfig EngineConfigOf(const ModelPlan& plan) {
  EngineConfig config;
  config.max_model_len = plan.sizing.max_model_len;
  config.max_num_seqs = plan.executor.max_sequences;
  config.max_num_batched_tokens = plan.executor.max_batch_tokens;
  config.block_size = plan.executor.kv_shape.block_tokens;
  config.num_blocks = plan.sizing.pool_blocks();
  config.teams = plan.sizing.teams;
  config.kv_partitions = plan.sizing.kv_partitions;
  return config;
}

Result<std::unique_ptr<EngineHost>> EngineHost::Open(Order order) {
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(order.model_path));
  FitToModel(checkpoint->config(), &order.settings.split);
  ASSIGN_OR_RETURN(order.settings.split,
                   ResolveSplit(order.model_path, order.settings, order.to_measure));
  ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(*checkpoint, order.settings));
  return std::unique_ptr<EngineHost>(
      new EngineHost(std::move(order), std::move(checkpoint), std::move(plan)));
}

EngineHost::~EngineHost() {
  client_.reset();
  engine_.reset();
  replicas_.reset();
}

Status EngineHost::LoadWeights(const LoadProgress& progress) {
  if (!in_process()) return OkStatus();
  ASSIGN_OR_RETURN(executor_, LoadModel(std::move(checkpoint_), plan_, progress));
  return SmokeForward(executor_.get());
}

Status EngineHost::Start(const EngineConfig& config, Engine::Sink sink, EngineObserver* observer,
                         const LoadProgress& progress) {
  if (!in_process()) return StartReplicas(config, std::move(sink), observer, progress);
  engine_ = std::make_unique<Engine>(config, std::move(executor_), std::move(sink), observer);
  client_ = MakeEngineClient(engine_.get());
  return OkStatus();
}

Status EngineHost::StartReplicas(const EngineConfig& config, Engine::Sink sink,
                                 EngineObserver* observer, const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const CpuTopology topology, ReadCpuTopology());
  auto orders = MakeOrders({.model_path = order_.model_path,
                            .settings = order_.settings,
                            .engine = config,
                            .log_level = order_.log_level,
                            .log_format = order_.log_format},
                           plan_, topology);
  threads_ = orders.front().front().threads;
  for (const auto& replica : orders) {
    for (const WorkerSpec& rank : replica) rank_cpus_.push_back(rank.cpus);
  }
  ReplicaOptions options;
  options.world = WorldFor(plan_);
  // Peers are as patient as the supervisor, who sees stops and deaths at once.
  options.world.deadline_ms = static_cast<uint32_t>(options.watch.hang_deadline.count());
  replicas_ = std::make_unique<ReplicaSet>(std::move(orders), options, std::move(sink),
                                           std::vector<EngineObserver*>{observer});
  // Loading takes as long as it goes on: a replica without progress for its start_deadline
  // (launch/replica_watch.h) ends the wait.
  RETURN_IF_ERROR(replicas_->Start(progress, TimePoint::max()));
  checkpoint_.reset();
  return OkStatus();
}

EngineClient* EngineHost::client() const {
  return replicas_ ? static_cast<EngineClient*>(replicas_.get()) : client_.get();
}

Status EngineHost::death() const {
  if (replicas_) return replicas_->death();
  return engine_ ? engine_->health() : OkStatus();
}

}  // namespace cleave

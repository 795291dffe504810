#include "launch/rank_worker.h"

#include <algorithm>
#include <utility>

#include "engine/split_executor.h"

namespace cleave {

RankComm CommOf(World* world, const Split& split) {
  return {.tp = split.tp > 1 ? world->group(Axis::kTp) : nullptr,
          .pp = split.pp > 1 ? world->group(Axis::kPp) : nullptr,
          .ep = split.ep > 1 ? world->group(Axis::kEp) : nullptr,
          .team = split.teams > 1 && split.ranks_per_team() > 1 ? world->team() : nullptr,
          .cp = split.cp > 1 ? world->group(Axis::kCp) : nullptr,
          .dcp = split.dcp > 1 ? world->dcp() : nullptr,
          .line = &world->line(),
          .bill = split.ranks_per_replica() > 1 ? world->bill() : nullptr,
          .expert_tokens = world->expert_tokens()};
}

WorldOptions WorldFor(const ModelPlan& plan) {
  const RankOptions& options = plan.executor;
  const Split& split = plan.layout.split;
  // A stage never waits for room to send its rows: as many batches are under way as there are
  // stages.
  const uint64_t rows_bytes =
      uint64_t{options.max_batch_tokens} * plan.layout.shape.hidden_size * sizeof(float);
  const uint64_t plan_bytes =
      MaxPlanBytes(split.teams * options.max_batch_tokens, split.teams * options.max_sequences,
                   options.max_positions / options.kv_shape.block_tokens + 1);
  WorldOptions world;
  world.split = split;
  world.experts = plan.layout.shape.num_experts;
  if (split.pp > 1) {
    world.channel_bytes =
        std::clamp(split.pp * (rows_bytes + 4096), world.channel_bytes, kMaxChannelBytes);
  }
  world.plan_ring_bytes =
      std::min((split.pp + 2) * (plan_bytes + 64), BroadcastRing::kMaxRingBytes);
  return world;
}

Status RankWorker::Load(const WorkerSpec& spec, World* world,
                        const std::function<void(double)>& progress) {
  spec_ = &spec;
  world_ = world;
  world->Enter(RankPhase::kComputing);
  ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(spec.model_path));
  ModelSettings settings = spec.settings;
  settings.split = spec.split;
  settings.threads = spec.threads;
  ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(*checkpoint, settings));
  plan.executor.cpus = spec.cpus;
  // The front sized all ranks; memory that changed since changes nothing.
  plan.executor.num_blocks = spec.sizing.num_blocks;
  plan.executor.max_positions = spec.sizing.max_model_len;
  if (spec.one_shot_max_bytes > 0) {
    world->SetOneShotMaxBytes(spec.one_shot_max_bytes);
  } else {
    RETURN_IF_ERROR(world->MeasureCrossovers());
  }
  const auto beat = [world, &progress](double share) {
    world->Beat();
    if (progress) progress(share);
  };
  ASSIGN_OR_RETURN(auto runner,
                   RankRunner::Create(std::move(checkpoint), plan.executor, plan.layout, spec.rank,
                                      CommOf(world, spec.split), beat));
  world->Enter(RankPhase::kIdle);
  if (spec.rank == 0) return LoadLeader(std::move(runner));
  runner_ = std::move(runner);
  return OkStatus();
}

Status RankWorker::LoadLeader(std::unique_ptr<RankRunner> runner) {
  if (spec_->split.ranks_per_replica() == 1) {
    executor_ = std::make_unique<InlineExecutor>(std::move(runner));
  } else {
    ASSIGN_OR_RETURN(BroadcastRing ring, world_->OpenPlanRing());
    executor_ = std::make_unique<SplitExecutor>(std::move(runner), std::move(ring));
  }
  // The others take part from their Follow.
  return SmokeForward(executor_.get());
}

Status RankWorker::Serve(EngineLinkServer* link) {
  Engine engine(spec_->engine, std::move(executor_), link->sink(), link->observer());
  return link->Serve(&engine);
}

Status RankWorker::Follow() {
  ASSIGN_OR_RETURN(BroadcastRing ring, world_->OpenPlanRing());
  return FollowPlans(runner_.get(), &ring);
}

}  // namespace cleave

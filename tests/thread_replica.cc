#include "thread_replica.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "engine/split_executor.h"
#include "launch/rank_worker.h"

namespace cleave {
namespace {

constexpr uint32_t kDeadlineMs = 60000;  // a crowded machine is no failure here

RankComm CommOf(World* world, const Split& split) {
  return {.tp = split.tp > 1 ? world->group(Axis::kTp) : nullptr,
          .pp = split.pp > 1 ? world->group(Axis::kPp) : nullptr,
          .ep = split.ep > 1 ? world->group(Axis::kEp) : nullptr,
          .line = &world->line()};
}

class ThreadReplica final : public Executor {
 public:
  ThreadReplica(SharedMemory segment, uint32_t ranks)
      : segment_(std::move(segment)), statuses_(ranks) {}

  ~ThreadReplica() override {
    leader_.reset();
    auto board = WorldBoard::Open(segment_, 1);
    if (board.ok()) board->End("the test is over");
    for (std::thread& t : threads_) t.join();
    for (const Status& s : statuses_) {
      EXPECT_TRUE(s.ok() || s.code() == StatusCode::kUnavailable) << s.ToString();
    }
  }

  Status Start(const std::string& model, const ModelPlan& plan, const Layout& layout) {
    for (uint32_t rank = 1; rank < layout.ranks.size(); ++rank) {
      threads_.emplace_back([this, model, plan, layout, rank] {
        statuses_[rank] = Follow(model, plan, layout, rank);
      });
    }
    ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(model));
    ASSIGN_OR_RETURN(World world, World::Join(segment_, 0, 1));
    world_ = std::make_unique<World>(std::move(world));
    ASSIGN_OR_RETURN(auto runner,
                     RankRunner::Create(std::move(checkpoint), plan.executor, layout, 0,
                                        CommOf(world_.get(), layout.split), nullptr));
    ASSIGN_OR_RETURN(BroadcastRing ring, world_->OpenPlanRing());
    leader_ = std::make_unique<SplitExecutor>(std::move(runner), std::move(ring));
    return OkStatus();
  }

  [[nodiscard]] uint32_t max_batch_tokens() const override { return leader_->max_batch_tokens(); }
  [[nodiscard]] uint32_t max_sequences() const override { return leader_->max_sequences(); }
  [[nodiscard]] uint32_t max_in_flight() const override { return leader_->max_in_flight(); }
  [[nodiscard]] uint32_t vocab_size() const override { return leader_->vocab_size(); }
  Status Submit(const ForwardBatch& batch) override { return leader_->Submit(batch); }
  Status Collect(const RowSink& sink) override { return leader_->Collect(sink); }

 private:
  Status Follow(const std::string& model, const ModelPlan& plan, const Layout& layout,
                uint32_t rank) {
    ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(model));
    ASSIGN_OR_RETURN(World world, World::Join(segment_, rank, 1));
    ASSIGN_OR_RETURN(auto runner, RankRunner::Create(std::move(checkpoint), plan.executor, layout,
                                                     rank, CommOf(&world, layout.split), nullptr));
    ASSIGN_OR_RETURN(BroadcastRing ring, world.OpenPlanRing());
    const Status status = FollowPlans(runner.get(), &ring);
    if (status.code() != StatusCode::kUnavailable) world.End(status.ToString());
    return status;
  }

  SharedMemory segment_;
  std::vector<Status> statuses_;  // by rank
  std::vector<std::thread> threads_;
  std::unique_ptr<World> world_;
  std::unique_ptr<SplitExecutor> leader_;
};

}  // namespace

Result<std::unique_ptr<Executor>> MakeThreadReplica(const std::string& model, const ModelPlan& plan,
                                                    const Split& split) {
  const ModelShape& shape = plan.layout.shape;
  ASSIGN_OR_RETURN(const Layout layout, MakeLayout(shape, split, CostsByWork(shape)));
  ModelPlan cut = plan;
  cut.layout = layout;
  WorldOptions world = WorldFor(cut);
  world.deadline_ms = kDeadlineMs;
  ASSIGN_OR_RETURN(SharedMemory segment, World::Allocate(world, SharedMemoryKind::kThreads));
  auto replica = std::make_unique<ThreadReplica>(std::move(segment),
                                                 static_cast<uint32_t>(layout.ranks.size()));
  RETURN_IF_ERROR(replica->Start(model, plan, layout));
  return std::unique_ptr<Executor>(std::move(replica));
}

}  // namespace cleave

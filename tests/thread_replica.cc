#include "thread_replica.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/bill_report.h"
#include "comm/world.h"
#include "engine/split_executor.h"
#include "launch/rank_worker.h"

namespace cleave {
namespace {

constexpr uint32_t kDeadlineMs = 60000;  // a crowded machine is no failure here

class ThreadReplica final : public Executor {
 public:
  ThreadReplica(SharedMemory segment, const Split& split, Bill* bill)
      : segment_(std::move(segment)),
        split_(split),
        bill_(bill),
        statuses_(split.ranks_per_replica()) {}

  ~ThreadReplica() override {
    const bool ran = leader_ != nullptr;
    leader_.reset();  // says that there are no more plans
    if (ran) WaitForOthers();
    auto board = WorldBoard::Open(segment_, 1);
    CLEAVE_CHECK(board.ok());
    board->End("the test is over");
    for (std::thread& t : threads_) t.join();
    for (const Status& s : statuses_) {
      EXPECT_TRUE(s.ok() || s.code() == StatusCode::kUnavailable) << s.ToString();
    }
    Bill bill = {.split = split_};
    for (uint32_t rank = 0; rank < statuses_.size(); ++rank) {
      bill.ranks.push_back(board->bill(rank));
      bill.expert_tokens.push_back(board->expert_tokens(rank));
      EXPECT_TRUE(bill.ranks[rank].exact()) << "rank " << rank << " of " << BillText(bill, 0);
    }
    if (bill_ != nullptr) *bill_ = std::move(bill);
  }

  Status Start(const std::string& model, const ModelPlan& plan, const Layout& layout) {
    for (uint32_t rank = 1; rank < layout.ranks.size(); ++rank) {
      threads_.emplace_back([this, model, plan, layout, rank] {
        statuses_[rank] = Follow(model, plan, layout, rank);
        const std::lock_guard<std::mutex> lock(mu_);
        ++done_;
        done_changed_.notify_all();
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
    Status status = FollowPlans(runner.get(), &ring);
    if (status.code() != StatusCode::kUnavailable) world.End(status.ToString());
    return status;
  }

  void WaitForOthers() {
    std::unique_lock<std::mutex> lock(mu_);
    const auto all_done = [this] { return done_ == threads_.size(); };
    done_changed_.wait_for(lock, std::chrono::milliseconds(kDeadlineMs), all_done);
  }

  SharedMemory segment_;
  const Split split_;
  Bill* const bill_;
  std::vector<Status> statuses_;  // by rank
  std::mutex mu_;
  std::condition_variable done_changed_;
  size_t done_ = 0;  // threads; guarded by mu_
  std::vector<std::thread> threads_;
  std::unique_ptr<World> world_;
  std::unique_ptr<SplitExecutor> leader_;
};

}  // namespace

Result<std::unique_ptr<Executor>> MakeThreadReplica(const std::string& model, const ModelPlan& plan,
                                                    const Split& split,
                                                    const ThreadReplicaOptions& options) {
  const ModelShape& shape = plan.layout.shape;
  ASSIGN_OR_RETURN(const Layout layout, MakeLayout(shape, split, CostsByWork(shape)));
  ModelPlan cut = plan;
  cut.layout = layout;
  WorldOptions world = WorldFor(cut);
  world.deadline_ms = kDeadlineMs;
  world.one_shot_max_bytes = options.one_shot_max_bytes;
  ASSIGN_OR_RETURN(SharedMemory segment, World::Allocate(world, SharedMemoryKind::kThreads));
  auto replica = std::make_unique<ThreadReplica>(std::move(segment), split, options.bill);
  RETURN_IF_ERROR(replica->Start(model, plan, layout));
  return std::unique_ptr<Executor>(std::move(replica));
}

}  // namespace cleave

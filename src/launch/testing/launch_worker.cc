// A worker for tests: a real engine on a fake model, and ranks that meet in a real collective once
// a step. What it does is said by the words of its model path:
//
//   load-ms=N       loading takes so long, with progress
//   step-ms=N       likewise a step
//   fail-load=R     rank R says so while it loads
//   stuck-load=R    rank R makes no progress for ever
//   hang-step=R,N   rank R spins for ever in its Nth step
//   break-step=R,N  rank R fails in its Nth step
//
// usage: launch_worker worker        descriptors as WorkerFds
//        launch_worker front WORDS   a front with one replica of two ranks: writes the pids of both
//                                    to descriptor 7 and waits for ever

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <string>
#include <thread>

#include "engine/fake_executor.h"
#include "launch/replica.h"
#include "launch/testing/fake_orders.h"
#include "launch/worker.h"

namespace cleave {
namespace {

using namespace std::chrono_literals;

// The number behind "word=" in `words`, or behind the comma after it; -1 without.
int64_t NumberOf(const std::string& words, const std::string& word, size_t position = 0) {
  size_t at = words.find(word + "=");
  if (at == std::string::npos) return -1;
  at += word.size() + 1;
  for (; position > 0; --position) at = words.find(',', at) + 1;
  int64_t number = -1;
  std::from_chars(words.data() + at, words.data() + words.size(), number);
  return number;
}

class FakeBody final : public WorkerBody {
 public:
  Status Load(const WorkerSpec& spec, World* world,
              const std::function<void(double)>& progress) override {
    spec_ = spec;
    world_ = world;
    const int64_t ms = NumberOf(spec.model_path, "load-ms");
    for (int64_t i = 0; i < ms; ++i) {
      std::this_thread::sleep_for(1ms);
      progress(static_cast<double>(i) / static_cast<double>(ms));
    }
    if (Is("stuck-load")) Forever();
    if (Is("fail-load")) return NotFound("its weights are nowhere");
    return OkStatus();
  }

  Status Serve(EngineLinkServer* link) override {
    FakeExecutorOptions options;
    options.num_blocks = spec_.engine.num_blocks;
    options.teams = spec_.engine.teams;
    options.kv_partitions = spec_.engine.kv_partitions;
    options.block_size = spec_.engine.block_size;
    options.before_forward = [this] { return Step(); };
    Engine engine(spec_.engine, std::make_unique<FakeExecutor>(options), link->sink(),
                  link->observer());
    return link->Serve(&engine);
  }

  // Joins a step once rank 0 waits in it.
  Status Follow() override {
    ASSIGN_OR_RETURN(const SharedMemory memory, SharedMemory::Attach(spec_.fds.memory));
    ASSIGN_OR_RETURN(const WorldBoard board, WorldBoard::Open(memory, spec_.epoch));
    const RankLine& first = board.lines()[0];
    uint64_t last_call = UINT64_MAX;
    for (;;) {
      const uint64_t call = first.call.load(std::memory_order_relaxed);
      const auto phase = static_cast<RankPhase>(first.phase.load(std::memory_order_relaxed));
      if (phase == RankPhase::kEnded) return OkStatus();
      if (board.ended()) return Unavailable(board.reason());
      if (phase != RankPhase::kWaiting || call == last_call) {
        std::this_thread::sleep_for(500us);
        continue;
      }
      last_call = call;
      RETURN_IF_ERROR(Step());
    }
  }

 private:
  bool Is(const std::string& word) const {
    return NumberOf(spec_.model_path, word) == static_cast<int64_t>(spec_.rank);
  }
  bool IsNow(const std::string& word) const {
    return Is(word) && NumberOf(spec_.model_path, word, 1) == steps_;
  }
  [[noreturn]] static void Forever() {
    for (;;) std::this_thread::sleep_for(1h);
  }

  Status Step() {
    ++steps_;
    world_->Enter(RankPhase::kComputing);
    for (int64_t ms = NumberOf(spec_.model_path, "step-ms"); ms > 0; --ms) {
      std::this_thread::sleep_for(1ms);
      world_->Beat();
    }
    if (IsNow("hang-step")) Forever();
    if (IsNow("break-step")) return DataLoss("a weight is no number");
    Group* group = world_->group(Axis::kTp);
    const auto mine = static_cast<std::byte>(spec_.rank);
    const std::vector<uint64_t> sizes(group->size(), 1);
    std::vector<std::byte> all(group->size());
    Status met = group->AllGather({&mine, 1}, sizes, all.data());
    if (met.ok() && group->size() > 1) WriteBill(*group);
    world_->Enter(RankPhase::kIdle);
    return met;
  }

  // A call and a byte a step.
  void WriteBill(const Group& group) {
    TrafficTotals predicted;
    const auto steps = static_cast<uint64_t>(steps_);
    predicted.Add(Axis::kTp, CommOp::kAllGather, steps, steps);
    RankBill bill;
    bill.AddMetered(Axis::kTp, group.stats());
    bill.AddPredicted(predicted);
    world_->bill()->Write(bill);
  }

  WorkerSpec spec_;
  World* world_ = nullptr;
  int64_t steps_ = 0;
};

int RunFront(const char* words) {
  Replica replica(testing::FakeOrders(words, 2), testing::FakeOptions("/proc/self/exe"),
                  {.sink = [](std::vector<SequenceOutput>&&) {}});
  replica.Start();
  const Status ready = replica.WaitReady(SteadyClock::now() + 30s);
  std::string pids;
  for (const int pid : replica.pids()) pids += fmt::format("{} ", pid);
  pids += ready.ok() ? "ready\n" : ready.ToString() + "\n";
  const ssize_t written = ::write(7, pids.data(), pids.size());
  (void)written;
  for (;;) std::this_thread::sleep_for(1h);
}

}  // namespace
}  // namespace cleave

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "front") return cleave::RunFront(argv[2]);
  cleave::FakeBody body;
  return cleave::RunWorker(&body);
}

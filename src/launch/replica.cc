#include "launch/replica.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "launch/replica_driver.h"

namespace cleave {

Replica::Replica(std::vector<WorkerSpec> orders, ReplicaOptions options, LinkEvents events)
    : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      driver_(std::make_unique<Driver>(std::move(orders), std::move(options), std::move(events),
                                       &board_, wake_.get())) {}

Replica::~Replica() { Stop(); }

void Replica::Start() {
  thread_ = std::thread([this] { driver_->Run(); });
}

Status Replica::WaitReady(TimePoint deadline) {
  std::unique_lock<std::mutex> lock(board_.mu);
  board_.changed.wait_until(lock, deadline, [this] {
    return board_.state == WatchState::kServing || board_.state == WatchState::kOver;
  });
  if (board_.state == WatchState::kServing) return OkStatus();
  if (!board_.why.ok()) return board_.why;
  if (board_.state == WatchState::kOver) return Unavailable("the replica was stopped");
  return Unavailable(fmt::format("the replica is not ready; {:.0f} % of its weights are loaded",
                                 board_.loaded_share * 100));
}

bool Replica::loading() const {
  std::lock_guard<std::mutex> lock(board_.mu);
  return board_.why.ok() &&
         (board_.state == WatchState::kIdle || board_.state == WatchState::kStarting);
}

void Replica::AskToStop() {
  {
    std::lock_guard<std::mutex> lock(board_.mu);
    board_.stop = true;
  }
  Wake();
}

void Replica::Stop() {
  AskToStop();
  if (thread_.joinable()) thread_.join();
}

void Replica::Wake() { ::eventfd_write(wake_.get(), 1); }

std::shared_ptr<EngineLink> Replica::link() const {
  std::lock_guard<std::mutex> lock(board_.mu);
  return board_.link;
}

Status Replica::health() const {
  std::shared_ptr<EngineLink> serving;
  {
    std::lock_guard<std::mutex> lock(board_.mu);
    if (!board_.link && !board_.why.ok()) return board_.why;
    if (!board_.link) return Unavailable("the replica is loading");
    if (!board_.trouble.ok()) return board_.trouble;
    serving = board_.link;
  }
  return serving->health();
}

Status Replica::death() const {
  std::shared_ptr<EngineLink> serving;
  {
    std::lock_guard<std::mutex> lock(board_.mu);
    if (!board_.link) return board_.why;
    serving = board_.link;
  }
  return serving->health();
}

EngineStats Replica::stats() const {
  std::shared_ptr<EngineLink> serving;
  EngineStats stats;
  {
    std::lock_guard<std::mutex> lock(board_.mu);
    serving = board_.link;
    stats = board_.retired;
  }
  if (serving) AddStats(serving->stats(), &stats);
  return stats;
}

std::vector<RankBill> Replica::bills() const {
  std::lock_guard<std::mutex> lock(board_.mu);
  std::vector<RankBill> bills = board_.bills;
  for (uint32_t rank = 0; board_.signs != nullptr && rank < bills.size(); ++rank) {
    bills[rank].Add(board_.signs->bill(rank));
  }
  return bills;
}

std::vector<ExpertTokens> Replica::expert_tokens() const {
  std::lock_guard<std::mutex> lock(board_.mu);
  std::vector<ExpertTokens> tokens = board_.expert_tokens;
  for (uint32_t rank = 0; board_.signs != nullptr && rank < tokens.size(); ++rank) {
    AddTokens(board_.signs->expert_tokens(rank), &tokens[rank]);
  }
  if (tokens.empty() || tokens.front().empty()) return {};
  return tokens;
}

double Replica::loaded_share() const {
  std::lock_guard<std::mutex> lock(board_.mu);
  return board_.loaded_share;
}

uint64_t Replica::epoch() const {
  std::lock_guard<std::mutex> lock(board_.mu);
  return board_.epoch;
}

std::vector<int> Replica::pids() const {
  std::lock_guard<std::mutex> lock(board_.mu);
  return board_.pids;
}

void AddStats(const EngineStats& more, EngineStats* sum) {
  sum->running += more.running;
  sum->waiting += more.waiting;
  sum->waiting_tokens += more.waiting_tokens;
  sum->used_blocks += more.used_blocks;
  sum->num_blocks += more.num_blocks;
  sum->steps += more.steps;
  sum->preemptions += more.preemptions;
  sum->prompt_tokens += more.prompt_tokens;
  sum->generation_tokens += more.generation_tokens;
  sum->prefix_queries += more.prefix_queries;
  sum->prefix_hits += more.prefix_hits;
  sum->forward_s += more.forward_s;
  sum->step_s += more.step_s;
  sum->last_progress = std::max(sum->last_progress, more.last_progress);
}

}  // namespace cleave

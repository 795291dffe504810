#include "launch/replica_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cleave {
namespace {

constexpr auto kProgressTick = std::chrono::milliseconds(20);

ReplicaOptions WithRestarts(ReplicaOptions options, size_t replicas) {
  options.watch.on_death =
      replicas > 1 ? WatchOptions::OnDeath::kRestart : WatchOptions::OnDeath::kEnd;
  return options;
}

}  // namespace

// An observer that several reader threads share.
class ReplicaSet::LockedObserver final : public EngineObserver {
 public:
  LockedObserver(std::mutex* mu, EngineObserver* to) : mu_(mu), to_(to) {}
  void OnStep(uint32_t batch_tokens) override {
    std::lock_guard<std::mutex> lock(*mu_);
    to_->OnStep(batch_tokens);
  }
  void OnFirstToken(double seconds) override {
    std::lock_guard<std::mutex> lock(*mu_);
    to_->OnFirstToken(seconds);
  }
  void OnNextToken(double seconds) override {
    std::lock_guard<std::mutex> lock(*mu_);
    to_->OnNextToken(seconds);
  }
  void OnPreempted(SequenceId id, uint32_t computed_tokens) override {
    std::lock_guard<std::mutex> lock(*mu_);
    to_->OnPreempted(id, computed_tokens);
  }
  void OnFinished(const Finished& finished) override {
    std::lock_guard<std::mutex> lock(*mu_);
    to_->OnFinished(finished);
  }

 private:
  std::mutex* const mu_;
  EngineObserver* const to_;
};

ReplicaSet::ReplicaSet(std::vector<std::vector<WorkerSpec>> orders, const ReplicaOptions& options,
                       Engine::Sink sink, const std::vector<EngineObserver*>& observers)
    : config_(orders.front().front().engine),
      split_(orders.front().front().split),
      sink_(std::move(sink)),
      choice_(static_cast<uint32_t>(orders.size()), config_.block_size,
              orders.size() * size_t{config_.num_blocks}),
      epochs_(orders.size(), 1) {
  ReplicaOptions own = WithRestarts(options, orders.size());
  if (split_.ep > 1 && split_.experts_by_load) {
    own.expert_loads = [this] {
      ExpertTokens loads = split_.expert_loads;
      AddTokens(bill().TotalExpertTokens(), &loads);
      return loads;
    };
  }
  for (uint32_t i = 0; i < orders.size(); ++i) {
    EngineObserver* observer =
        observers.empty() ? nullptr : observers[std::min<size_t>(i, observers.size() - 1)];
    replicas_.push_back(std::make_unique<Replica>(std::move(orders[i]), own, EventsOf(observer)));
  }
}

ReplicaSet::~ReplicaSet() { Stop(); }

LinkEvents ReplicaSet::EventsOf(EngineObserver* observer) {
  LinkEvents events;
  events.sink = [this](std::vector<SequenceOutput>&& outputs) { TakeOutputs(std::move(outputs)); };
  if (observer != nullptr) {
    observers_.push_back(std::make_unique<LockedObserver>(&observers_mu_, observer));
    events.observer = observers_.back().get();
  }
  return events;
}

Status ReplicaSet::Start(const std::function<void(double)>& progress, TimePoint deadline) {
  for (const auto& replica : replicas_) replica->Start();
  for (const auto& replica : replicas_) {
    for (;;) {
      const TimePoint tick = SteadyClock::now() + kProgressTick;
      const Status status = replica->WaitReady(std::min(tick, deadline));
      if (progress) {
        double share = 0;
        for (const auto& r : replicas_) share += r->loaded_share();
        progress(share / static_cast<double>(replicas_.size()));
      }
      if (status.ok()) break;
      if (tick < deadline && replica->loading()) continue;
      RETURN_IF_ERROR(replica->WaitReady(tick));  // it may just have got ready
      break;
    }
  }
  return OkStatus();
}

void ReplicaSet::Stop() {
  for (const auto& replica : replicas_) replica->AskToStop();
  for (const auto& replica : replicas_) replica->Stop();
}

Status ReplicaSet::Submit(std::vector<SequenceSpec> sequences) {
  if (sequences.empty()) return OkStatus();
  const int32_t rank = sequences.front().replica;
  const auto teams = static_cast<int32_t>(split_.teams);
  const int32_t pinned = rank < 0 ? rank : rank / teams;
  if (pinned >= static_cast<int32_t>(replicas_.size())) {
    return InvalidArgument(fmt::format("data-parallel rank {}: there are {}, counted from 0", rank,
                                       replicas_.size() * split_.teams));
  }
  std::vector<bool> tried(replicas_.size(), pinned >= 0);
  if (pinned >= 0) tried[static_cast<size_t>(pinned)] = false;
  Status refused = health();
  if (pinned >= 0) refused = replicas_[static_cast<size_t>(pinned)]->health();
  for (;;) {
    const std::optional<Target> target = Choose(sequences.front(), tried);
    if (!target) break;
    tried[target->replica] = true;
    const bool last = std::ranges::find(tried, false) == tried.end();
    if (last) return SubmitTo(*target, std::move(sequences));
    refused = SubmitTo(*target, sequences);
    const bool another_may = refused.code() == StatusCode::kUnavailable ||
                             refused.code() == StatusCode::kResourceExhausted;
    if (!another_may) return refused;
  }
  // Nobody took it: why the last one asked did not, or why there is nobody.
  return refused.ok() ? Unavailable("no replica serves; try again later") : refused;
}

std::optional<ReplicaSet::Target> ReplicaSet::Choose(const SequenceSpec& first,
                                                     const std::vector<bool>& tried) {
  std::vector<ReplicaLoad> loads(replicas_.size());
  std::vector<bool> well(replicas_.size(), false);
  std::vector<std::shared_ptr<EngineLink>> links(replicas_.size());
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (!tried[i]) links[i] = replicas_[i]->link();
    loads[i].alive = links[i] != nullptr && links[i]->health().ok();
    if (loads[i].alive) loads[i].tokens = links[i]->open_tokens();
    well[i] = loads[i].alive && replicas_[i]->health().ok();
  }
  // One with a stopped rank takes requests only when there is no other.
  if (std::ranges::find(well, true) != well.end()) {
    for (size_t i = 0; i < well.size(); ++i) loads[i].alive = well[i];
  }
  std::lock_guard<std::mutex> lock(mu_);
  for (uint32_t i = 0; i < replicas_.size(); ++i) {
    const uint64_t epoch = replicas_[i]->epoch();
    if (epoch > epochs_[i]) choice_.Forget(i);  // it began with an empty cache
    epochs_[i] = std::max(epochs_[i], epoch);
  }
  const auto chosen = choice_.Choose(first.prompt, first.cache_salt, loads);
  if (!chosen) return std::nullopt;
  return Target{.replica = *chosen, .link = std::move(links[*chosen])};
}

Status ReplicaSet::SubmitTo(const Target& target, std::vector<SequenceSpec> sequences) {
  std::vector<SequenceId> ids;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (draining_) return Unavailable("the server is draining; try another replica");
    for (const SequenceSpec& s : sequences) {
      ids.push_back(s.id);
      where_[s.id] = target.replica;
      choice_.Sent(s.prompt, s.cache_salt, target.replica);
    }
  }
  Status status = target.link->Submit(std::move(sequences));
  if (!status.ok()) {
    std::lock_guard<std::mutex> lock(mu_);
    for (const SequenceId id : ids) where_.erase(id);
  }
  return status;
}

void ReplicaSet::TakeOutputs(std::vector<SequenceOutput>&& outputs) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const SequenceOutput& output : outputs) {
      if (output.finish != FinishReason::kNone) where_.erase(output.id);
    }
  }
  sink_(std::move(outputs));
}

std::shared_ptr<EngineLink> ReplicaSet::LinkOf(SequenceId id) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = where_.find(id);
  return found == where_.end() ? nullptr : replicas_[found->second]->link();
}

void ReplicaSet::Abort(SequenceId id) {
  if (const auto link = LinkOf(id)) link->Abort(id);
}

void ReplicaSet::StartDrain() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    draining_ = true;
  }
  for (const auto& replica : replicas_) {
    if (const auto link = replica->link()) link->StartDrain();
  }
}

void ReplicaSet::FailAll(const Status& why) {
  for (const auto& replica : replicas_) {
    if (const auto link = replica->link()) link->FailAll(why);
  }
}

EngineStats ReplicaSet::stats() const {
  EngineStats sum;
  for (const auto& replica : replicas_) AddStats(replica->stats(), &sum);
  return sum;
}

Bill ReplicaSet::bill() const {
  Bill bill = {.split = split_};
  for (const auto& replica : replicas_) {
    for (const RankBill& rank : replica->bills()) bill.ranks.push_back(rank);
    for (ExpertTokens& rank : replica->expert_tokens()) {
      bill.expert_tokens.push_back(std::move(rank));
    }
  }
  return bill;
}

Status ReplicaSet::health() const {
  Status first;
  for (const auto& replica : replicas_) {
    Status status = replica->health();
    if (status.ok()) return status;
    if (first.ok()) first = status;
  }
  return first;
}

Status ReplicaSet::death() const {
  return replicas_.size() > 1 ? OkStatus() : replicas_.front()->death();
}

}  // namespace cleave

#include "http/testing/fake_engine.h"

#include <chrono>
#include <utility>

namespace cleave::testing {
namespace {

constexpr std::chrono::seconds kWait{10};

}  // namespace

Status FakeEngine::Submit(std::vector<SequenceSpec> sequences) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!refuse_.ok()) return refuse_;
    submitted_.insert(submitted_.end(), sequences.begin(), sequences.end());
  }
  changed_.notify_all();
  if (!script_) return OkStatus();
  // Step by step, all sequences together, as an engine would.
  std::vector<std::vector<SequenceOutput>> scripts;
  scripts.reserve(sequences.size());
  for (const SequenceSpec& spec : sequences) scripts.push_back(script_(spec));
  for (size_t step = 0, left = 1; left > 0; ++step) {
    std::vector<SequenceOutput> outputs;
    left = 0;
    for (auto& script : scripts) {
      if (step < script.size()) outputs.push_back(std::move(script[step]));
      if (step + 1 < script.size()) ++left;
    }
    if (!outputs.empty()) sink_(std::move(outputs));
  }
  return OkStatus();
}

void FakeEngine::Abort(SequenceId id) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    aborted_.insert(id);
  }
  changed_.notify_all();
}

void FakeEngine::StartDrain() {
  std::lock_guard<std::mutex> lock(mu_);
  draining_ = true;
}

EngineStats FakeEngine::stats() const {
  std::lock_guard<std::mutex> lock(mu_);
  return stats_;
}

Bill FakeEngine::bill() const {
  std::lock_guard<std::mutex> lock(mu_);
  return bill_;
}

EngineConfig FakeEngine::config() const { return config_; }

Status FakeEngine::health() const {
  std::lock_guard<std::mutex> lock(mu_);
  return health_;
}

void FakeEngine::Refuse(Status with) {
  std::lock_guard<std::mutex> lock(mu_);
  refuse_ = std::move(with);
}

void FakeEngine::SetHealth(Status health) {
  std::lock_guard<std::mutex> lock(mu_);
  health_ = std::move(health);
}

void FakeEngine::SetBill(const Bill& bill) {
  std::lock_guard<std::mutex> lock(mu_);
  bill_ = bill;
}

void FakeEngine::SetStats(const EngineStats& stats) {
  std::lock_guard<std::mutex> lock(mu_);
  stats_ = stats;
}

bool FakeEngine::WaitSubmitted(size_t count) {
  std::unique_lock<std::mutex> lock(mu_);
  return changed_.wait_for(lock, kWait, [&] { return submitted_.size() >= count; });
}

bool FakeEngine::WaitAborted(SequenceId id) {
  std::unique_lock<std::mutex> lock(mu_);
  return changed_.wait_for(lock, kWait, [&] { return aborted_.count(id) != 0; });
}

std::vector<SequenceSpec> FakeEngine::submitted() const {
  std::lock_guard<std::mutex> lock(mu_);
  return submitted_;
}

std::set<SequenceId> FakeEngine::aborted() const {
  std::lock_guard<std::mutex> lock(mu_);
  return aborted_;
}

bool FakeEngine::draining() const {
  std::lock_guard<std::mutex> lock(mu_);
  return draining_;
}

SequenceOutput Step(SequenceId id, const std::vector<int32_t>& tokens, FinishReason finish) {
  SequenceOutput output;
  output.id = id;
  output.tokens.assign(tokens.begin(), tokens.end());
  output.finish = finish;
  return output;
}

std::vector<SequenceOutput> Steps(SequenceId id, const std::vector<int32_t>& tokens,
                                  FinishReason finish) {
  std::vector<SequenceOutput> steps;
  for (size_t i = 0; i < tokens.size(); ++i) {
    steps.push_back(Step(id, {tokens[i]}, i + 1 == tokens.size() ? finish : FinishReason::kNone));
  }
  return steps;
}

}  // namespace cleave::testing

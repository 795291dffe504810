#pragma once
// Takes what a sink delivers, for tests; every wait has a deadline. Threads: any.

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"

#include "engine/fake_executor.h"

namespace cleave::testing {

constexpr auto kTestDeadline = std::chrono::seconds(30);

inline TimePoint TestDeadline() { return SteadyClock::now() + kTestDeadline; }

// For what nothing announces.
inline bool Eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds within = kTestDeadline) {
  const TimePoint deadline = SteadyClock::now() + within;
  while (!condition()) {
    if (SteadyClock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class Collector {
 public:
  struct One {
    std::vector<int32_t> tokens;
    FinishReason finish = FinishReason::kNone;
    Status error;
    int ends = 0;
    TimePoint ended;
  };

  void Take(std::vector<SequenceOutput>&& outputs) {
    std::lock_guard<std::mutex> lock(mu_);
    for (const SequenceOutput& o : outputs) {
      One& one = all_[o.id];
      one.tokens.insert(one.tokens.end(), o.tokens.begin(), o.tokens.end());
      if (o.finish == FinishReason::kNone) {
        if (one.ends > 0) ++after_end_;
        continue;
      }
      one.finish = o.finish;
      one.error = o.error;
      one.ended = SteadyClock::now();
      if (++one.ends > 1) ++after_end_;
    }
    changed_.notify_all();
  }
  std::function<void(std::vector<SequenceOutput>&&)> sink() {
    return [this](std::vector<SequenceOutput>&& outputs) { Take(std::move(outputs)); };
  }

  bool WaitForTokens(SequenceId id, size_t tokens) {
    std::unique_lock<std::mutex> lock(mu_);
    return changed_.wait_for(lock, kTestDeadline, [&] { return all_[id].tokens.size() >= tokens; });
  }
  // The sequence, once it ended or the deadline passed.
  One End(SequenceId id) {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait_for(lock, kTestDeadline, [&] { return all_[id].ends > 0; });
    return all_[id];
  }
  One Now(SequenceId id) {
    std::lock_guard<std::mutex> lock(mu_);
    return all_[id];
  }
  // Outputs and ends that came after a sequence's end.
  int after_end() {
    std::lock_guard<std::mutex> lock(mu_);
    return after_end_;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<SequenceId, One> all_;
  int after_end_ = 0;
};

}  // namespace cleave::testing

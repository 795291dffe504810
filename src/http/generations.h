#pragma once
// Generations: the requests that are with the engine. It submits their sequences, turns outputs
// into answers, and sees to it that each request ends exactly once: with its whole answer, with an
// explicit error, or because its client left; in the last two cases what still runs is aborted. A
// stream whose reader is too slow (Limits::stream_buffer_bytes) ends with an error.
//
// Owner and thread: the API's, on the server's thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/engine_client.h"
#include "http/openai/answer.h"
#include "http/openai/choice.h"
#include "http/prepare.h"
#include "http/reply.h"
#include "metrics/metrics.h"

namespace cleave {

class Generations {
 public:
  Generations(ServerMetrics* metrics, size_t stream_buffer_bytes, std::function<void()> on_change);
  ~Generations();
  Generations(const Generations&) = delete;
  Generations& operator=(const Generations&) = delete;

  // `seed` is used where the request has none. `engine` outlives this.
  void Start(std::unique_ptr<Reply> reply, Prepared prepared, uint64_t seed, EngineClient* engine);
  // Everything one step produced: each request's part leaves in one write.
  void OnOutputs(std::vector<SequenceOutput>&& outputs);
  void FailAll(const Status& why);
  [[nodiscard]] size_t size() const { return active_.size(); }

 private:
  struct Active;
  struct Slot {
    Active* active = nullptr;  // null: the client needs no more of it, its end is awaited
    uint32_t index = 0;        // of the choice
  };

  void TakeOutput(SequenceOutput&& output, std::vector<Active*>* touched);
  void Deliver(Active* active);
  void Fail(Active* active, const Status& why);
  void FailSlow(Active* active);
  // Aborts what still runs, forgets the request.
  void Drop(Active* active);
  void CountRefusal(const Status& status);

  ServerMetrics* const metrics_;
  const size_t stream_buffer_bytes_;       // as the server's limit, for the message
  const std::function<void()> on_change_;  // size() changed
  SequenceId next_id_ = 1;
  uint64_t slow_readers_ = 0;  // since they were last logged
  std::optional<TimePoint> slow_logged_;
  std::unordered_map<SequenceId, Slot> slots_;
  std::unordered_map<Active*, std::unique_ptr<Active>> active_;
};

}  // namespace cleave

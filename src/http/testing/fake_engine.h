#pragma once
// An engine for tests of the API: it records what it is asked and answers what the test says, by
// itself on Submit (a script) or when the test calls Emit. Threads: any.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "engine/engine_client.h"

namespace cleave::testing {

class FakeEngine final : public EngineClient {
 public:
  using Sink = std::function<void(std::vector<SequenceOutput>&&)>;
  // The steps with which a sequence is answered.
  using Script = std::function<std::vector<SequenceOutput>(const SequenceSpec&)>;

  Status Submit(std::vector<SequenceSpec> sequences) override;
  void Abort(SequenceId id) override;
  void StartDrain() override;
  [[nodiscard]] EngineStats stats() const override;
  [[nodiscard]] EngineConfig config() const override;
  [[nodiscard]] Status health() const override;
  [[nodiscard]] Bill bill() const override;

  // Set before requests come.
  void set_sink(Sink sink) { sink_ = std::move(sink); }
  void set_script(Script script) { script_ = std::move(script); }
  void set_max_model_len(uint32_t tokens) { config_.max_model_len = tokens; }

  void Refuse(Status with);
  void SetHealth(Status health);
  void SetStats(const EngineStats& stats);
  void SetBill(const Bill& bill);
  void Emit(std::vector<SequenceOutput> outputs) { sink_(std::move(outputs)); }

  // Waits, at most 10 s, for that many sequences in all, or for an abort; false when it passed.
  bool WaitSubmitted(size_t count);
  bool WaitAborted(SequenceId id);
  [[nodiscard]] std::vector<SequenceSpec> submitted() const;
  [[nodiscard]] std::set<SequenceId> aborted() const;
  [[nodiscard]] bool draining() const;

 private:
  Sink sink_;
  Script script_;
  EngineConfig config_ = [] {
    EngineConfig c;
    c.max_model_len = 256;
    return c;
  }();
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::vector<SequenceSpec> submitted_;
  std::set<SequenceId> aborted_;
  Status refuse_;
  Status health_;
  EngineStats stats_;
  Bill bill_;
  bool draining_ = false;
};

// One token a step, the last one ending with `finish`.
std::vector<SequenceOutput> Steps(SequenceId id, const std::vector<int32_t>& tokens,
                                  FinishReason finish);
SequenceOutput Step(SequenceId id, const std::vector<int32_t>& tokens,
                    FinishReason finish = FinishReason::kNone);

}  // namespace cleave::testing

#pragma once
// EngineLinkServer: rank 0's end of a link: what the front asks reaches the engine, what the engine
// did in a step goes back as one frame: outputs, the observer's events, a copy of the stats.
//
//   EngineLinkServer link(std::move(socket), {});
//   Engine engine(config, std::move(executor), link.sink(), link.observer());
//   Status status = link.Serve(&engine);      // until the front asks to end, or is gone
//
// Once Serve has returned nothing is sent any more: an engine that ends aborts what it has, and to
// the front those streams were cut short. Outlives the engine. Threads: sink and observer on the
// engine's, Serve on one of its own (a Submit is answered at once), StopServing any. The engine's
// thread waits for the front only when 64 MiB of outputs are unread; a front that reads nothing for
// the deadline is gone. Serve fails: kUnavailable, kDeadlineExceeded or kDataLoss; the process has
// nobody left to serve.

#include <atomic>
#include <chrono>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "engine/engine.h"
#include "launch/frame_sender.h"
#include "launch/frames.h"
#include "launch/wire.h"

namespace cleave {

struct LinkServerOptions {
  SenderOptions sender = {};
  std::chrono::milliseconds stats_tick{250};  // between stats where no output carries them
};

class EngineLinkServer final : private EngineObserver {
 public:
  EngineLinkServer(UniqueFd socket, const LinkServerOptions& options);
  ~EngineLinkServer() override;  // lets what was sent leave, for a short while
  EngineLinkServer(const EngineLinkServer&) = delete;
  EngineLinkServer& operator=(const EngineLinkServer&) = delete;

  [[nodiscard]] Engine::Sink sink();
  [[nodiscard]] EngineObserver* observer() { return this; }
  Status Serve(Engine* engine);
  // Serve returns ok soon.
  void StopServing();

 private:
  void OnStep(uint32_t batch_tokens) override { Note(StepEvent{batch_tokens}); }
  void OnFirstToken(double seconds) override { Note(FirstTokenEvent{seconds}); }
  void OnNextToken(double seconds) override { Note(NextTokenEvent{seconds}); }
  void OnPreempted(SequenceId id, uint32_t computed_tokens) override {
    Note(PreemptedEvent{id, computed_tokens});
  }
  void OnFinished(const Finished& finished) override { Note(finished); }

  void Note(const EngineEvent& event);
  void Send(std::span<const SequenceOutput> outputs);
  void SendLocked(std::span<const SequenceOutput> outputs);
  void SendStatsWhenNew();
  Status Take(const FrameView& frame, Engine* engine);
  Status TakeSubmit(const FrameView& frame, Engine* engine);

  const LinkServerOptions options_;
  const UniqueFd socket_;
  FrameSender sender_;
  std::atomic<bool> stop_{false};

  std::mutex mu_;
  // Guarded by mu_.
  Engine* engine_ = nullptr;  // while served
  bool over_ = false;         // Serve has returned
  std::vector<EngineEvent> events_;
  EngineStats stats_;
  Status health_;
  uint64_t sent_steps_ = 0;
};

}  // namespace cleave

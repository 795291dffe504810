#pragma once
// EngineLink: the front's end of a link: an engine that runs in another process (rank 0 of a
// replica), through the interface of one that runs here.
//
// Owner: the replica. Threads: all methods any; sink, observer and on_trouble are called on the
// link's reader thread, in the order in which the engine called them.
// life.once: when the link breaks, or Die is called, every sequence that was accepted and has not
// ended gets its end, with kError and the reason, exactly once; what still arrives is ignored.
// Submit waits for the engine's answer, no longer than the deadline and not beyond Die: it fails
// as Engine::Submit does, or with kDeadlineExceeded or kUnavailable (nothing was accepted then).

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "engine/engine_client.h"
#include "launch/frame_sender.h"
#include "launch/wire.h"

namespace cleave {

struct LinkOptions {
  SenderOptions sender = {};
  std::chrono::milliseconds submit_deadline{5000};
  // A broken link waits so long for a supervisor to say (Die) why.
  std::chrono::milliseconds reason_grace{1000};
};

struct LinkEvents {
  enum class Trouble { kLinkBroke, kEngineDied };

  Engine::Sink sink;
  EngineObserver* observer = nullptr;                                // may be null
  std::function<void(Trouble, const Status&)> on_trouble = nullptr;  // at most once of each
};

class EngineLink final : public EngineClient {
 public:
  EngineLink(UniqueFd socket, EngineConfig config, LinkEvents events, const LinkOptions& options);
  ~EngineLink() override;  // as Die
  EngineLink(const EngineLink&) = delete;
  EngineLink& operator=(const EngineLink&) = delete;

  Status Submit(std::vector<SequenceSpec> sequences) override;
  void Abort(SequenceId id) override;
  void StartDrain() override;
  void FailAll(const Status& why);
  // The replica is dead: the first reason stands.
  void Die(const Status& why);

  // As of the last step; a dead engine's levels are 0.
  [[nodiscard]] EngineStats stats() const override;
  [[nodiscard]] EngineConfig config() const override { return config_; }
  [[nodiscard]] Status health() const override;
  // Prompt and output tokens of all sequences that are with the engine.
  [[nodiscard]] uint64_t open_tokens() const;

 private:
  // A Submit that waits; on its caller's stack.
  struct Pending {
    std::vector<SequenceId> ids;
    std::optional<Status> reply;
    bool seen = false;  // outputs came before the reply: it was accepted
  };
  struct Open {
    uint64_t number = 0;  // of its Submit
    uint64_t tokens = 0;
  };

  Status RegisterLocked(const std::vector<SequenceSpec>& sequences, uint64_t number,
                        Pending* pending);
  void ForgetLocked(uint64_t number);
  void Read();
  Status Take(const FrameView& frame);
  void TakeReply(ReplyMessage&& reply);
  void TakeStep(StepMessage&& step);
  // Takes out what nobody waits for; counts and ends the rest.
  void SiftLocked(std::vector<SequenceOutput>* outputs);
  void EndAll();

  const EngineConfig config_;
  const LinkEvents events_;
  const LinkOptions options_;
  const UniqueFd socket_;
  FrameSender sender_;

  mutable std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  uint64_t next_number_ = 1;
  std::unordered_map<SequenceId, Open> open_;
  std::unordered_map<uint64_t, Pending*> pending_;
  uint64_t open_tokens_ = 0;
  EngineStats stats_;
  Status health_;       // the engine's own
  Status dead_;         // why, once the link is
  bool ended_ = false;  // everything got its end

  std::thread reader_;
};

}  // namespace cleave

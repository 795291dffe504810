#include "engine/engine.h"

#include <fmt/format.h>
#include <openssl/rand.h>
#include <spdlog/spdlog.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/engine_core.h"
#include "kernels/isa.h"

namespace cleave {
namespace {

constexpr auto kIdleTick = std::chrono::seconds(1);
constexpr auto kWarnEvery = std::chrono::seconds(10);

// Names of the prefix cache mean nothing outside this process; a fixed root is no less correct.
BlockHash RandomRoot() {
  BlockHash root{0x9e3779b97f4a7c15ULL, 0xd1b54a32d192ed03ULL};
  (void)RAND_bytes(reinterpret_cast<unsigned char*>(&root), sizeof(root));
  return root;
}

Isa IsaOrScalar() {
  Result<Isa> isa = ChooseIsa();
  return isa.ok() ? isa.value() : Isa::kScalar;
}

}  // namespace

class Engine::Impl {
 public:
  Impl(EngineConfig config, std::unique_ptr<Executor> executor, Sink sink, EngineObserver* observer)
      : config_(std::move(config)),
        executor_(std::move(executor)),
        sink_(std::move(sink)),
        vocab_size_(executor_->vocab_size()),
        core_(config_, executor_.get(), observer, &SteadyClock::now, IsaOrScalar(), RandomRoot()),
        published_(core_.stats()) {
    thread_ = std::thread([this] { Loop(); });
  }

  ~Impl() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status Submit(std::vector<SequenceSpec> sequences) {
    uint64_t tokens = 0;
    for (const SequenceSpec& s : sequences) {
      RETURN_IF_ERROR(CheckSequence(config_, vocab_size_, s));
      tokens += s.prompt.size() + s.output.size();
    }
    {
      std::lock_guard<std::mutex> lock(mu_);
      RETURN_IF_ERROR(RoomLocked(sequences.size(), tokens));
      for (SequenceSpec& s : sequences) inbox_.added.push_back(std::move(s));
      inbox_.added_tokens += tokens;
    }
    wake_.notify_one();
    return OkStatus();
  }

  void Abort(SequenceId id) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      inbox_.aborted.push_back(id);
    }
    wake_.notify_one();
  }

  void StartDrain() {
    std::lock_guard<std::mutex> lock(mu_);
    draining_ = true;
  }

  bool Idle() const {
    std::lock_guard<std::mutex> lock(mu_);
    return !busy_ && inbox_.added.empty();
  }

  void FailAll(const Status& why) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      inbox_.fail = why;
      inbox_.fail_added = inbox_.added.size();
    }
    wake_.notify_one();
  }

  ExpertTokens expert_tokens() const { return executor_->expert_tokens(); }
  EngineStats stats() const {
    std::lock_guard<std::mutex> lock(mu_);
    EngineStats s = published_;
    s.waiting += static_cast<uint32_t>(inbox_.added.size());
    s.waiting_tokens += inbox_.added_tokens;
    return s;
  }

  const EngineConfig& config() const { return config_; }

  Status health() const {
    std::lock_guard<std::mutex> lock(mu_);
    return health_;
  }

 private:
  // What other threads asked for since the last step.
  struct Inbox {
    std::vector<SequenceSpec> added;
    uint64_t added_tokens = 0;
    std::vector<SequenceId> aborted;
    std::optional<Status> fail;
    size_t fail_added = 0;  // of `added`, those that came before FailAll
  };

  Status RoomLocked(size_t sequences, uint64_t tokens) const {
    if (!health_.ok()) return Unavailable("the engine has died: " + health_.message());
    if (draining_ || stopping_) return Unavailable("the server is draining; try another replica");
    const uint64_t waiting = published_.waiting + inbox_.added.size();
    const uint64_t waiting_tokens = published_.waiting_tokens + inbox_.added_tokens;
    // A request above a bound by itself may wait alone: refusing it would be for ever.
    if (waiting == 0) return OkStatus();
    if (waiting + sequences > config_.max_num_queued_reqs) {
      return ResourceExhausted(fmt::format(
          "the waiting queue is full: {} of {} sequences wait, {} more were asked for; retry later "
          "or raise --max-num-queued-reqs",
          waiting, config_.max_num_queued_reqs, sequences));
    }
    if (waiting_tokens + tokens > config_.max_num_queued_tokens) {
      return ResourceExhausted(fmt::format(
          "the waiting queue is full: {} of {} prompt tokens wait, {} more were asked for; retry "
          "later or raise --max-num-queued-tokens",
          waiting_tokens, config_.max_num_queued_tokens, tokens));
    }
    return OkStatus();
  }

  void Loop() {
    const ScopedFpMode fp_mode;
    EngineCore::Outputs outputs;
    for (;;) {
      Inbox inbox;
      const bool stop = TakeInbox(&inbox);
      outputs.clear();
      Accept(std::move(inbox), &outputs);
      if (stop) core_.EndAll(FinishReason::kAbort, OkStatus(), &outputs);
      const Status status = core_.Step(&outputs);
      if (!status.ok()) Die(status, &outputs);
      Publish();
      if (!outputs.empty()) sink_(std::move(outputs));
      SettleIdle();
      if (stop) return;
      WarnOfPreemptions();
    }
  }

  // Waits until there is something to do; true when the engine shall stop.
  bool TakeInbox(Inbox* inbox) {
    std::unique_lock<std::mutex> lock(mu_);
    const auto work = [this] {
      return stopping_ || !inbox_.added.empty() || !inbox_.aborted.empty() ||
             inbox_.fail.has_value() || !core_.idle();
    };
    while (!wake_.wait_for(lock, kIdleTick, work)) {
    }
    std::swap(*inbox, inbox_);
    // Between here and Publish they count as waiting, so that the bound and Idle() hold.
    published_.waiting += static_cast<uint32_t>(inbox->added.size());
    published_.waiting_tokens += inbox->added_tokens;
    busy_ = true;
    return stopping_;
  }

  void Accept(Inbox&& inbox, EngineCore::Outputs* outputs) {
    size_t next = 0;
    const auto add_until = [&](size_t end) {
      for (; next < end; ++next) core_.Add(std::move(inbox.added[next]), outputs);
    };
    if (inbox.fail.has_value()) {
      add_until(inbox.fail_added);
      core_.EndAll(FinishReason::kError, *inbox.fail, outputs);
    }
    add_until(inbox.added.size());
    for (const SequenceId id : inbox.aborted) core_.Abort(id, outputs);
  }

  // The executor is lost: everything ends with its status, and nothing is accepted any more.
  void Die(const Status& why, EngineCore::Outputs* outputs) {
    Inbox inbox;
    {
      std::lock_guard<std::mutex> lock(mu_);
      health_ = why;
      std::swap(inbox, inbox_);
    }
    spdlog::error("the engine has died: {}", why.ToString());
    Accept(std::move(inbox), outputs);
    core_.EndAll(FinishReason::kError, why, outputs);
  }

  void Publish() {
    std::lock_guard<std::mutex> lock(mu_);
    published_ = core_.stats();
  }

  void SettleIdle() {
    std::lock_guard<std::mutex> lock(mu_);
    busy_ = !core_.idle();
  }

  void WarnOfPreemptions() {
    const uint64_t preemptions = core_.stats().preemptions;
    if (preemptions == warned_preemptions_) return;
    const TimePoint now = SteadyClock::now();
    if (now - warned_at_ < kWarnEvery) return;
    spdlog::warn(
        "{} preemptions since the last warning: {} KV blocks do not hold what runs, and preempted "
        "sequences are computed again; raise --kv-cache-memory-bytes or lower --max-num-seqs",
        preemptions - warned_preemptions_, config_.num_blocks);
    warned_preemptions_ = preemptions;
    warned_at_ = now;
  }

  const EngineConfig config_;
  const std::unique_ptr<Executor> executor_;
  const Sink sink_;
  const uint32_t vocab_size_;

  // Engine thread only.
  EngineCore core_;
  uint64_t warned_preemptions_ = 0;
  TimePoint warned_at_;

  mutable std::mutex mu_;
  std::condition_variable wake_;
  Inbox inbox_;            // guarded by mu_, as all below
  EngineStats published_;  // as of the last step, plus what was taken from the inbox since
  Status health_;
  bool busy_ = false;
  bool draining_ = false;
  bool stopping_ = false;

  std::thread thread_;
};

Engine::Engine(EngineConfig config, std::unique_ptr<Executor> executor, Sink sink,
               EngineObserver* observer)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(executor), std::move(sink),
                                   observer)) {}

Engine::~Engine() = default;

Status Engine::Submit(std::vector<SequenceSpec> sequences) {
  return impl_->Submit(std::move(sequences));
}
void Engine::Abort(SequenceId id) { impl_->Abort(id); }
void Engine::StartDrain() { impl_->StartDrain(); }
bool Engine::Idle() const { return impl_->Idle(); }
void Engine::FailAll(const Status& why) { impl_->FailAll(why); }
EngineStats Engine::stats() const { return impl_->stats(); }
ExpertTokens Engine::expert_tokens() const { return impl_->expert_tokens(); }
const EngineConfig& Engine::config() const { return impl_->config(); }
Status Engine::health() const { return impl_->health(); }

}  // namespace cleave

#include "launch/engine_link.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace cleave {
namespace {

constexpr auto kReadSlice = std::chrono::seconds(1);

}  // namespace

EngineLink::EngineLink(UniqueFd socket, EngineConfig config, LinkEvents events,
                       const LinkOptions& options)
    : config_(std::move(config)),
      events_(std::move(events)),
      options_(options),
      socket_(std::move(socket)),
      sender_(socket_.get(), options.sender) {
  stats_.num_blocks = config_.num_blocks;
  stats_.last_progress = SteadyClock::now();
  reader_ = std::thread([this] { Read(); });
}

EngineLink::~EngineLink() {
  Die(Unavailable("the replica was closed"));
  reader_.join();
}

Status EngineLink::Submit(std::vector<SequenceSpec> sequences) {
  Pending pending;
  uint64_t number = 0;
  {
    std::lock_guard<std::mutex> lock(mu_);
    number = next_number_++;
    RETURN_IF_ERROR(RegisterLocked(sequences, number, &pending));
  }
  const Status sent = sender_.Push(FrameType::kSubmit,
                                   [&](ByteWriter* writer) { Encode(writer, number, sequences); });
  const TimePoint deadline = SteadyClock::now() + options_.submit_deadline;
  std::unique_lock<std::mutex> lock(mu_);
  if (sent.code() == StatusCode::kResourceExhausted) {
    pending.reply = sent;
    ForgetLocked(number);
  }
  // A link that broke on the way is settled by the reader, which may have seen an output.
  changed_.wait_until(lock, deadline, [&] { return pending.reply.has_value(); });
  if (!pending.reply && pending.seen) pending.reply = OkStatus();
  if (pending.reply) {
    pending_.erase(number);
    return *pending.reply;
  }
  ForgetLocked(number);
  lock.unlock();
  (void)sender_.Push(FrameType::kAbort, [&](ByteWriter* writer) { Encode(writer, pending.ids); });
  return DeadlineExceeded(
      fmt::format("rank 0 did not answer a request for {:.1f} s; send it again",
                  std::chrono::duration<double>(options_.submit_deadline).count()));
}

Status EngineLink::RegisterLocked(const std::vector<SequenceSpec>& sequences, uint64_t number,
                                  Pending* pending) {
  if (!dead_.ok() || ended_) return Unavailable("the engine has died: " + dead_.message());
  for (const SequenceSpec& s : sequences) {
    if (open_.contains(s.id)) {
      return InvalidArgument(fmt::format("sequence {} is with the engine already", s.id));
    }
  }
  for (const SequenceSpec& s : sequences) {
    pending->ids.push_back(s.id);
    const uint64_t tokens = s.prompt.size() + s.output.size();
    open_[s.id] = {number, tokens};
    open_tokens_ += tokens;
  }
  pending_[number] = pending;
  return OkStatus();
}

void EngineLink::ForgetLocked(uint64_t number) {
  const auto found = pending_.find(number);
  if (found == pending_.end()) return;
  for (const SequenceId id : found->second->ids) {
    const auto open = open_.find(id);
    if (open == open_.end() || open->second.number != number) continue;
    open_tokens_ -= open->second.tokens;
    open_.erase(open);
  }
  pending_.erase(found);
}

void EngineLink::Abort(SequenceId id) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!dead_.ok() || !open_.contains(id)) return;
  }
  (void)sender_.Push(FrameType::kAbort,
                     [id](ByteWriter* writer) { Encode(writer, std::vector<SequenceId>{id}); });
}

void EngineLink::StartDrain() { (void)sender_.Push(FrameType::kStartDrain); }

void EngineLink::FailAll(const Status& why) {
  (void)sender_.Push(FrameType::kFailAll, [&why](ByteWriter* writer) { Encode(writer, why); });
}

void EngineLink::Die(const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!dead_.ok()) return;
    dead_ = why;
  }
  changed_.notify_all();
  ::shutdown(socket_.get(), SHUT_RDWR);
}

void EngineLink::Read() {
  FrameReader reader(socket_.get());
  Status broken;
  while (broken.ok()) {
    const auto frame = reader.Read(SteadyClock::now() + kReadSlice);
    if (frame.ok()) {
      broken = Take(*frame);
    } else if (frame.status().code() != StatusCode::kDeadlineExceeded) {
      broken = frame.status().Annotate("the link to rank 0 broke");
    }
  }
  bool told = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    told = !dead_.ok();
  }
  if (!told && events_.on_trouble) events_.on_trouble(LinkEvents::Trouble::kLinkBroke, broken);
  {
    std::unique_lock<std::mutex> lock(mu_);
    const TimePoint deadline = SteadyClock::now() + options_.reason_grace;
    changed_.wait_until(lock, deadline, [this] { return !dead_.ok(); });
    if (dead_.ok()) dead_ = broken;
  }
  ::shutdown(socket_.get(), SHUT_RDWR);
  EndAll();
}

Status EngineLink::Take(const FrameView& frame) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!dead_.ok()) return dead_;  // it is dead, whatever it still says
  }
  if (frame.type == FrameType::kReply) {
    auto reply = DecodeReply(frame.payload);
    RETURN_IF_ERROR(reply.status());
    TakeReply(std::move(*reply));
    return OkStatus();
  }
  if (frame.type == FrameType::kStep) {
    auto step = DecodeStep(frame.payload);
    RETURN_IF_ERROR(step.status());
    TakeStep(std::move(*step));
    return OkStatus();
  }
  return DataLoss(fmt::format("a frame of type {} is no engine's", static_cast<int>(frame.type)));
}

void EngineLink::TakeReply(ReplyMessage&& reply) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stats_ = reply.stats;
    const auto found = pending_.find(reply.number);
    if (found == pending_.end()) return;  // its caller went away
    Pending* pending = found->second;
    pending->reply = reply.status;
    if (!reply.status.ok()) ForgetLocked(reply.number);
  }
  changed_.notify_all();
}

void EngineLink::TakeStep(StepMessage&& step) {
  bool died = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!dead_.ok()) return;
    died = health_.ok() && !step.health.ok();
    stats_ = step.stats;
    health_ = step.health;
    SiftLocked(&step.outputs);
  }
  if (events_.observer != nullptr) {
    for (const EngineEvent& event : step.events) Replay(event, events_.observer);
  }
  if (!step.outputs.empty()) events_.sink(std::move(step.outputs));
  if (died && events_.on_trouble) {
    events_.on_trouble(LinkEvents::Trouble::kEngineDied, step.health);
  }
}

void EngineLink::SiftLocked(std::vector<SequenceOutput>* outputs) {
  std::erase_if(*outputs, [this](const SequenceOutput& output) {
    const auto found = open_.find(output.id);
    if (found == open_.end()) return true;
    const auto pending = pending_.find(found->second.number);
    if (pending != pending_.end()) pending->second->seen = true;
    if (output.finish == FinishReason::kNone) {
      found->second.tokens += output.tokens.size();
      open_tokens_ += output.tokens.size();
    } else {
      open_tokens_ -= found->second.tokens;
      open_.erase(found);
    }
    return false;
  });
}

void EngineLink::EndAll() {
  std::vector<SequenceOutput> ends;
  {
    std::lock_guard<std::mutex> lock(mu_);
    // Whoever waits for an answer: accepted if anything came of it, else refused.
    const std::unordered_map<uint64_t, Pending*> waiting = pending_;
    for (const auto& [number, pending] : waiting) {
      if (pending->reply) continue;
      pending->reply = pending->seen ? OkStatus() : dead_;
      if (!pending->seen) ForgetLocked(number);
    }
    for (const auto& [id, open] : open_) {
      SequenceOutput& end = ends.emplace_back();
      end.id = id;
      end.finish = FinishReason::kError;
      end.error = dead_;
    }
    open_.clear();
    open_tokens_ = 0;
    ended_ = true;
  }
  changed_.notify_all();
  std::ranges::sort(ends, {}, &SequenceOutput::id);
  if (!ends.empty()) events_.sink(std::move(ends));
}

EngineStats EngineLink::stats() const {
  std::lock_guard<std::mutex> lock(mu_);
  EngineStats stats = stats_;
  if (!dead_.ok()) {
    stats.running = 0;
    stats.waiting = 0;
    stats.waiting_tokens = 0;
    stats.used_blocks = 0;
  }
  return stats;
}

Status EngineLink::health() const {
  std::lock_guard<std::mutex> lock(mu_);
  return dead_.ok() ? health_ : dead_;
}

uint64_t EngineLink::open_tokens() const {
  std::lock_guard<std::mutex> lock(mu_);
  return open_tokens_;
}

}  // namespace cleave

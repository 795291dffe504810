#include "launch/engine_link_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <utility>

namespace cleave {
namespace {

// Long prefills make events without outputs; so many are not kept for the next tick.
constexpr size_t kMostEventsKept = 4096;
constexpr auto kLastWords = std::chrono::milliseconds(500);

}  // namespace

EngineLinkServer::EngineLinkServer(UniqueFd socket, const LinkServerOptions& options)
    : options_(options), socket_(std::move(socket)), sender_(socket_.get(), options.sender) {}

EngineLinkServer::~EngineLinkServer() { sender_.Flush(SteadyClock::now() + kLastWords); }

Engine::Sink EngineLinkServer::sink() {
  return [this](std::vector<SequenceOutput>&& outputs) { Send(outputs); };
}

void EngineLinkServer::Note(const EngineEvent& event) {
  std::lock_guard<std::mutex> lock(mu_);
  events_.push_back(event);
  if (events_.size() >= kMostEventsKept) SendLocked({});
}

void EngineLinkServer::Send(std::span<const SequenceOutput> outputs) {
  std::lock_guard<std::mutex> lock(mu_);
  SendLocked(outputs);
}

void EngineLinkServer::SendLocked(std::span<const SequenceOutput> outputs) {
  if (over_) return;
  if (engine_ != nullptr) {
    stats_ = engine_->stats();
    health_ = engine_->health();
  }
  sent_steps_ = stats_.steps;
  const Status sent = sender_.Push(FrameType::kStep, [&](ByteWriter* writer) {
    Encode(writer, health_, stats_, events_, outputs);
  });
  events_.clear();
  // A link that failed is Serve's to report.
  if (sent.code() != StatusCode::kResourceExhausted || outputs.empty()) return;
  if (outputs.size() > 1) {
    SendLocked(outputs.first(outputs.size() / 2));
    SendLocked(outputs.subspan(outputs.size() / 2));
    return;
  }
  SequenceOutput ended;
  ended.id = outputs[0].id;
  ended.finish = FinishReason::kError;
  ended.error = sent;
  if (engine_ != nullptr) engine_->Abort(ended.id);
  SendLocked({&ended, 1});
}

void EngineLinkServer::SendStatsWhenNew() {
  std::lock_guard<std::mutex> lock(mu_);
  if (engine_ == nullptr) return;
  const bool ill = health_.ok() && !engine_->health().ok();
  if (ill || !events_.empty() || engine_->stats().steps != sent_steps_) SendLocked({});
}

void EngineLinkServer::StopServing() {
  stop_ = true;
  ::shutdown(socket_.get(), SHUT_RD);
}

Status EngineLinkServer::Serve(Engine* engine) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    engine_ = engine;
  }
  FrameReader reader(socket_.get());
  Status status;
  while (status.ok() && !stop_) {
    const auto frame = reader.Read(SteadyClock::now() + options_.stats_tick);
    SendStatsWhenNew();
    if (frame.ok()) {
      status = Take(*frame, engine);
    } else if (frame.status().code() != StatusCode::kDeadlineExceeded) {
      status = frame.status();
    }
  }
  {
    std::lock_guard<std::mutex> lock(mu_);
    engine_ = nullptr;
    over_ = true;
  }
  return stop_ ? OkStatus() : status.Annotate("the link to the front");
}

Status EngineLinkServer::TakeSubmit(const FrameView& frame, Engine* engine) {
  auto message = DecodeSubmit(frame.payload);
  RETURN_IF_ERROR(message.status());
  ReplyMessage reply{.number = message->number,
                     .status = engine->Submit(std::move(message->sequences)),
                     .stats = engine->stats()};
  return sender_.Push(FrameType::kReply, [&](ByteWriter* writer) { Encode(writer, reply); });
}

Status EngineLinkServer::Take(const FrameView& frame, Engine* engine) {
  switch (frame.type) {
    case FrameType::kSubmit:
      return TakeSubmit(frame, engine);
    case FrameType::kAbort: {
      ASSIGN_OR_RETURN(const std::vector<SequenceId> ids, DecodeIds(frame.payload));
      for (const SequenceId id : ids) engine->Abort(id);
      return OkStatus();
    }
    case FrameType::kStartDrain:
      engine->StartDrain();
      return OkStatus();
    case FrameType::kFailAll: {
      Status why;
      RETURN_IF_ERROR(DecodeStatus(frame.payload, &why));
      engine->FailAll(why);
      return OkStatus();
    }
    default:
      return DataLoss(
          fmt::format("a frame of type {} is nothing to an engine", static_cast<int>(frame.type)));
  }
}

}  // namespace cleave

#pragma once
// What goes between the front and a replica's rank 0: requests one way, what a step did the other.
//
// Encode… puts a payload between BeginFrame and EndFrame (launch/frames.h); Decode… takes one that
// may be anything: kDataLoss, or a value whose enums and sizes are in range. Times are the steady
// clock's, which all processes of a host share. Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "launch/codec.h"

namespace cleave {

// EngineObserver's calls, as values.
struct StepEvent {
  uint32_t batch_tokens = 0;
};
struct FirstTokenEvent {
  double seconds = 0;
};
struct NextTokenEvent {
  double seconds = 0;
};
struct PreemptedEvent {
  SequenceId id = 0;
  uint32_t computed_tokens = 0;
};
using EngineEvent = std::variant<StepEvent, FirstTokenEvent, NextTokenEvent, PreemptedEvent,
                                 EngineObserver::Finished>;
void Replay(const EngineEvent& event, EngineObserver* observer);

struct SubmitMessage {
  uint64_t number = 0;  // of the reply
  std::vector<SequenceSpec> sequences;
};

struct ReplyMessage {
  uint64_t number = 0;
  Status status;
  EngineStats stats;
};

struct StepMessage {
  Status health;
  EngineStats stats;
  std::vector<EngineEvent> events;
  std::vector<SequenceOutput> outputs;
};

void Encode(ByteWriter* writer, uint64_t number, const std::vector<SequenceSpec>& sequences);
void Encode(ByteWriter* writer, const ReplyMessage& reply);
void Encode(ByteWriter* writer, const Status& health, const EngineStats& stats,
            std::span<const EngineEvent> events, std::span<const SequenceOutput> outputs);
void Encode(ByteWriter* writer, const Status& status);
void Encode(ByteWriter* writer, const std::vector<SequenceId>& ids);

Result<SubmitMessage> DecodeSubmit(std::span<const std::byte> payload);
Result<ReplyMessage> DecodeReply(std::span<const std::byte> payload);
Result<StepMessage> DecodeStep(std::span<const std::byte> payload);
Result<std::vector<SequenceId>> DecodeIds(std::span<const std::byte> payload);
Result<double> DecodeProgress(std::span<const std::byte> payload);
// Into `status`; what is returned says whether the payload made sense.
Status DecodeStatus(std::span<const std::byte> payload, Status* status);

}  // namespace cleave

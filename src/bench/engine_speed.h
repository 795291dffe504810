#pragma once
// Speed of an engine as its clients see it, without HTTP: a batch of requests is submitted at once,
// as a server would.
//
//   SpeedMeter meter;                                        // its OnOutputs is the engine's sink
//   ASSIGN_OR_RETURN(Speed speed, meter.Measure(client, options));
//
// Prefill: all prompts' tokens over the time from the first submission until the last request has
// its first token. Requests whose prompt is done decode along meanwhile, as they do in a server;
// what they make then is not counted.
// Decode: from there on, while all requests of the batch are decoding, until the one that began
// last has made `output_tokens` more: the tokens of all requests over that time. Requests ask for
// some tokens more than that (its lead over the last), so that none ends before.
// Times are those of arrival at the sink: a front that gets no processor for longer than a step
// sees several at once.
// Each request's tokens, up to the same number, are handed out, to be compared.
//
// Owner: a verb. OnOutputs: the engine's threads; the rest one other thread. The meter outlives the
// engine. Measure waits while steps go on, `stall` beyond the last one; fails as Submit, with the
// error that a request ended with, and kDeadlineExceeded.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/bill.h"
#include "engine/engine_client.h"

namespace cleave {

struct SpeedOptions {
  uint32_t batch = 1;
  uint32_t prompt_tokens = 512;
  uint32_t output_tokens = 128;  // after the first
  uint32_t lead_tokens = 0;      // see LeadTokens
  uint32_t vocab_size = 0;       // prompts are random ids of it
  uint64_t seed = 7;             // of the prompts
  std::chrono::milliseconds stall{60000};
};

// By how many tokens a request may be ahead of the last one: the steps that prefill takes when all
// are in one replica, and some for a pipeline's stages. 0 for a batch of one.
uint32_t LeadTokens(uint32_t batch, uint32_t prompt_tokens, uint32_t step_tokens, uint32_t stages);

struct PhaseSpeed {
  double seconds = 0;
  uint64_t tokens = 0;
  RankBill moved;      // by all ranks together
  uint32_t ranks = 0;  // that exchange anything
  [[nodiscard]] double tokens_per_s() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
};

struct Speed {
  PhaseSpeed prefill;
  PhaseSpeed decode;
  // [batch][1 + output_tokens]
  std::vector<std::vector<int32_t>> tokens;
};

class SpeedMeter {
 public:
  void OnOutputs(std::vector<SequenceOutput>&& outputs);
  Result<Speed> Measure(EngineClient* client, const SpeedOptions& options);

 private:
  struct Request {
    std::vector<int32_t> tokens;
    bool ended = false;
  };

  void Reset(const SpeedOptions& options);
  [[nodiscard]] std::vector<SequenceSpec> Requests(const SpeedOptions& options) const;
  void TakeLocked(const SequenceOutput& output, TimePoint now);
  Result<Speed> Watch(EngineClient* client, const SpeedOptions& options, const Bill& before);
  // Aborts what is open and waits for the ends.
  Status EndAll(EngineClient* client, const SpeedOptions& options);
  // Until `condition` (called with mu_ held) is true or a request failed.
  template <typename Condition>
  Status WaitFor(const EngineClient& client, const SpeedOptions& options,
                 const Condition& condition);

  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  SequenceId first_id_ = 1;
  uint32_t wanted_ = 0;  // tokens of a request: 1 + output_tokens
  std::vector<Request> requests_;
  uint32_t started_ = 0;    // have their first token
  uint32_t satisfied_ = 0;  // have all that are wanted
  uint32_t ended_ = 0;
  size_t last_ = 0;  // the request that started last
  std::optional<TimePoint> all_started_;
  std::optional<TimePoint> window_end_;
  uint64_t window_tokens_ = 0;
  Status error_;
};

}  // namespace cleave

#include "bench/engine_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/rng.h"

namespace cleave {
namespace {

constexpr auto kLook = std::chrono::milliseconds(250);

RankBill Difference(const RankBill& after, const RankBill& before) {
  RankBill moved;
  for (uint32_t a = 0; a < kAxes; ++a) {
    for (uint32_t o = 0; o < kCommOps; ++o) {
      const auto axis = static_cast<Axis>(a);
      const auto op = static_cast<CommOp>(o);
      const OpBill& now = after.of(axis, op);
      const OpBill& then = before.of(axis, op);
      moved.of(axis, op) = {.calls = now.calls - then.calls,
                            .bytes = now.bytes - then.bytes,
                            .predicted_calls = now.predicted_calls - then.predicted_calls,
                            .predicted_bytes = now.predicted_bytes - then.predicted_bytes,
                            .transfer_ns = now.transfer_ns - then.transfer_ns,
                            .wait_ns = now.wait_ns - then.wait_ns};
    }
  }
  moved.AddStepTime(after.step_ns() - before.step_ns());
  return moved;
}

void Account(const Bill& after, const Bill& before, PhaseSpeed* phase) {
  phase->moved = Difference(after.Total(), before.Total());
  phase->ranks = static_cast<uint32_t>(after.ranks.size());
}

}  // namespace

uint32_t LeadTokens(uint32_t batch, uint32_t prompt_tokens, uint32_t step_tokens, uint32_t stages) {
  if (batch == 1) return 0;
  // Of a step's tokens, at most batch - 1 are of requests that decode.
  const uint64_t prefill = step_tokens > batch ? step_tokens - batch : 1;
  const uint64_t steps = CeilDiv(uint64_t{batch} * prompt_tokens, prefill);
  return static_cast<uint32_t>(std::min<uint64_t>(steps + 2 * uint64_t{stages} + 2, 1U << 20U));
}

void SpeedMeter::OnOutputs(std::vector<SequenceOutput>&& outputs) {
  const TimePoint now = SteadyClock::now();
  std::lock_guard<std::mutex> lock(mu_);
  // A step that gives the last first token is prefill's, whatever else it gives.
  const bool counts = all_started_ && !window_end_;
  const auto passed = [this] {
    return std::tuple(all_started_.has_value(), window_end_.has_value(),
                      satisfied_ == requests_.size(), ended_);
  };
  const auto before = passed();
  for (const SequenceOutput& output : outputs) {
    if (output.id < first_id_ || output.id - first_id_ >= requests_.size()) continue;
    if (counts) window_tokens_ += output.tokens.size();
    TakeLocked(output, now);
  }
  if (!all_started_ && started_ == requests_.size()) all_started_ = now;
  if (counts && requests_[last_].tokens.size() >= wanted_) window_end_ = now;
  // Who waits sleeps through the other steps: the cores are the ranks'.
  if (passed() != before) changed_.notify_all();
}

void SpeedMeter::TakeLocked(const SequenceOutput& output, TimePoint now) {
  const size_t index = output.id - first_id_;
  Request& request = requests_[index];
  const size_t had = request.tokens.size();
  for (const int32_t token : output.tokens) {
    if (request.tokens.size() < wanted_) request.tokens.push_back(token);
  }
  if (had == 0 && !request.tokens.empty()) {
    ++started_;
    last_ = index;
  }
  if (had < wanted_ && request.tokens.size() == wanted_) ++satisfied_;
  if (output.finish == FinishReason::kNone || request.ended) return;
  request.ended = true;
  ++ended_;
  // From here on not all are decoding.
  if (all_started_ && !window_end_) window_end_ = now;
  if (output.finish == FinishReason::kError && error_.ok()) error_ = output.error;
}

void SpeedMeter::Reset(const SpeedOptions& options) {
  std::lock_guard<std::mutex> lock(mu_);
  first_id_ += requests_.size();
  wanted_ = options.output_tokens + 1;
  requests_.assign(options.batch, {});
  for (Request& request : requests_) request.tokens.reserve(wanted_);
  started_ = satisfied_ = ended_ = 0;
  last_ = 0;
  all_started_.reset();
  window_end_.reset();
  window_tokens_ = 0;
  error_ = OkStatus();
}

std::vector<SequenceSpec> SpeedMeter::Requests(const SpeedOptions& options) const {
  std::vector<SequenceSpec> specs(options.batch);
  for (uint32_t i = 0; i < options.batch; ++i) {
    RngStream random(MixBits(options.seed) + i);
    specs[i].id = first_id_ + i;
    specs[i].prompt.resize(options.prompt_tokens);
    for (int32_t& id : specs[i].prompt) id = static_cast<int32_t>(random.Below(options.vocab_size));
    specs[i].sampling.temperature = 0;
    specs[i].sampling.ignore_eos = true;
    specs[i].sampling.max_tokens = 1 + options.output_tokens + options.lead_tokens;
  }
  return specs;
}

template <typename Condition>
Status SpeedMeter::WaitFor(const EngineClient& client, const SpeedOptions& options,
                           const Condition& condition) {
  uint64_t steps = client.stats().steps;
  TimePoint deadline = SteadyClock::now() + options.stall;
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    if (!error_.ok()) return error_;
    if (condition()) return OkStatus();
    changed_.wait_for(lock, kLook);
    lock.unlock();
    const uint64_t now = client.stats().steps;
    lock.lock();
    if (now != steps) deadline = SteadyClock::now() + options.stall;
    steps = now;
    if (SteadyClock::now() >= deadline) {
      return DeadlineExceeded(fmt::format("no step for {} s: {} of {} requests began, {} ended",
                                          options.stall.count() / 1000, started_, requests_.size(),
                                          ended_));
    }
  }
}

Status SpeedMeter::EndAll(EngineClient* client, const SpeedOptions& options) {
  std::vector<SequenceId> open;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (!requests_[i].ended) open.push_back(first_id_ + i);
    }
  }
  for (const SequenceId id : open) client->Abort(id);
  return WaitFor(*client, options, [&] { return ended_ == requests_.size(); });
}

Result<Speed> SpeedMeter::Watch(EngineClient* client, const SpeedOptions& options,
                                const Bill& before) {
  Speed speed;
  RETURN_IF_ERROR(WaitFor(*client, options, [&] { return all_started_ || ended_ > 0; }));
  const Bill middle = client->bill();
  RETURN_IF_ERROR(WaitFor(*client, options, [&] { return window_end_ || ended_ > 0; }));
  Account(middle, before, &speed.prefill);
  Account(client->bill(), middle, &speed.decode);
  RETURN_IF_ERROR(WaitFor(*client, options, [&] {
    return satisfied_ == requests_.size() || ended_ == requests_.size();
  }));
  return speed;
}

Result<Speed> SpeedMeter::Measure(EngineClient* client, const SpeedOptions& options) {
  Reset(options);
  std::vector<SequenceSpec> specs = Requests(options);
  const Bill before = client->bill();
  const TimePoint start = SteadyClock::now();
  for (size_t i = 0; i < specs.size(); ++i) {
    std::vector<SequenceSpec> request;
    request.push_back(std::move(specs[i]));
    const Status accepted = client->Submit(std::move(request));
    if (accepted.ok()) continue;
    {
      std::lock_guard<std::mutex> lock(mu_);
      requests_.resize(i);
    }
    RETURN_IF_ERROR(EndAll(client, options));
    return accepted;
  }
  ASSIGN_OR_RETURN(Speed speed, Watch(client, options, before));
  RETURN_IF_ERROR(EndAll(client, options));
  std::lock_guard<std::mutex> lock(mu_);
  if (!all_started_ || !window_end_ || window_tokens_ == 0 || satisfied_ < requests_.size()) {
    return Internal("a request ended before the last one of the batch began");
  }
  speed.prefill.seconds = SecondsBetween(start, *all_started_);
  speed.prefill.tokens = uint64_t{options.batch} * options.prompt_tokens;
  speed.decode.seconds = SecondsBetween(*all_started_, *window_end_);
  speed.decode.tokens = window_tokens_;
  for (Request& request : requests_) speed.tokens.push_back(std::move(request.tokens));
  return speed;
}

}  // namespace cleave

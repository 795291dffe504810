#include "http/generations.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace cleave {

struct Generations::Active {
  std::unique_ptr<Reply> reply;
  std::unique_ptr<openai::Answer> answer;
  std::vector<openai::Choice> choices;
  EngineClient* engine = nullptr;
  SequenceId first_id = 0;  // of choice 0; the others follow
  size_t open_choices = 0;
  bool stream = false;
  bool started = false;  // the stream's head is sent
  bool touched = false;  // by the outputs being taken
  std::string out;       // events of this step
  Status error;          // of a choice that was cut short
};

Generations::Generations(ServerMetrics* metrics, size_t stream_buffer_bytes,
                         std::function<void()> on_change)
    : metrics_(metrics),
      stream_buffer_bytes_(stream_buffer_bytes),
      on_change_(std::move(on_change)) {}

Generations::~Generations() = default;

namespace {

constexpr auto kSlowLogEvery = std::chrono::seconds(10);

std::unique_ptr<openai::Answer> MakeAnswer(RouteId route, openai::AnswerInput input) {
  const bool chat = route == RouteId::kChat;
  if (input.generation.stream) {
    return chat ? openai::MakeChatStream(std::move(input))
                : openai::MakeCompletionStream(std::move(input));
  }
  return chat ? openai::MakeChatAnswer(std::move(input))
              : openai::MakeCompletionAnswer(std::move(input));
}

}  // namespace

void Generations::Start(std::unique_ptr<Reply> reply, Prepared prepared, uint64_t seed,
                        EngineClient* engine) {
  auto owned = std::make_unique<Active>();
  Active* active = owned.get();
  const openai::Generation& g = prepared.answer.generation;
  active->reply = std::move(reply);
  active->engine = engine;
  active->stream = g.stream;
  active->first_id = next_id_;
  active->open_choices = prepared.sequences.size();
  const TimePoint now = SteadyClock::now();
  for (SequenceSpec& spec : prepared.sequences) {
    spec.id = next_id_++;
    spec.arrival = now;
    spec.sampling.seed = g.seed.value_or(seed);
    slots_[spec.id] = {active, static_cast<uint32_t>(active->choices.size())};
    active->choices.emplace_back(prepared.answer.tokenizer, g);
  }
  const uint32_t n = g.n;
  active->answer = MakeAnswer(prepared.route, std::move(prepared.answer));
  active_[active] = std::move(owned);
  active->reply->OnGone([this, active] { Drop(active); });

  const Status status = engine->Submit(std::move(prepared.sequences));
  if (!status.ok()) {
    CountRefusal(status);
    active->reply->SendError(openai::FromStatus(status));
    for (size_t i = 0; i < active->choices.size(); ++i) slots_.erase(active->first_id + i);
    active_.erase(active);
  } else {
    metrics_->CountRequest(n);
  }
  on_change_();
}

void Generations::CountRefusal(const Status& status) {
  if (status.code() == StatusCode::kUnavailable) metrics_->CountRejection("draining");
  if (status.code() != StatusCode::kResourceExhausted) return;
  const bool tokens = status.message().find("max-num-queued-tokens") != std::string::npos;
  metrics_->CountRejection(tokens ? "queued_tokens" : "queued_reqs");
}

void Generations::OnOutputs(std::vector<SequenceOutput>&& outputs) {
  std::vector<Active*> touched;
  for (SequenceOutput& output : outputs) TakeOutput(std::move(output), &touched);
  for (Active* active : touched) Deliver(active);
  if (!touched.empty()) on_change_();
}

void Generations::TakeOutput(SequenceOutput&& output, std::vector<Active*>* touched) {
  const auto it = slots_.find(output.id);
  if (it == slots_.end()) return;
  const SequenceId id = output.id;
  const bool last = output.finish != FinishReason::kNone;
  const auto [active, index] = it->second;
  if (last) {
    slots_.erase(it);
    metrics_->Forget(id);
  }
  if (active == nullptr || !active->error.ok()) return;

  openai::Choice& choice = active->choices[index];
  openai::ChoiceDelta delta = choice.Push(std::move(output));
  if (!active->touched) touched->push_back(active);
  active->touched = true;
  if (delta.ending == openai::Ending::kError) {
    active->error = delta.error;
    return;
  }
  if (delta.abort) {
    metrics_->ExpectStop(id);
    active->engine->Abort(id);
    slots_[id].active = nullptr;
  }
  if (choice.ended()) --active->open_choices;
  active->answer->Add(index, choice.token_count(), std::move(delta), &active->out);
}

void Generations::Deliver(Active* active) {
  active->touched = false;
  if (!active->error.ok()) return Fail(active, active->error);
  const bool done = active->open_choices == 0;
  if (done) active->answer->Finish(&active->out);
  if (active->stream) {
    if (active->out.empty()) return;
    if (!active->started) active->reply->StartEvents();
    active->started = true;
    if (done) {
      active->reply->FinishWith(active->out);
    } else if (!active->reply->Write(active->out)) {
      return FailSlow(active);
    }
    active->out.clear();
  } else if (done) {
    active->reply->SendJson(std::move(active->out));
  }
  if (done) active_.erase(active);
}

void Generations::Fail(Active* active, const Status& why) {
  const openai::ApiError error = openai::FromStatus(why);
  if (active->started) {
    // What came before is kept; no finish_reason and no [DONE] follow.
    active->reply->FinishWith(active->out + openai::ErrorEvent(error));
  } else {
    active->reply->SendError(error);
  }
  Drop(active);
}

void Generations::FailSlow(Active* active) {
  metrics_->CountSlowReader();
  ++slow_readers_;
  const TimePoint now = SteadyClock::now();
  if (!slow_logged_ || now - *slow_logged_ >= kSlowLogEvery) {
    spdlog::warn(
        "{} streams ended early since the last such line: their readers fell more than {} bytes "
        "behind; the last is request {}",
        slow_readers_, stream_buffer_bytes_, active->reply->request_id());
    slow_logged_ = now;
    slow_readers_ = 0;
  }
  Fail(active, ResourceExhausted(fmt::format(
                   "the stream ends here: its reader fell more than {} bytes behind; read "
                   "it as it comes, or ask for the answer without stream",
                   stream_buffer_bytes_)));
}

void Generations::Drop(Active* active) {
  for (size_t i = 0; i < active->choices.size(); ++i) {
    const auto it = slots_.find(active->first_id + i);
    if (it == slots_.end() || it->second.active == nullptr) continue;
    it->second.active = nullptr;
    active->engine->Abort(it->first);
  }
  active_.erase(active);
  on_change_();
}

void Generations::FailAll(const Status& why) {
  std::vector<Active*> all;
  for (const auto& [active, owned] : active_) all.push_back(active);
  for (Active* active : all) Fail(active, why);
}

}  // namespace cleave

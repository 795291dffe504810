#pragma once
// Api: the OpenAI-compatible server. It listens before there is a model, so that probes are
// answered while it loads; SetModel makes it ready.
//
//   ServerMetrics metrics;
//   ASSIGN_OR_RETURN(auto api, Api::Start(options, &metrics));
//   Engine engine(config, executor, [&](auto&& o) { api->OnOutputs(std::move(o)); },
//                 metrics.AttachModel(facts));
//   auto client = MakeEngineClient(&engine);
//   api->SetModel({client.get(), tokenizer, chat_template, …});     // after a smoke forward
//   …                                                               // SIGTERM:
//   api->StartDrain();
//   if (!api->WaitIdle(deadline)) api->FailAll(Unavailable("the server is shutting down"));
//   api->WaitIdle(short_deadline);
//   api->Stop();                                                    // then the engine may go
//
// Owner: cli. Threads: every method from any but the server's own; OnOutputs never blocks.
// Contract: life.once, bound.queue, health.truth (DESIGN section 4). Fails: Start with kUnavailable
// naming the address.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine_client.h"
#include "engine/request.h"
#include "http/options.h"
#include "metrics/metrics.h"
#include "model/config.h"
#include "model/jinja/jinja.h"
#include "model/tokenizer/tokenizer.h"

namespace cleave {

// Borrowed: all of it outlives the Api, or at least its Stop.
struct ServedModel {
  EngineClient* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const jinja::Template* chat_template = nullptr;  // null: chat is refused with a reason
  GenerationDefaults defaults;
  // Rows of the model's embedding: no id at or above is let through. 0: the tokenizer's count.
  int32_t vocab_size = 0;
};

class Api {
 public:
  static Result<std::unique_ptr<Api>> Start(ServerOptions options, ServerMetrics* metrics);
  virtual ~Api() = default;  // as Stop

  [[nodiscard]] virtual uint16_t port() const = 0;
  // Once. From then on /ready and /health follow the engine, and requests are taken.
  virtual void SetModel(const ServedModel& model) = 0;
  // What /ready says while there is no model: "loading: 40 %".
  virtual void SetLoading(std::string progress) = 0;
  // The engine's sink.
  virtual void OnOutputs(std::vector<SequenceOutput>&& outputs) = 0;

  // /ready turns 503 at once, new requests get 503 with Retry-After, what runs goes on. Idempotent.
  virtual void StartDrain() = 0;
  // Requests received and not yet answered, being prepared or generated.
  [[nodiscard]] virtual size_t ActiveRequests() const = 0;
  // Whether there were none before `deadline`.
  virtual bool WaitIdle(TimePoint deadline) = 0;
  // Ends every open request with an explicit error carrying `why`.
  virtual void FailAll(const Status& why) = 0;
  // Lets complete answers leave, closes everything, joins. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace cleave

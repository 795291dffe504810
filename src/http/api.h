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
#include "engine/request.h"
#include "http/engine_client.h"
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
  ~Api();  // as Stop
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  [[nodiscard]] uint16_t port() const;
  // Once. From then on /ready and /health follow the engine, and requests are taken.
  void SetModel(const ServedModel& model);
  // What /ready says while there is no model: "loading: 40 %".
  void SetLoading(std::string progress);
  // The engine's sink.
  void OnOutputs(std::vector<SequenceOutput>&& outputs);

  // /ready turns 503 at once, new requests get 503 with Retry-After, what runs goes on. Idempotent.
  void StartDrain();
  // Requests received and not yet answered, being prepared or generated.
  [[nodiscard]] size_t ActiveRequests() const;
  // Whether there were none before `deadline`.
  bool WaitIdle(TimePoint deadline);
  // Ends every open request with an explicit error carrying `why`.
  void FailAll(const Status& why);
  // Lets complete answers leave, closes everything, joins. Idempotent.
  void Stop();

 private:
  class Front;
  explicit Api(std::unique_ptr<Front> front);
  const std::unique_ptr<Front> front_;
};

}  // namespace cleave

#pragma once
// Service: a model served over HTTP in this process: what cleave serve runs, and cleave chat MODEL.
//
// Owner: the verb. Start listens, Load brings the model up (another thread may call it, once),
// Drain and the destructor end it. Everything accepted ends: complete, or with an explicit error.

#include <chrono>
#include <functional>
#include <memory>

#include "base/status.h"
#include "cli/serve_flags.h"
#include "engine/engine.h"
#include "http/api.h"
#include "metrics/metrics.h"

namespace cleave {

class Service {
 public:
  // Listens; /ready says 503 until Load is done.
  static Result<std::unique_ptr<Service>> Start(const ServeFlags& flags);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Opens, loads, runs a smoke forward, turns ready. `progress` may be null.
  Status Load(const LoadProgress& progress);
  [[nodiscard]] uint16_t port() const { return api_->port(); }
  // Ok while it can serve; else why the engine died. Ok before Load.
  [[nodiscard]] Status health() const;

  void StartDrain();
  // Whether every open request ended before the deadline.
  bool WaitIdle(TimePoint deadline) { return api_->WaitIdle(deadline); }
  // Ends what is left with an explicit error.
  void FailAll(const Status& why);

 private:
  Service(const ServeFlags& flags, std::unique_ptr<ServerMetrics> metrics)
      : flags_(flags), metrics_(std::move(metrics)) {}
  Status LoadTemplate(const Checkpoint& checkpoint);
  Status StartEngine(const ModelPlan& plan, GenerationDefaults defaults,
                     std::unique_ptr<InlineExecutor> executor);

  const ServeFlags flags_;
  // In the order of who outlives whom.
  std::unique_ptr<ServerMetrics> metrics_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<jinja::Template> template_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineClient> client_;
};

}  // namespace cleave

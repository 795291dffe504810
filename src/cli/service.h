#pragma once
// Service: a model served over HTTP: what cleave serve runs, and cleave chat MODEL. One rank runs
// in this process, several in processes of their own (cli/engine_host.h).
//
// Owner: the verb. Start listens, Load brings the model up (another thread may call it, once),
// Drain and the destructor end it. Everything accepted ends: complete, or with an explicit error.

#include <chrono>
#include <functional>
#include <memory>

#include "base/status.h"
#include "cli/engine_host.h"
#include "cli/expert_load.h"
#include "cli/serve_flags.h"
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
  // Why it can not serve any more and will not again; ok before Load.
  [[nodiscard]] Status death() const;

  void StartDrain();
  // Whether every open request ended before the deadline.
  bool WaitIdle(TimePoint deadline) { return api_->WaitIdle(deadline); }
  // What each axis moved and cost, into the log; nothing for a world of one rank.
  void LogBill() const;
  // Ends what is left with an explicit error.
  void FailAll(const Status& why);

 private:
  Service(const ServeFlags& flags, std::unique_ptr<ServerMetrics> metrics)
      : flags_(flags), metrics_(std::move(metrics)) {}
  Status LoadTemplate(const Checkpoint& checkpoint);
  Status StartEngine(const GenerationDefaults& defaults, const LoadProgress& progress);
  EngineObserver* AttachMetrics(const EngineConfig& config);

  const ServeFlags flags_;
  // In the order of who outlives whom.
  std::unique_ptr<ServerMetrics> metrics_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<jinja::Template> template_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<EngineHost> host_;
  std::unique_ptr<ExpertLoadFile> expert_load_;  // null: not kept
};

}  // namespace cleave

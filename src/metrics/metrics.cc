#include "metrics/metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/summary.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <sstream>

#include "metrics/buckets.h"
#include "metrics/comm_metrics.h"
#include "metrics/engine_metrics.h"
#include "metrics/process.h"

namespace cleave {
namespace {

template <typename Builder>
auto& Family(Builder builder, prometheus::Registry* registry, const char* name, const char* help) {
  return builder.Name(name).Help(help).Register(*registry);
}

// Methods are the client's words; the label set stays closed.
std::string MethodLabel(std::string_view method) {
  for (const std::string_view known :
       {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"}) {
    if (method == known) return std::string(known);
  }
  return "other";
}

}  // namespace

class ServerMetrics::Families {
 public:
  Families();

  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests;
  prometheus::Family<prometheus::Summary>& request_size;
  prometheus::Family<prometheus::Summary>& response_size;
  prometheus::Family<prometheus::Histogram>& duration;
  prometheus::Histogram& fine_duration;
  prometheus::Counter& cpu_seconds;
  prometheus::Gauge& start_time;
  prometheus::Gauge& resident;
  prometheus::Gauge& virtual_memory;
  prometheus::Gauge& open_fds;
  prometheus::Gauge& max_fds;
  prometheus::Gauge& connections;
  prometheus::Counter& refused;
  prometheus::Counter& slow_readers;

  std::mutex mu;  // of Expose: counters that follow totals
  std::unique_ptr<EngineMetrics> engine_metrics;
  std::unique_ptr<CommMetrics> comm_metrics;
  std::atomic<EngineMetrics*> engine{nullptr};  // set once
};

ServerMetrics::Families::Families()
    : requests(Family(prometheus::BuildCounter(), &registry, "http_requests_total",
                      "Requests answered, by route, method and class of status.")),
      request_size(Family(prometheus::BuildSummary(), &registry, "http_request_size_bytes",
                          "Bytes of request bodies, by route.")),
      response_size(Family(prometheus::BuildSummary(), &registry, "http_response_size_bytes",
                           "Bytes of answer bodies, by route.")),
      duration(Family(prometheus::BuildHistogram(), &registry, "http_request_duration_seconds",
                      "Header complete to answer queued, by route and method.")),
      fine_duration(Family(prometheus::BuildHistogram(), &registry,
                           "http_request_duration_highr_seconds",
                           "Header complete to answer queued, all routes, in fine steps.")
                        .Add({}, HttpFineBuckets())),
      cpu_seconds(Family(prometheus::BuildCounter(), &registry, "process_cpu_seconds_total",
                         "User and system CPU time spent, in seconds.")
                      .Add({})),
      start_time(Family(prometheus::BuildGauge(), &registry, "process_start_time_seconds",
                        "Start of the process, in seconds since the epoch.")
                     .Add({})),
      resident(Family(prometheus::BuildGauge(), &registry, "process_resident_memory_bytes",
                      "Resident memory in bytes.")
                   .Add({})),
      virtual_memory(Family(prometheus::BuildGauge(), &registry, "process_virtual_memory_bytes",
                            "Virtual memory in bytes.")
                         .Add({})),
      open_fds(
          Family(prometheus::BuildGauge(), &registry, "process_open_fds", "Open file descriptors.")
              .Add({})),
      max_fds(Family(prometheus::BuildGauge(), &registry, "process_max_fds",
                     "Most file descriptors that may be open.")
                  .Add({})),
      connections(Family(prometheus::BuildGauge(), &registry, "cleave_http_connections",
                         "Open connections.")
                      .Add({})),
      refused(Family(prometheus::BuildCounter(), &registry, "cleave_http_refused_total",
                     "Requests refused for their form or for limits of connections.")
                  .Add({})),
      slow_readers(Family(prometheus::BuildCounter(), &registry, "cleave_http_slow_readers_total",
                          "Streams ended early because their reader fell too far behind.")
                       .Add({})) {}

ServerMetrics::ServerMetrics() : families_(std::make_unique<Families>()) {}
ServerMetrics::~ServerMetrics() = default;

EngineObserver* ServerMetrics::AttachModel(const ModelFacts& facts) {
  std::lock_guard<std::mutex> lock(families_->mu);
  if (families_->engine_metrics == nullptr) {
    families_->engine_metrics = std::make_unique<EngineMetrics>(&families_->registry, facts);
    families_->comm_metrics = std::make_unique<CommMetrics>(&families_->registry, facts.model_name);
    families_->engine.store(families_->engine_metrics.get(), std::memory_order_release);
  }
  return families_->engine_metrics.get();
}

void ServerMetrics::CountExchange(const HttpExchange& exchange) {
  Families& f = *families_;
  const std::string handler(exchange.handler);
  const std::string method = MethodLabel(exchange.method);
  f.requests
      .Add({{"handler", handler},
            {"method", method},
            {"status", fmt::format("{}xx", exchange.status / 100)}})
      .Increment();
  const prometheus::Summary::Quantiles none;
  f.request_size.Add({{"handler", handler}}, none)
      .Observe(static_cast<double>(exchange.request_bytes));
  f.response_size.Add({{"handler", handler}}, none)
      .Observe(static_cast<double>(exchange.response_bytes));
  f.duration.Add({{"handler", handler}, {"method", method}}, HttpCoarseBuckets())
      .Observe(exchange.seconds);
  f.fine_duration.Observe(exchange.seconds);
}

void ServerMetrics::CountRejection(std::string_view reason) {
  if (EngineMetrics* engine = families_->engine.load(std::memory_order_acquire)) {
    engine->CountRejection(reason);
  }
}

void ServerMetrics::CountRequest(uint32_t choices) {
  if (EngineMetrics* engine = families_->engine.load(std::memory_order_acquire)) {
    engine->CountRequest(choices);
  }
}

void ServerMetrics::CountSlowReader() { families_->slow_readers.Increment(); }

void ServerMetrics::ExpectStop(SequenceId id) {
  if (EngineMetrics* engine = families_->engine.load(std::memory_order_acquire)) {
    engine->ExpectStop(id);
  }
}

void ServerMetrics::Forget(SequenceId id) {
  if (EngineMetrics* engine = families_->engine.load(std::memory_order_acquire)) {
    engine->Forget(id);
  }
}

std::string ServerMetrics::Expose(const Levels& levels) {
  Families& f = *families_;
  std::lock_guard<std::mutex> lock(f.mu);
  const ProcessFacts process = ReadProcessFacts();
  f.cpu_seconds.Increment(std::max(0.0, process.cpu_seconds - f.cpu_seconds.Value()));
  f.start_time.Set(process.start_time_seconds);
  f.resident.Set(process.resident_bytes);
  f.virtual_memory.Set(process.virtual_bytes);
  f.open_fds.Set(process.open_fds);
  f.max_fds.Set(process.max_fds);
  f.connections.Set(static_cast<double>(levels.connections));
  f.refused.Increment(std::max(0.0, static_cast<double>(levels.refused) - f.refused.Value()));
  if (f.engine_metrics != nullptr && levels.stats != nullptr) {
    f.engine_metrics->Update(*levels.stats);
  }
  if (f.comm_metrics != nullptr && levels.bill != nullptr) f.comm_metrics->Update(*levels.bill);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, f.registry.Collect());
  return out.str();
}

}  // namespace cleave

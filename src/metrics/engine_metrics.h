#pragma once
// EngineMetrics: the vllm:… metrics of one engine. Private to the folder.
//
// Threads: the observer's calls come from the engine's thread, Update and the rest from any.

#include <prometheus/registry.h>

#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/engine.h"
#include "metrics/metrics.h"

namespace cleave {

class EngineMetrics final : public EngineObserver {
 public:
  EngineMetrics(prometheus::Registry* registry, const ModelFacts& facts);

  void OnStep(uint32_t batch_tokens) override;
  void OnFirstToken(double time_to_first_token_s) override;
  void OnNextToken(double inter_token_s) override;
  void OnPreempted(SequenceId id, uint32_t computed_tokens) override;
  void OnFinished(const Finished& finished) override;

  void Update(const EngineStats& stats);
  void CountRequest(uint32_t choices);
  void CountRejection(std::string_view reason);
  void ExpectStop(SequenceId id);
  void Forget(SequenceId id);

 private:
  // A counter that follows a running total of the engine's.
  struct Follower {
    prometheus::Counter* counter = nullptr;
    double seen = 0;
    void Follow(double total);
  };
  void AddLevels(prometheus::Registry* registry, const ModelFacts& facts);
  void AddTotals(prometheus::Registry* registry);
  void AddHistograms(prometheus::Registry* registry, const ModelFacts& facts);
  void AddCacheInfo(prometheus::Registry* registry, const ModelFacts& facts);
  prometheus::Counter* NewCounter(prometheus::Registry* registry, const std::string& name,
                                  const std::string& help, prometheus::Labels more = {});
  prometheus::Gauge* NewGauge(prometheus::Registry* registry, const std::string& name,
                              const std::string& help, prometheus::Labels more = {});
  prometheus::Histogram* NewHistogram(prometheus::Registry* registry, const std::string& name,
                                      const std::string& help, const std::vector<double>& edges);

  // Set by the constructor; the registry owns what they point to.
  const prometheus::Labels labels_;  // model_name, engine
  prometheus::Family<prometheus::Counter>* rejections_ = nullptr;
  prometheus::Gauge* running_ = nullptr;
  prometheus::Gauge* waiting_ = nullptr;
  prometheus::Gauge* waiting_capacity_ = nullptr;
  prometheus::Gauge* cache_usage_ = nullptr;
  prometheus::Counter* ended_stop_ = nullptr;
  prometheus::Counter* ended_length_ = nullptr;
  prometheus::Counter* ended_abort_ = nullptr;
  prometheus::Counter* ended_error_ = nullptr;
  prometheus::Histogram* iteration_tokens_ = nullptr;
  prometheus::Histogram* choices_ = nullptr;
  prometheus::Histogram* prompt_tokens_ = nullptr;
  prometheus::Histogram* generation_tokens_ = nullptr;
  prometheus::Histogram* max_generation_tokens_ = nullptr;
  prometheus::Histogram* max_tokens_ = nullptr;
  prometheus::Histogram* computed_tokens_ = nullptr;
  prometheus::Histogram* preemptions_ = nullptr;
  prometheus::Histogram* first_token_ = nullptr;
  prometheus::Histogram* inter_token_ = nullptr;
  prometheus::Histogram* per_token_ = nullptr;
  prometheus::Histogram* e2e_ = nullptr;
  prometheus::Histogram* queue_ = nullptr;
  prometheus::Histogram* inference_ = nullptr;
  prometheus::Histogram* prefill_ = nullptr;
  prometheus::Histogram* decode_ = nullptr;

  std::mutex mu_;
  // Guarded by mu_.
  Follower queries_, hits_, preempted_, prompt_total_, generation_total_, cached_total_;
  Follower computed_source_, cached_source_, cached_by_source_, steps_, step_seconds_,
      forward_seconds_;
  std::unordered_set<SequenceId> stopped_;  // ended by a stop string, end not seen yet
};

}  // namespace cleave

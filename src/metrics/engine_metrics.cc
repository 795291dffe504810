#include "metrics/engine_metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <algorithm>

#include "metrics/buckets.h"

namespace cleave {
namespace {

// As Python prints a boolean, for the labels dashboards know.
const char* PythonBool(bool value) { return value ? "True" : "False"; }

}  // namespace

EngineMetrics::EngineMetrics(prometheus::Registry* registry, const ModelFacts& facts)
    : labels_{{"model_name", facts.model_name}, {"engine", "0"}} {
  AddLevels(registry, facts);
  AddTotals(registry);
  AddHistograms(registry, facts);
  AddCacheInfo(registry, facts);
}

prometheus::Counter* EngineMetrics::NewCounter(prometheus::Registry* registry,
                                               const std::string& name, const std::string& help,
                                               prometheus::Labels more) {
  more.insert(labels_.begin(), labels_.end());
  return &prometheus::BuildCounter().Name(name).Help(help).Register(*registry).Add(more);
}

prometheus::Gauge* EngineMetrics::NewGauge(prometheus::Registry* registry, const std::string& name,
                                           const std::string& help, prometheus::Labels more) {
  more.insert(labels_.begin(), labels_.end());
  return &prometheus::BuildGauge().Name(name).Help(help).Register(*registry).Add(more);
}

prometheus::Histogram* EngineMetrics::NewHistogram(prometheus::Registry* registry,
                                                   const std::string& name, const std::string& help,
                                                   const std::vector<double>& edges) {
  return &prometheus::BuildHistogram().Name(name).Help(help).Register(*registry).Add(labels_,
                                                                                     edges);
}

void EngineMetrics::AddLevels(prometheus::Registry* r, const ModelFacts& facts) {
  running_ = NewGauge(r, "vllm:num_requests_running", "Sequences being computed.");
  waiting_ = NewGauge(r, "vllm:num_requests_waiting", "Sequences in the queue.");
  const std::string by_reason = "vllm:num_requests_waiting_by_reason";
  const std::string by_reason_help = "Sequences in the queue, by what they wait for.";
  waiting_capacity_ = NewGauge(r, by_reason, by_reason_help, {{"reason", "capacity"}});
  NewGauge(r, by_reason, by_reason_help, {{"reason", "deferred"}});
  cache_usage_ =
      NewGauge(r, "vllm:kv_cache_usage_perc", "Share of KV blocks that sequences hold, 0 to 1.");
  for (const char* state : {"awake", "weights_offloaded", "discard_all"}) {
    NewGauge(r, "vllm:engine_sleep_state", "1 for the state the engine is in.",
             {{"sleep_state", state}})
        ->Set(std::string_view(state) == "awake" ? 1 : 0);
  }
  rejections_ = &prometheus::BuildCounter()
                     .Name("vllm:admission_rejections_total")
                     .Help("Requests refused before they were queued, by reason.")
                     .Register(*r);
  for (const char* reason : {"queued_reqs", "queued_tokens", "draining"}) {
    rejections_->Add({{"model_name", facts.model_name}, {"reason", reason}});
  }
}

void EngineMetrics::AddTotals(prometheus::Registry* r) {
  queries_.counter = NewCounter(r, "vllm:prefix_cache_queries_total",
                                "Prompt tokens looked up in the prefix cache.");
  hits_.counter =
      NewCounter(r, "vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
  preempted_.counter =
      NewCounter(r, "vllm:num_preemptions_total", "Sequences put back to be computed again later.");
  prompt_total_.counter =
      NewCounter(r, "vllm:prompt_tokens_total", "Prompt tokens of admitted sequences.");
  generation_total_.counter = NewCounter(r, "vllm:generation_tokens_total", "Tokens generated.");
  cached_total_.counter = NewCounter(r, "vllm:prompt_tokens_cached_total",
                                     "Prompt tokens that did not have to be computed.");
  const std::string source = "vllm:prompt_tokens_by_source_total";
  const std::string source_help = "Prompt tokens, by where their keys and values came from.";
  computed_source_.counter = NewCounter(r, source, source_help, {{"source", "local_compute"}});
  cached_source_.counter = NewCounter(r, source, source_help, {{"source", "local_cache_hit"}});
  NewCounter(r, source, source_help, {{"source", "external_kv_transfer"}});
  const std::string cached = "vllm:prompt_tokens_cached_by_source_total";
  const std::string cached_help = "Prompt tokens not computed, by where they were found.";
  cached_by_source_.counter = NewCounter(r, cached, cached_help, {{"source", "local_cache_hit"}});
  NewCounter(r, cached, cached_help, {{"source", "external_kv_transfer"}});
  const std::string ended = "vllm:request_success_total";
  const std::string ended_help = "Sequences that ended, by reason.";
  ended_stop_ = NewCounter(r, ended, ended_help, {{"finished_reason", "stop"}});
  ended_length_ = NewCounter(r, ended, ended_help, {{"finished_reason", "length"}});
  ended_abort_ = NewCounter(r, ended, ended_help, {{"finished_reason", "abort"}});
  ended_error_ = NewCounter(r, ended, ended_help, {{"finished_reason", "error"}});
  steps_.counter = NewCounter(r, "cleave_engine_steps_total", "Steps of the engine.");
  step_seconds_.counter = NewCounter(r, "cleave_engine_step_seconds_total", "Time inside steps.");
  forward_seconds_.counter = NewCounter(r, "cleave_engine_forward_seconds_total",
                                        "Time inside the model, of the time inside steps.");
}

void EngineMetrics::AddHistograms(prometheus::Registry* r, const ModelFacts& facts) {
  const std::vector<double> sizes = SizeBuckets(facts.max_model_len);
  const auto size = [&](const char* name, const char* help) {
    return NewHistogram(r, std::string("vllm:") + name, help, sizes);
  };
  const auto seconds = [&](const char* name, const char* help, const std::vector<double>& edges) {
    return NewHistogram(r, std::string("vllm:") + name + "_seconds", help, edges);
  };
  iteration_tokens_ =
      NewHistogram(r, "vllm:iteration_tokens_total", "Tokens of a step.", IterationTokenBuckets());
  choices_ = NewHistogram(r, "vllm:request_params_n", "n of requests.", ChoiceBuckets());
  prompt_tokens_ = size("request_prompt_tokens", "Prompt tokens of ended sequences.");
  generation_tokens_ = size("request_generation_tokens", "Output tokens of ended sequences.");
  max_generation_tokens_ =
      size("request_max_num_generation_tokens", "Most output tokens of ended sequences.");
  max_tokens_ = size("request_params_max_tokens", "max_tokens of ended sequences.");
  computed_tokens_ =
      size("request_prefill_kv_computed_tokens", "Prompt tokens computed, cached ones left out.");
  preemptions_ = NewHistogram(r, "vllm:request_num_preemptions", "Preemptions of ended sequences.",
                              PreemptionBuckets());
  first_token_ = seconds("time_to_first_token", "Arrival to first token.", FirstTokenBuckets());
  inter_token_ = seconds("inter_token_latency", "Token to next token.", TokenTimeBuckets());
  per_token_ = seconds("request_time_per_output_token", "Mean time of a token after the first.",
                       TokenTimeBuckets());
  const auto& times = RequestTimeBuckets();
  e2e_ = seconds("e2e_request_latency", "Arrival to end.", times);
  queue_ = seconds("request_queue_time", "Arrival to first scheduled.", times);
  inference_ = seconds("request_inference_time", "First scheduled to end.", times);
  prefill_ = seconds("request_prefill_time", "First scheduled to first token.", times);
  decode_ = seconds("request_decode_time", "First token to last.", times);
}

void EngineMetrics::AddCacheInfo(prometheus::Registry* r, const ModelFacts& facts) {
  const uint64_t tokens = static_cast<uint64_t>(facts.block_size) * facts.num_blocks;
  NewGauge(r, "vllm:cache_config_info", "The KV cache's configuration.",
           {{"block_size", std::to_string(facts.block_size)},
            {"num_gpu_blocks", std::to_string(facts.num_blocks)},
            {"cache_dtype", facts.cache_dtype},
            {"enable_prefix_caching", PythonBool(facts.enable_prefix_caching)},
            {"gpu_memory_utilization", fmt::format("{}", facts.gpu_memory_utilization)},
            {"kv_cache_memory_bytes", std::to_string(facts.kv_cache_memory_bytes)},
            {"kv_cache_size_tokens", std::to_string(tokens)},
            {"kv_cache_max_concurrency", fmt::format("{:.2f}", facts.max_concurrency)}})
      ->Set(1);
}

void EngineMetrics::OnStep(uint32_t batch_tokens) { iteration_tokens_->Observe(batch_tokens); }

void EngineMetrics::OnFirstToken(double time_to_first_token_s) {
  first_token_->Observe(time_to_first_token_s);
}

void EngineMetrics::OnNextToken(double inter_token_s) { inter_token_->Observe(inter_token_s); }

// Counted by the engine's own total, see Update.
void EngineMetrics::OnPreempted(SequenceId /*id*/, uint32_t /*computed_tokens*/) {}

void EngineMetrics::OnFinished(const Finished& finished) {
  bool by_stop_string = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    by_stop_string = stopped_.erase(finished.id) > 0;
  }
  if (by_stop_string || finished.reason == FinishReason::kStop) {
    ended_stop_->Increment();
  } else if (finished.reason == FinishReason::kLength) {
    ended_length_->Increment();
  } else if (finished.reason == FinishReason::kAbort) {
    ended_abort_->Increment();
  } else {
    ended_error_->Increment();
  }
  prompt_tokens_->Observe(finished.prompt_tokens);
  generation_tokens_->Observe(finished.output_tokens);
  max_generation_tokens_->Observe(finished.output_tokens);
  max_tokens_->Observe(finished.max_tokens);
  computed_tokens_->Observe(finished.prompt_tokens -
                            std::min(finished.cached_tokens, finished.prompt_tokens));
  preemptions_->Observe(finished.preemptions);
  e2e_->Observe(finished.e2e_s);
  queue_->Observe(finished.queue_s);
  inference_->Observe(finished.prefill_s + finished.decode_s);
  prefill_->Observe(finished.prefill_s);
  decode_->Observe(finished.decode_s);
  if (finished.output_tokens > 1) {
    per_token_->Observe(finished.decode_s / (finished.output_tokens - 1));
  }
}

void EngineMetrics::Follower::Follow(double total) {
  if (total <= seen) return;
  counter->Increment(total - seen);
  seen = total;
}

void EngineMetrics::Update(const EngineStats& stats) {
  running_->Set(stats.running);
  waiting_->Set(stats.waiting);
  waiting_capacity_->Set(stats.waiting);
  cache_usage_->Set(stats.num_blocks == 0 ? 0.0
                                          : static_cast<double>(stats.used_blocks) /
                                                static_cast<double>(stats.num_blocks));
  std::lock_guard<std::mutex> lock(mu_);
  const auto hits = static_cast<double>(stats.prefix_hits);
  const auto prompt = static_cast<double>(stats.prompt_tokens);
  queries_.Follow(static_cast<double>(stats.prefix_queries));
  hits_.Follow(hits);
  preempted_.Follow(static_cast<double>(stats.preemptions));
  prompt_total_.Follow(prompt);
  generation_total_.Follow(static_cast<double>(stats.generation_tokens));
  cached_total_.Follow(hits);
  cached_source_.Follow(hits);
  cached_by_source_.Follow(hits);
  computed_source_.Follow(std::max(0.0, prompt - hits));
  steps_.Follow(static_cast<double>(stats.steps));
  step_seconds_.Follow(stats.step_s);
  forward_seconds_.Follow(stats.forward_s);
}

void EngineMetrics::CountRequest(uint32_t choices) { choices_->Observe(choices); }

void EngineMetrics::CountRejection(std::string_view reason) {
  rejections_->Add({{"model_name", labels_.at("model_name")}, {"reason", std::string(reason)}})
      .Increment();
}

void EngineMetrics::ExpectStop(SequenceId id) {
  std::lock_guard<std::mutex> lock(mu_);
  stopped_.insert(id);
}

void EngineMetrics::Forget(SequenceId id) {
  std::lock_guard<std::mutex> lock(mu_);
  stopped_.erase(id);
}

}  // namespace cleave

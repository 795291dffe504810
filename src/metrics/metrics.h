#pragma once
// ServerMetrics: what a server counts, and its text for Prometheus. Names, labels and buckets are
// vLLM's where the meaning is the same, so that its dashboards and autoscalers work unchanged;
// what is ours alone begins with cleave_.
//
// Owner: cli; outlives the engine that was given its observer. Threads: any; each call takes a lock
// of its own metric only.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "comm/bill.h"
#include "engine/engine.h"

namespace cleave {

// What the metrics of a model are labelled with and bounded by.
struct ModelFacts {
  std::string model_name;
  uint32_t max_model_len = 0;
  uint32_t block_size = 0;
  uint32_t num_blocks = 0;     // of the whole pool
  double max_concurrency = 0;  // sequences of max_model_len that it holds
  std::string cache_dtype;
  bool enable_prefix_caching = true;
  double gpu_memory_utilization = 0;
  uint64_t kv_cache_memory_bytes = 0;
};

struct HttpExchange {
  std::string_view handler;  // the route's pattern, "none" for no route: a closed set
  std::string_view method;
  int status = 0;
  double seconds = 0;
  size_t request_bytes = 0;
  size_t response_bytes = 0;
};

class ServerMetrics {
 public:
  ServerMetrics();
  ~ServerMetrics();
  ServerMetrics(const ServerMetrics&) = delete;
  ServerMetrics& operator=(const ServerMetrics&) = delete;

  // Adds the model's metrics; once, before its engine runs. The observer is the engine's.
  EngineObserver* AttachModel(const ModelFacts& facts);

  void CountExchange(const HttpExchange& exchange);
  // `reason`: "queued_reqs", "queued_tokens", "draining".
  void CountRejection(std::string_view reason);
  void CountRequest(uint32_t choices);
  // A stream was ended because its reader fell too far behind.
  void CountSlowReader();
  // A stop string ended the sequence: the engine, which is told to abort it, will report an abort
  // where a stop is meant. Forget is called once its end was seen.
  void ExpectStop(SequenceId id);
  void Forget(SequenceId id);

  // The exposition text. `stats` may be null: no engine yet.
  struct Levels {
    const EngineStats* stats = nullptr;
    size_t connections = 0;
    uint64_t refused = 0;        // requests the server refused before any handler
    const Bill* bill = nullptr;  // may be null
  };
  std::string Expose(const Levels& levels);

 private:
  class Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace cleave

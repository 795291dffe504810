#pragma once
// Engine: one replica. A thread that admits, schedules, runs and samples until told to stop.
//
// Threads: Submit, Abort, stats and Drain from any; results are delivered on the engine thread,
// once per step, through the sink given at construction. Bounded: the waiting queue by
// EngineConfig, the running set by max_num_seqs and the KV pool. Every sequence that Submit
// accepted ends exactly once with finish != kNone.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/executor.h"
#include "engine/request.h"

namespace cleave {

enum class SchedulingPolicy { kFcfs, kPriority };

struct EngineConfig {
  uint32_t max_model_len = 0;                  // prompt + output tokens of a sequence
  uint32_t max_num_seqs = 64;                  // running at once, in each team
  uint32_t max_num_batched_tokens = 512;       // of one step: all sequences of a team
  uint32_t max_num_queued_reqs = 1024;         // sequences waiting
  uint64_t max_num_queued_tokens = 1U << 20U;  // their prompt tokens
  uint32_t block_size = 16;
  uint32_t num_blocks = 0;     // of the KV pools: all teams and partitions; a multiple of both
  uint32_t teams = 1;          // of ranks that share requests out, each with a pool of its own
  uint32_t kv_partitions = 1;  // cp · dcp: ranks that keep a sequence's KV by runs of 512 positions
  bool enable_prefix_caching = true;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  // Prefill chunk of one sequence in a step; 0 = whatever the budget leaves. Tests use 1, 7, 64.
  uint32_t long_prefill_token_threshold = 0;
  std::vector<int32_t> eos_token_ids;
};

// Counts since start (monotonic) and levels now. One consistent copy per call.
struct EngineStats {
  uint32_t running = 0;
  uint32_t waiting = 0;
  uint64_t waiting_tokens = 0;
  uint32_t used_blocks = 0;  // of all pools, held by sequences; cached but free: not counted
  uint32_t num_blocks = 0;
  uint64_t steps = 0;
  uint64_t preemptions = 0;
  uint64_t prompt_tokens = 0;  // of admitted sequences, first admission only
  uint64_t generation_tokens = 0;
  uint64_t prefix_queries = 0;  // tokens looked up
  uint64_t prefix_hits = 0;     // tokens found
  double forward_s = 0;         // time inside the executor
  double step_s = 0;            // whole steps
  TimePoint last_progress;      // end of the last step
};

// Facts for histograms; called on the engine thread. Times are by the engine's clock.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  struct Finished {
    FinishReason reason = FinishReason::kNone;
    uint32_t prompt_tokens = 0;
    uint32_t output_tokens = 0;
    uint32_t cached_tokens = 0;
    uint32_t preemptions = 0;
    uint32_t max_tokens = 0;
    double queue_s = 0;    // arrival to first scheduled
    double prefill_s = 0;  // first scheduled to first token
    double decode_s = 0;   // first token to last
    double e2e_s = 0;      // arrival to end
    SequenceId id = 0;
  };
  virtual void OnStep(uint32_t batch_tokens) = 0;
  virtual void OnFirstToken(double time_to_first_token_s) = 0;
  virtual void OnNextToken(double inter_token_s) = 0;
  virtual void OnPreempted(SequenceId id, uint32_t computed_tokens) = 0;
  virtual void OnFinished(const Finished& finished) = 0;
};

class Engine {
 public:
  // Called on the engine thread with everything one step produced; must not block. It moves out
  // what it keeps: the vector it leaves behind is the next step's, so that steps need not allocate.
  using Sink = std::function<void(std::vector<SequenceOutput>&& outputs)>;

  // `executor` is owned by the engine and used on its thread only. `observer` may be null and
  // outlives the engine.
  Engine(EngineConfig config, std::unique_ptr<Executor> executor, Sink sink,
         EngineObserver* observer);
  ~Engine();  // aborts what is left; every sequence still gets its end
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // All of a request's sequences or none. Fails at once and delays nobody:
  //   kInvalidArgument   a sequence can never fit (max_model_len, the KV pool), with the numbers
  //   kResourceExhausted the waiting queue is full (requests or tokens), with the flag
  //   kUnavailable       draining or dead
  Status Submit(std::vector<SequenceSpec> sequences);
  // The sequence ends with kAbort within a step, its blocks free; unknown or ended ids are ignored.
  void Abort(SequenceId id);

  // Refuses new work; what runs and waits goes on. Idempotent.
  void StartDrain();
  // Whether nothing runs or waits.
  [[nodiscard]] bool Idle() const;
  // Ends everything that is left with kError carrying `why`.
  void FailAll(const Status& why);

  [[nodiscard]] EngineStats stats() const;
  [[nodiscard]] ExpertTokens expert_tokens() const;  // its executor's
  [[nodiscard]] const EngineConfig& config() const;
  // ok while the engine can serve; else why it died.
  [[nodiscard]] Status health() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cleave

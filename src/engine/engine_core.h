#pragma once
// EngineCore: what the engine does, without its thread: sequences in, steps, outputs out.
//
// A step: the scheduler's plan, one forward pass, logits of the rows that need them, one token for
// every sequence whose last known token was computed, stop checks, commit. One plan is in flight at
// a time. The core holds the tokens; the scheduler holds counts, blocks and names.
//
// Owner: the engine; one thread, holding a ScopedFpMode. A steady decode step allocates
// nothing when `outputs` has the room of the step before; lists of logprobs are made when asked
// for. Fails: Step returns what the executor said; the caller then ends everything with EndAll.

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/request.h"
#include "engine/sampler/logprobs.h"
#include "engine/sampler/sampler.h"
#include "engine/scheduler/scheduler.h"
#include "kernels/isa.h"
#include "kv/block_hash.h"

namespace cleave {

// Whether a sequence could ever run here: kInvalidArgument with the numbers if not.
Status CheckSequence(const EngineConfig& config, uint32_t vocab_size, const SequenceSpec& spec);

class EngineCore {
 public:
  using Clock = TimePoint (*)();
  using Outputs = std::vector<SequenceOutput>;

  // `executor` and `observer` (which may be null) outlive the core. `root` names the prefix cache.
  EngineCore(const EngineConfig& config, Executor* executor, EngineObserver* observer, Clock clock,
             Isa isa, const BlockHash& root);

  // Adds a sequence that CheckSequence accepted. One that carries all its output ends at once.
  void Add(SequenceSpec&& spec, Outputs* outputs);
  void Abort(SequenceId id, Outputs* outputs);
  // Runs one step if there is anything to do.
  Status Step(Outputs* outputs);
  // Ends everything, with `error` when the reason is kError.
  void EndAll(FinishReason reason, const Status& error, Outputs* outputs);

  [[nodiscard]] bool idle() const { return handles_.empty(); }
  [[nodiscard]] const EngineStats& stats() const { return stats_; }
  [[nodiscard]] const Scheduler& scheduler() const { return scheduler_; }

 private:
  // A sequence that waits or runs; indexed by the scheduler's handle.
  struct Live {
    SequenceId id = 0;
    bool active = false;
    SamplingParams sampling;
    std::string salt;
    std::vector<int32_t> tokens;  // prompt, then output
    uint32_t prompt_tokens = 0;
    uint32_t cached_tokens = 0;
    uint32_t preemptions = 0;
    BlockHash name;        // of block named - 1
    uint32_t named = 0;    // full blocks whose names were given to the scheduler
    uint32_t sampled = 0;  // tokens of this engine's own
    FinishReason ending = FinishReason::kNone;
    std::vector<TokenLogprobs> prompt_logprobs;  // of positions 1 …, as far as computed
    TimePoint arrival;
    TimePoint first_scheduled;
    TimePoint first_token;
    TimePoint last_token;

    [[nodiscard]] uint32_t output_tokens() const {
      return static_cast<uint32_t>(tokens.size()) - prompt_tokens;
    }
    [[nodiscard]] uint32_t limit() const { return prompt_tokens + sampling.max_tokens; }
  };

  [[nodiscard]] SchedulerConfig SchedulerConfigOf(const EngineConfig& config) const;
  bool NameNextBlock(Live* live);
  void NotePlan(TimePoint now);
  void BuildBatch();
  Status Forward();
  Status CollectPromptLogprobs();
  Status CollectPromptLogprobs(const PlanEntry& entry, uint32_t batch_offset);
  Status SampleRows(Outputs* outputs);
  EntryResult TakeToken(SequenceHandle handle, float* logits, Outputs* outputs);
  void NoteToken(Live* live, TimePoint now);
  void Finish(SequenceHandle handle, FinishReason reason);
  void Report(const Live& live, FinishReason reason) const;
  void RefreshLevels();

  const EngineConfig config_;
  Executor* const executor_;
  EngineObserver* const observer_;
  const Clock clock_;
  const uint32_t vocab_size_;
  const uint32_t max_rows_;  // of one Logits call

  Scheduler scheduler_;
  BlockHasher hasher_;
  Sampler sampler_;
  LogprobCalculator logprobs_;
  std::vector<Live> live_;
  std::unordered_map<SequenceId, SequenceHandle> handles_;
  EngineStats stats_;

  // Of the step under way; reused.
  Plan plan_;
  bool plan_in_flight_ = false;
  std::vector<EntryResult> results_;
  std::vector<int32_t> batch_tokens_;
  std::vector<BatchSequence> batch_sequences_;
  std::vector<uint32_t> rows_;         // batch token index of each row asked for
  std::vector<uint32_t> row_entries_;  // the plan entry each row belongs to
  std::vector<float> logits_;          // [max_rows][vocab_size]
  std::vector<float> raw_logits_;      // [vocab_size], a row before its rules
  std::vector<BlockHash> names_;       // of a sequence that is being added
};

}  // namespace cleave

#pragma once
// EngineCore: what the engine does, without its thread: sequences in, steps, outputs out.
//
// A step: plans from the scheduler until the executor has as many under way as it works on at once;
// then the results of the oldest, one token for every sequence whose last known token it computed,
// stop checks, commit. The core holds the tokens; the scheduler holds counts, blocks and names.
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

  // Nothing runs, waits or is under way.
  [[nodiscard]] bool idle() const { return handles_.empty() && under_way_ == 0; }
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
    uint32_t prompt_rows = 0;                    // positions 0 … whose logits were asked for
    TimePoint arrival;
    TimePoint first_scheduled;
    TimePoint first_token;
    TimePoint last_token;

    [[nodiscard]] uint32_t output_tokens() const {
      return static_cast<uint32_t>(tokens.size()) - prompt_tokens;
    }
    [[nodiscard]] uint32_t limit() const { return prompt_tokens + sampling.max_tokens; }
  };

  // What a row of a batch is wanted for.
  struct RowPurpose {
    uint32_t entry = 0;       // of the plan
    uint32_t next_token = 0;  // samples: 0; else the prompt position the row gives its probability
  };
  // A plan and its batch, which goes by teams, from Schedule to Commit; memory is used again.
  struct Flight {
    Plan plan;
    std::vector<int32_t> tokens;
    std::vector<BatchSequence> sequences;
    std::vector<WantedRow> wanted;
    std::vector<RowPurpose> purposes;  // of `wanted`
    std::vector<EntryResult> results;  // of the plan's entries
  };

  static uint32_t PrefillTokensOf(uint32_t budget, uint32_t plans);
  [[nodiscard]] SchedulerConfig SchedulerConfigOf(const EngineConfig& config) const;
  bool NameNextBlock(Live* live);
  Status Launch();
  void NotePlan(const Plan& plan, TimePoint now);
  void BuildBatch(Flight* flight);
  void AddTeam(uint32_t team, Flight* flight);
  void WantPromptRows(const PlanEntry& entry, uint32_t index, uint32_t offset, Flight* flight);
  Status Land(Outputs* outputs);
  Status TakeRow(const RowPurpose& purpose, const RowResult& result, Outputs* outputs);
  EntryResult TakeToken(SequenceHandle handle, const RowResult& result, Outputs* outputs);
  void Commit(Flight* flight);
  void NoteToken(Live* live, TimePoint now);
  void Finish(SequenceHandle handle, FinishReason reason);
  void Report(const Live& live, FinishReason reason) const;
  void RefreshLevels();

  const EngineConfig config_;
  Executor* const executor_;
  EngineObserver* const observer_;
  const Clock clock_;
  const uint32_t vocab_size_;
  const uint32_t max_sequences_;  // of a team

  Scheduler scheduler_;
  BlockHasher hasher_;
  Sampler sampler_;
  LogprobCalculator logprobs_;
  std::vector<Live> live_;
  std::unordered_map<SequenceId, SequenceHandle> handles_;
  EngineStats stats_;

  std::vector<Flight> flights_;  // a ring: the executor's room
  size_t oldest_ = 0;
  size_t under_way_ = 0;
  double sampling_s_ = 0;          // of the batch whose results are taken
  bool lost_ = false;              // a step failed: nobody will hear of what is under way
  std::vector<float> raw_logits_;  // [vocab_size], a row before its rules
  std::vector<BlockHash> names_;   // of a sequence that is being added
};

}  // namespace cleave

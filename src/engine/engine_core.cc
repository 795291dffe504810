#include "engine/engine_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "engine/stop_check.h"

namespace cleave {
namespace {

bool AllKnown(std::span<const int32_t> ids, uint32_t vocab_size) {
  return std::all_of(ids.begin(), ids.end(), [vocab_size](int32_t id) {
    return id >= 0 && static_cast<uint32_t>(id) < vocab_size;
  });
}

Status NoTokenError(const SamplingParams& p) {
  if (p.allowed_token_ids.empty() && p.bad_words.empty() && p.logit_bias.empty() &&
      p.min_tokens == 0) {
    return Internal("the model gave no logit that is a number");
  }
  return InvalidArgument(
      "no token is left to sample; allow more with allowed_token_ids, bad_words, logit_bias or "
      "min_tokens");
}

SchedulerConfig PoolOf(const EngineConfig& config) {
  SchedulerConfig s;
  s.block_size = config.block_size;
  s.num_blocks = config.num_blocks;
  s.teams = config.teams;
  s.kv_partitions = config.kv_partitions;
  return s;
}

// A sequence that could never run, however empty the pool is.
Status DoesNotFit(const EngineConfig& config, uint32_t limit) {
  const SchedulerConfig pool = PoolOf(config);
  const std::string where =
      config.kv_partitions == 1
          ? fmt::format(", {} pool has {}", config.teams == 1 ? "the" : "a team's",
                        pool.blocks_each())
          : fmt::format(" in the first of {} ranks that share its positions, each has {}",
                        config.kv_partitions, pool.blocks_each());
  return InvalidArgument(fmt::format(
      "the request's {} tokens need {} KV blocks of {} tokens{}: at most {} tokens fit; lower "
      "max_tokens or raise --kv-cache-memory-bytes",
      limit, Scheduler::BlocksFor(limit, pool, 0), config.block_size, where,
      Scheduler::LongestLimit(pool)));
}

// The output of a sequence that ends outside a step.
SequenceOutput Ending(SequenceId id, uint32_t cached_tokens, FinishReason reason) {
  SequenceOutput output;
  output.id = id;
  output.cached_tokens = cached_tokens;
  output.finish = reason;
  return output;
}

}  // namespace

Status CheckSequence(const EngineConfig& config, uint32_t vocab_size, const SequenceSpec& spec) {
  const uint64_t prompt = spec.prompt.size();
  const uint64_t limit = prompt + spec.sampling.max_tokens;
  if (prompt == 0) return InvalidArgument("the prompt is empty; at least one token is needed");
  if (spec.sampling.max_tokens == 0) return InvalidArgument("max_tokens must be at least 1, got 0");
  if (prompt >= config.max_model_len || limit > config.max_model_len) {
    return InvalidArgument(fmt::format(
        "{} prompt tokens and max_tokens {} make {}, above the context of {} tokens; shorten the "
        "prompt, lower max_tokens or raise --max-model-len",
        prompt, spec.sampling.max_tokens, limit, config.max_model_len));
  }
  if (!Scheduler::FitsAlone(static_cast<uint32_t>(limit), PoolOf(config))) {
    return DoesNotFit(config, static_cast<uint32_t>(limit));
  }
  if (!AllKnown(spec.prompt, vocab_size) || !AllKnown(spec.output, vocab_size)) {
    return InvalidArgument(
        fmt::format("a token id is outside the vocabulary of {} tokens", vocab_size));
  }
  return OkStatus();
}

EngineCore::EngineCore(const EngineConfig& config, Executor* executor, EngineObserver* observer,
                       Clock clock, Isa isa, const BlockHash& root)
    : config_(config),
      executor_(executor),
      observer_(observer),
      clock_(clock),
      vocab_size_(executor->vocab_size()),
      max_sequences_(std::min(executor->max_sequences(), config.max_num_seqs)),
      scheduler_(SchedulerConfigOf(config)),
      hasher_(root),
      sampler_(isa, vocab_size_, config.eos_token_ids),
      logprobs_(isa, vocab_size_),
      flights_(executor->max_in_flight()),
      raw_logits_(vocab_size_) {
  const uint32_t sequences = config.teams * max_sequences_;
  const size_t tokens = size_t{config.teams} * executor->max_batch_tokens();
  for (Flight& flight : flights_) {
    flight.plan.Reserve(sequences);
    flight.tokens.reserve(tokens);
    flight.sequences.reserve(sequences);
    flight.wanted.reserve(tokens + sequences);
    flight.purposes.reserve(tokens + sequences);
    flight.results.reserve(sequences);
  }
  stats_.num_blocks = config.num_blocks;
  stats_.last_progress = clock();
}

// A pipeline fills and drains with its first and last plans: prompts go through it in so many
// plans that this is little, none smaller than a matrix is worth.
uint32_t EngineCore::PrefillTokensOf(uint32_t budget, uint32_t plans) {
  constexpr uint32_t kPlansAStage = 2;
  constexpr uint32_t kFewest = 128;
  if (plans <= 1) return 0;
  return std::min(budget, std::max(kFewest, CeilDiv(budget, kPlansAStage * plans)));
}

SchedulerConfig EngineCore::SchedulerConfigOf(const EngineConfig& config) const {
  SchedulerConfig s = PoolOf(config);
  s.max_num_seqs = max_sequences_;
  s.max_num_batched_tokens = std::min(config.max_num_batched_tokens, executor_->max_batch_tokens());
  s.long_prefill_token_threshold = config.long_prefill_token_threshold;
  s.max_waiting = config.max_num_queued_reqs;
  s.max_plans_in_flight = executor_->max_in_flight();
  s.samples_in_flight = SamplesInFlight::kAwait;
  s.max_prefill_tokens = PrefillTokensOf(s.max_num_batched_tokens, s.max_plans_in_flight);
  return s;
}

// ---- In and out

void EngineCore::Add(SequenceSpec&& spec, Outputs* outputs) {
  CLEAVE_CHECK(!handles_.contains(spec.id));
  Live live;
  live.id = spec.id;
  live.active = true;
  live.sampling = std::move(spec.sampling);
  live.salt = std::move(spec.cache_salt);
  live.tokens = std::move(spec.prompt);
  live.prompt_tokens = static_cast<uint32_t>(live.tokens.size());
  live.tokens.insert(live.tokens.end(), spec.output.begin(), spec.output.end());
  live.arrival = spec.arrival == TimePoint() ? clock_() : spec.arrival;
  if (live.output_tokens() >= live.sampling.max_tokens) {
    outputs->push_back(Ending(live.id, 0, FinishReason::kLength));
    return Report(live, FinishReason::kLength);
  }
  names_.clear();
  if (config_.enable_prefix_caching) {
    while (NameNextBlock(&live)) names_.push_back(live.name);
  }
  SequenceFacts facts;
  facts.tag = live.id;
  facts.tokens = static_cast<uint32_t>(live.tokens.size());
  facts.limit = live.limit();
  facts.priority = config_.policy == SchedulingPolicy::kPriority ? spec.priority : 0;
  facts.arrival = live.arrival.time_since_epoch().count();
  if (spec.replica >= 0) facts.team = spec.replica % static_cast<int32_t>(config_.teams);
  facts.lookup = live.sampling.prompt_logprobs >= 0 ? CacheLookup::kNo : CacheLookup::kYes;
  facts.names = names_;
  const SequenceHandle handle = scheduler_.Add(facts);
  handles_[live.id] = handle;
  if (handle >= live_.size()) live_.resize(handle + 1);
  live_[handle] = std::move(live);
  RefreshLevels();
}

// Names the next full block; false when its tokens are not all known.
bool EngineCore::NameNextBlock(Live* live) {
  const size_t begin = static_cast<size_t>(live->named) * config_.block_size;
  if (begin + config_.block_size > live->tokens.size()) return false;
  const auto block = std::span<const int32_t>(live->tokens).subspan(begin, config_.block_size);
  live->name =
      live->named == 0 ? hasher_.First(block, live->salt) : hasher_.Next(live->name, block);
  ++live->named;
  return true;
}

void EngineCore::Abort(SequenceId id, Outputs* outputs) {
  const auto it = handles_.find(id);
  if (it == handles_.end()) return;
  const SequenceHandle handle = it->second;
  outputs->push_back(Ending(id, live_[handle].cached_tokens, FinishReason::kAbort));
  scheduler_.Abort(handle);
  Finish(handle, FinishReason::kAbort);
  RefreshLevels();
}

void EngineCore::EndAll(FinishReason reason, const Status& error, Outputs* outputs) {
  for (SequenceHandle handle = 0; handle < live_.size(); ++handle) {
    if (!live_[handle].active) continue;
    outputs->push_back(Ending(live_[handle].id, live_[handle].cached_tokens, reason));
    if (reason == FinishReason::kError) outputs->back().error = error;
    scheduler_.Abort(handle);
    Finish(handle, reason);
  }
  while (lost_ && under_way_ > 0) {
    flights_[oldest_].results.assign(flights_[oldest_].plan.entries.size(), EntryResult::kEnded);
    Commit(&flights_[oldest_]);
  }
  RefreshLevels();
}

// The scheduler has let the sequence go; tells the observer and forgets it.
void EngineCore::Finish(SequenceHandle handle, FinishReason reason) {
  Report(live_[handle], reason);
  handles_.erase(live_[handle].id);
  live_[handle] = Live();
}

void EngineCore::Report(const Live& live, FinishReason reason) const {
  if (observer_ == nullptr) return;
  const TimePoint now = clock_();
  const bool scheduled = live.first_scheduled != TimePoint();
  EngineObserver::Finished f;
  f.reason = reason;
  f.prompt_tokens = live.prompt_tokens;
  f.output_tokens = live.output_tokens();
  f.cached_tokens = live.cached_tokens;
  f.preemptions = live.preemptions;
  f.max_tokens = live.sampling.max_tokens;
  f.queue_s = SecondsBetween(live.arrival, scheduled ? live.first_scheduled : now);
  if (scheduled) {
    f.prefill_s = SecondsBetween(live.first_scheduled, live.sampled > 0 ? live.first_token : now);
  }
  if (live.sampled > 0) f.decode_s = SecondsBetween(live.first_token, live.last_token);
  f.e2e_s = SecondsBetween(live.arrival, now);
  f.id = live.id;
  observer_->OnFinished(f);
}

void EngineCore::RefreshLevels() {
  stats_.running = scheduler_.running();
  stats_.waiting = scheduler_.waiting();
  stats_.waiting_tokens = scheduler_.waiting_tokens();
  stats_.used_blocks = config_.num_blocks - scheduler_.free_blocks();
}

// ---- A step

Status EngineCore::Step(Outputs* outputs) {
  if (idle()) return OkStatus();
  const TimePoint begin = clock_();
  Status status = Launch();
  if (status.ok()) status = Land(outputs);
  lost_ = !status.ok();
  RETURN_IF_ERROR(status);
  stats_.last_progress = clock_();
  stats_.step_s += SecondsBetween(begin, stats_.last_progress);
  ++stats_.steps;
  RefreshLevels();
  return OkStatus();
}

// Plans and submits until the executor has all it works on at once, or nothing more can run.
Status EngineCore::Launch() {
  while (under_way_ < flights_.size() && !handles_.empty()) {
    Flight& flight = flights_[(oldest_ + under_way_) % flights_.size()];
    const TimePoint now = clock_();
    const bool any = scheduler_.Schedule(&flight.plan);
    NotePlan(flight.plan, now);
    if (!any) break;
    ++under_way_;
    BuildBatch(&flight);
    Status status = executor_->Submit({flight.tokens, flight.sequences, flight.wanted});
    stats_.forward_s += SecondsBetween(now, clock_());
    RETURN_IF_ERROR(status);
  }
  if (under_way_ > 0) return OkStatus();
  return Internal(fmt::format("nothing can run, though {} wait", scheduler_.waiting()));
}

void EngineCore::NotePlan(const Plan& plan, TimePoint now) {
  for (const Admission& a : plan.admitted) {
    Live& live = live_[a.sequence];
    if (a.resumed) continue;
    live.first_scheduled = now;
    live.cached_tokens = std::min(a.cached_tokens, live.prompt_tokens);
    live.tokens.reserve(live.limit());
    stats_.prompt_tokens += live.prompt_tokens;
    if (!config_.enable_prefix_caching || live.sampling.prompt_logprobs >= 0) continue;
    stats_.prefix_queries += a.tokens;
    stats_.prefix_hits += a.cached_tokens;
  }
  for (const Preemption& p : plan.preempted) {
    ++live_[p.sequence].preemptions;
    ++stats_.preemptions;
    if (observer_ != nullptr) observer_->OnPreempted(p.tag, p.computed_tokens);
  }
}

void EngineCore::BuildBatch(Flight* flight) {
  flight->tokens.clear();
  flight->sequences.clear();
  flight->wanted.clear();
  flight->purposes.clear();
  for (uint32_t team = 0; team < config_.teams; ++team) AddTeam(team, flight);
}

// Its entries of the plan.
void EngineCore::AddTeam(uint32_t team, Flight* flight) {
  for (uint32_t i = 0; i < flight->plan.entries.size(); ++i) {
    const PlanEntry& e = flight->plan.entries[i];
    if (e.team != team) continue;
    const auto offset = static_cast<uint32_t>(flight->tokens.size());
    const Live& live = live_[e.sequence];
    const auto begin = live.tokens.begin() + e.first_position;
    flight->tokens.insert(flight->tokens.end(), begin, begin + e.tokens);
    flight->sequences.push_back({e.first_position, e.tokens, e.block_table, e.team});
    WantPromptRows(e, i, offset, flight);
    if (!e.samples) continue;
    const bool highest =
        live.sampling.logprobs < 0 && Sampler::TakesHighest(live.sampling, live.output_tokens());
    flight->wanted.push_back({offset + e.tokens - 1, highest ? RowUse::kHighest : RowUse::kLogits});
    flight->purposes.push_back({i, 0});
  }
}

// The logits of position p give prompt token p + 1 its probability. After a preemption positions
// come again; those that were asked for already are passed over.
void EngineCore::WantPromptRows(const PlanEntry& entry, uint32_t index, uint32_t offset,
                                Flight* flight) {
  Live& live = live_[entry.sequence];
  if (live.sampling.prompt_logprobs < 0) return;
  const uint32_t end = std::min(entry.first_position + entry.tokens, live.prompt_tokens - 1);
  if (live.prompt_rows < entry.first_position) return;
  for (; live.prompt_rows < end; ++live.prompt_rows) {
    flight->wanted.push_back({offset + live.prompt_rows - entry.first_position, RowUse::kLogits});
    flight->purposes.push_back({index, live.prompt_rows + 1});
  }
}

// The results of the oldest batch, and its commit.
Status EngineCore::Land(Outputs* outputs) {
  Flight& flight = flights_[oldest_];
  flight.results.assign(flight.plan.entries.size(), EntryResult::kGoesOn);
  outputs->reserve(outputs->size() + flight.plan.entries.size());
  const TimePoint begin = clock_();
  sampling_s_ = 0;
  // Two pointers: what a std::function holds without memory of its own.
  RETURN_IF_ERROR(executor_->Collect([this, outputs](uint32_t index, const RowResult& result) {
    const TimePoint taken = clock_();
    Status status = TakeRow(flights_[oldest_].purposes[index], result, outputs);
    sampling_s_ += SecondsBetween(taken, clock_());
    return status;
  }));
  stats_.forward_s += SecondsBetween(begin, clock_()) - sampling_s_;
  if (observer_ != nullptr) observer_->OnStep(flight.plan.tokens);
  Commit(&flight);
  return OkStatus();
}

Status EngineCore::TakeRow(const RowPurpose& purpose, const RowResult& result, Outputs* outputs) {
  Flight& flight = flights_[oldest_];
  const SequenceHandle handle = flight.plan.entries[purpose.entry].sequence;
  Live& live = live_[handle];
  if (!live.active) return OkStatus();  // it ended while the batch was under way
  if (purpose.next_token == 0) {
    flight.results[purpose.entry] = TakeToken(handle, result, outputs);
    return OkStatus();
  }
  live.prompt_logprobs.reserve(live.prompt_tokens - 1);
  live.prompt_logprobs.push_back(
      logprobs_.Calculate(result.logits, live.tokens[purpose.next_token],
                          static_cast<uint32_t>(live.sampling.prompt_logprobs)));
  return OkStatus();
}

void EngineCore::Commit(Flight* flight) {
  scheduler_.Commit(flight->plan, flight->results);
  oldest_ = (oldest_ + 1) % flights_.size();
  --under_way_;
  for (size_t i = 0; i < flight->results.size(); ++i) {
    const SequenceHandle handle = flight->plan.entries[i].sequence;
    if (flight->results[i] == EntryResult::kEnded && live_[handle].active) {
      Finish(handle, live_[handle].ending);
    }
  }
}

EntryResult EngineCore::TakeToken(SequenceHandle handle, const RowResult& result,
                                  Outputs* outputs) {
  Live& live = live_[handle];
  SequenceOutput& output = outputs->emplace_back();
  output.id = live.id;
  output.cached_tokens = live.cached_tokens;
  const bool with_logprobs = live.sampling.logprobs >= 0;
  if (with_logprobs) std::copy_n(result.logits, vocab_size_, raw_logits_.begin());
  const int32_t token =
      result.logits == nullptr
          ? result.highest.id
          : sampler_.Sample({&live.sampling, live.tokens, live.prompt_tokens}, result.logits);
  if (token < 0) {
    output.finish = live.ending = FinishReason::kError;
    output.error = NoTokenError(live.sampling);
    return EntryResult::kEnded;
  }
  if (with_logprobs) {
    output.logprobs.push_back(logprobs_.Calculate(raw_logits_.data(), token,
                                                  static_cast<uint32_t>(live.sampling.logprobs)));
  }
  live.tokens.push_back(token);
  output.tokens.push_back(token);
  output.prompt_logprobs = std::exchange(live.prompt_logprobs, {});
  NoteToken(&live, clock_());
  const StopCheck stop =
      CheckStop(live.sampling, config_.eos_token_ids, config_.max_model_len, token,
                live.output_tokens(), static_cast<uint32_t>(live.tokens.size()));
  output.finish = live.ending = stop.reason;
  output.stop_token_id = stop.stop_token_id;
  if (stop.reason != FinishReason::kNone) return EntryResult::kEnded;
  if (config_.enable_prefix_caching && NameNextBlock(&live)) {
    scheduler_.AppendName(handle, live.name);
  }
  return EntryResult::kGoesOn;
}

void EngineCore::NoteToken(Live* live, TimePoint now) {
  ++stats_.generation_tokens;
  if (live->sampled++ == 0) {
    live->first_token = now;
    if (observer_ != nullptr) observer_->OnFirstToken(SecondsBetween(live->arrival, now));
  } else if (observer_ != nullptr) {
    observer_->OnNextToken(SecondsBetween(live->last_token, now));
  }
  live->last_token = now;
}

}  // namespace cleave

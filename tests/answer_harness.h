#pragma once
// Tests only: the same requests, run in different ways, and what came of them.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/open_model.h"

namespace cleave {

enum class Sanitizer { kNone, kAddress, kThread };

// Of this build.
#if defined(__SANITIZE_THREAD__)
inline constexpr Sanitizer kSanitizer = Sanitizer::kThread;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr Sanitizer kSanitizer = Sanitizer::kAddress;
#else
inline constexpr Sanitizer kSanitizer = Sanitizer::kNone;
#endif

// A sanitizer costs 5 to 50 times the time and asks for every path, not for every request: what a
// test counts by is less there.
constexpr uint32_t PerBuild(uint32_t plain, uint32_t sanitized) {
  return kSanitizer == Sanitizer::kNone ? plain : sanitized;
}

// How a set of requests is run; none of it may show in the answers, but for the cache's type.
struct Way {
  const char* name;
  uint32_t threads = 2;
  const char* isa = "";        // "" = the best
  uint32_t max_num_seqs = 32;  // 1 = each alone
  uint32_t chunk = 0;          // prompt tokens of a step; 0 = whole
  uint32_t batched_tokens = 512;
  bool prefix_caching = false;
  uint32_t rounds = 1;          // the last one's answers count: later ones find their prefix cached
  uint32_t blocks_share = 100;  // of what all requests together need, in per cent
  uint32_t teams = 1;           // of who runs it
  uint32_t kv_partitions = 1;   // cp · dcp of who runs it
  const char* kv_cache_dtype = "auto";
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<int32_t> logged_ids;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

struct Outcome {
  std::map<SequenceId, Answer> answers;
  EngineStats stats;
  ExpertTokens expert_tokens;  // that this process's rank counted
};

using Requests = std::vector<SequenceSpec>;

// From a model's file and its plan to what runs it.
using ExecutorMaker =
    std::function<Result<std::unique_ptr<Executor>>(const std::string& model, const ModelPlan&)>;

// One rank in this thread: what cleave serve does without a split.
Result<std::unique_ptr<Executor>> MakeInline(const std::string& model, const ModelPlan& plan);

// Runs the requests through an engine. Failures are the test's.
Outcome RunRequests(const std::string& model, const Way& way, const Requests& requests,
                    const ExecutorMaker& make = &MakeInline);

// Greedy and sampled, short and long, with and without penalties and log-probabilities; some share
// a prefix.
Requests MakeRequests(uint32_t count, uint32_t vocab, uint32_t max_tokens);

// The first `count` of them begin with so many tokens more, of which the first half is the same.
void Lengthen(uint32_t count, uint32_t tokens, uint32_t vocab, Requests* requests);

// Every request has the same answer in both; nothing is left running.
void ExpectEqualAnswers(const Outcome& plain, const Outcome& other, const std::string& what);

}  // namespace cleave

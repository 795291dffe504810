#pragma once
// From flags to a running executor: the cut, and types, sizes and threads of a rank, chosen once.
//
//   ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(path));
//   ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(*checkpoint, settings));    // nothing loaded yet
//   ASSIGN_OR_RETURN(auto executor, LoadModel(std::move(checkpoint), plan, progress));
//
// Main thread. Fails with kInvalidArgument (a flag's value, a cut that can not be) or
// kResourceExhausted (what does not fit), before anything is loaded.

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "engine/inline_executor.h"
#include "engine/model_bytes.h"
#include "engine/sizing.h"

namespace cleave {

struct ModelSettings {
  std::string dtype = "auto";  // auto, float32/float, float16/half, bfloat16
  // auto, f32/float32, f16/float16, bf16/bfloat16, int8/int8_per_token_head
  std::string kv_cache_dtype = "auto";
  uint32_t block_size = 16;
  std::optional<uint32_t> max_model_len;
  uint32_t max_num_seqs = 64;
  uint32_t max_num_batched_tokens = 512;
  double memory_utilization = 0.92;
  std::optional<uint64_t> kv_cache_memory_bytes;
  uint32_t threads = 0;            // of a rank; 0 = the usable cores, shared out
  std::string repacked_cache_dir;  // where repacked weights are kept; empty = nowhere
  Split split;
};

struct ModelPlan {
  RankOptions executor;  // of every rank; cpus are the launcher's to fill in
  Layout layout;
  ModelBytes bytes;
  Sizing sizing;  // what all ranks can hold
};

Result<ModelPlan> PlanModel(const Checkpoint& checkpoint, const ModelSettings& settings);

// A plan without a cut, in this process.
Result<std::unique_ptr<InlineExecutor>> LoadModel(std::unique_ptr<Checkpoint> checkpoint,
                                                  const ModelPlan& plan,
                                                  const LoadProgress& progress);

// One forward pass and a row of logits: fails unless every logit is a number.
Status SmokeForward(Executor* executor);

}  // namespace cleave

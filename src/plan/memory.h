#pragma once
// What a split takes of each device, and what is left for KV. The account is weights, KV, runtime,
// margin, in bytes of the rank with the least room:
//   budget   = utilization · memory of the device
//   runtime  = activations 2 · T · D · c(tp) + logits S · V · 4 / tp + graphs + context
//              + collectives
//   KV       = budget - weights - runtime - margin; tokens in blocks of 16
//
// c is 11, 6.5, 5, 5 at tp 1, 2, 4, 8, twice that with experts (AIConfigurator's). T and S are
// vLLM's defaults for the device's memory.
//
// In vLLM's dialect counts must divide and KV heads are copied where tp has more ranks; MLA's KV is
// on every rank, but for dcp. In cleave's, shares of weights and KV are the Layout's that the
// engine loads by, uneven ones too; the runtime is taken to be the same.
// Pure; any thread. Fails with kInvalidArgument or kUnsupported: why such a split cannot be. One
// that can be and does not fit is an answer, with its reason.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/device_facts.h"
#include "plan/model_facts.h"
#include "plan/weight_format.h"
#include "split/split.h"
#include "split/traffic.h"

namespace cleave {

struct MemorySettings {
  Dialect dialect = Dialect::kVllm;
  WeightFormat weights;
  // Of the whole model, where its files are known: in place of what the format gives.
  std::optional<uint64_t> weight_bytes;
  double kv_element_bytes = 2;
  double utilization = 0.92;
  uint32_t max_batched_tokens = 0;           // T; 0: the default
  uint32_t max_num_seqs = 0;                 // S; likewise
  std::optional<uint64_t> graph_bytes;       // 1 GiB, of experts 2
  std::optional<uint64_t> context_bytes;     // 0.5 GiB
  std::optional<uint64_t> collective_bytes;  // NCCL: none of one rank, 342 MiB of two, 392 of more
  std::optional<uint64_t> margin_bytes;      // 2 % of the device, at least 1 GiB
};

struct RequestShape {
  uint64_t prompt_tokens = 4096;
  uint64_t output_tokens = 512;
  uint64_t concurrency = 1;
  [[nodiscard]] uint64_t tokens() const { return prompt_tokens + output_tokens; }
};

struct MemoryAccount {
  Split split;
  uint32_t rank = 0;  // with the least room
  uint64_t device_bytes = 0;
  uint64_t budget_bytes = 0;
  uint64_t weight_bytes = 0;
  int64_t kv_bytes = 0;  // below 0: what is missing
  uint64_t activation_bytes = 0;
  uint64_t logits_bytes = 0;
  uint64_t graph_bytes = 0;
  uint64_t context_bytes = 0;
  uint64_t collective_bytes = 0;
  uint64_t margin_bytes = 0;
  double kv_bytes_per_token = 0;  // of the rank
  uint64_t kv_tokens = 0;         // of all replicas; where windows are not full
  uint64_t context_limit = 0;     // of one request, the model's limit respected
  uint64_t requests = 0;          // of the shape, without preemption, in all replicas
  bool fits = false;
  std::string reason;  // why not; or what to expect

  [[nodiscard]] uint64_t runtime_bytes() const {
    return activation_bytes + logits_bytes + graph_bytes + context_bytes + collective_bytes;
  }
};

// What the settings and the shape of requests may be.
Status CheckSettings(const MemorySettings& settings, const RequestShape& request);

Result<MemoryAccount> AccountOf(const ModelFacts& model, const DeviceFacts& device,
                                const Split& split, const MemorySettings& settings,
                                const RequestShape& request);

// Changes of one setting that make it fit, each tried; smallest first: fp8 KV, a shorter context,
// fewer bits, more ranks.
std::vector<std::string> ChangesThatFit(const ModelFacts& model, const DeviceFacts& device,
                                        const Split& split, const MemorySettings& settings,
                                        const RequestShape& request);

// Every dp · pp · tp (ep = tp too, of models with experts) that uses all devices of the cluster,
// those that fit first, by KV tokens; tp inside a node. Those that cannot be are left out.
std::vector<MemoryAccount> RankByMemory(const ModelFacts& model, const ClusterFacts& cluster,
                                        const MemorySettings& settings,
                                        const RequestShape& request);

}  // namespace cleave

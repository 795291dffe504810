#pragma once
// Layout report: who holds what and what a step moves, as text and as JSON, before anything is
// loaded (`cleave serve --dry-run`). Values in, strings out; any thread.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "split/layout.h"
#include "split/traffic.h"

namespace cleave {

// Bytes of the whole model in memory, in the parts that a cut shares out.
struct LayerBytes {
  uint64_t query = 0;   // Q and O with their biases: by query heads
  uint64_t kv = 0;      // K and V: by KV heads
  uint64_t ffn = 0;     // gate, up and down; of all experts together
  uint64_t common = 0;  // norms, router: on every rank of the stage
};
struct ModelBytes {
  std::vector<LayerBytes> layers;  // [num_layers]
  uint64_t embedding = 0;          // by vocabulary rows, on the first stage
  uint64_t head = 0;               // by vocabulary rows, on the last stage's first cp ranks
  uint64_t final_norm = 0;         // there too
};
// Weights that `rank` holds. bytes.layers has an entry for each layer of the layout.
uint64_t WeightBytesOf(const Layout& layout, const RankLayout& rank, const ModelBytes& bytes);

struct LayoutReport {
  // Both outlive the report.
  const Layout* layout = nullptr;
  const ModelBytes* bytes = nullptr;  // null: nothing is said about memory
  // Key and value of one KV head at one position, as the cache stores them.
  uint64_t kv_head_bytes = 0;
  TrafficOptions traffic;
  std::vector<LayerWires> wires;  // of the model's layers; empty: all take floats
  uint32_t prefill_tokens = 512;
};

// What all ranks of a replica hand over in one step of `tokens` tokens and one greedy row.
// Tokens go to all experts alike, and are of one request, in the first team.
TrafficTotals StepTotals(const Layout& layout, uint32_t tokens, const TrafficOptions& options,
                         std::span<const LayerWires> wires = {}, StepKind kind = StepKind::kDecode);

// Several lines: a table of ranks, then traffic of a decoded token and of a prefill.
std::string ReportText(const LayoutReport& report);
// {"split": {"dp", …}, "world_size", "replicated_kv_heads",
//  "replicated_kv_bytes_per_token_and_layer", with redundant experts "copied_experts":
//  [{"expert", "ep_ranks": […]}…], "attention_imbalance", "ffn_imbalance", "tp_ceiling",
//  "ranks": [{"rank", "pp", with teams "team", "tp", "ep", "cp", "layers": [begin, end], "q_heads",
//  "kv_heads",
//             "ffn_columns", "vocab_rows", "experts", "weight_bytes", "kv_bytes_per_token"}],
//  "traffic": {"whole", "decode": {"tokens", "axes": [{"axis", "ops": [{"op", "calls", "bytes"}…
//              "prefill": likewise}}
std::string ReportJson(const LayoutReport& report);

}  // namespace cleave

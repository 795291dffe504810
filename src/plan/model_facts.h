#pragma once
// ModelFacts: the shape of a model for planning, also of families that the engine does not run.
// What follows from it alone: parameters and KV bytes, exact. From the catalogue (catalogue.h), a
// config.json (hf_facts.h) or a GGUF (gguf_facts.h). Pure values; any thread.
//
// Parameters of a layer, of D hidden, H query heads, G KV heads of d:
//   grouped   Q and O: 2 · D · H · d (3, where an output gate stands beside Q); K, V: 2 · D · G · d
//   MLA       q: D · r + r · H · (n + p), without rank D · H · (n + p); compressed KV: D · (c + p);
//             c · H · (n + v) and O: H · v · D, of c KV rank, r q rank, p rope, n nope, v value
//   linear    D · (2 · k + 2 · v + 2 · hᵥ) + v · D, and the convolution's (2 · k + v) · width, of
//             k = key heads · key dim, v = value heads hᵥ · value dim
//   dense     3 · D · F; experts: 3 · D · Fₑ each, shared ones too, and the router's D · E
// Norms and biases (less than one in ten thousand) and vision towers are not counted.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "split/model_shape.h"

namespace cleave {

struct MlaFacts {
  uint32_t q_rank = 0;   // 0: one matrix from hidden
  uint32_t kv_rank = 0;  // 0: no MLA
  uint32_t rope_dim = 0;
  uint32_t nope_dim = 0;
  uint32_t value_dim = 0;
};

struct LinearFacts {
  uint32_t key_heads = 0;  // 0: no linear attention
  uint32_t value_heads = 0;
  uint32_t key_dim = 0;
  uint32_t value_dim = 0;
  uint32_t conv_width = 0;
};

struct LayerFacts {
  uint32_t window = 0;  // positions a query sees; 0: all
  bool linear = false;  // a state in place of KV
  bool experts = false;
  bool operator==(const LayerFacts&) const = default;
};

// Parameters of one layer by how a cut shares them out.
struct LayerParameters {
  uint64_t query = 0;    // by query heads: Q, O, and of linear attention all
  uint64_t kv = 0;       // by KV heads: K and V
  uint64_t common = 0;   // on every rank: MLA's compressions, the router
  uint64_t dense = 0;    // by FFN columns: a dense layer's, shared experts
  uint64_t experts = 0;  // routed experts, all together
  [[nodiscard]] uint64_t total() const { return query + kv + common + dense + experts; }
};

struct ModelFacts {
  // Each is at most so much, which keeps every sum within 64 bits.
  static constexpr uint32_t kMaxLayers = 1024;
  static constexpr uint32_t kMaxWidth = 1U << 18U;  // hidden, FFN
  static constexpr uint32_t kMaxHeads = 4096;
  static constexpr uint32_t kMaxHeadWidth = 4096;
  static constexpr uint32_t kMaxExperts = 2048;
  static constexpr uint32_t kMaxVocab = 1U << 24U;

  std::string name;
  std::vector<std::string> also;  // other names of the same shape
  uint32_t hidden_size = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;  // of MLA: 1
  uint32_t head_dim = 0;      // of MLA: nope + rope
  uint32_t ffn_size = 0;      // of dense layers; 0 where there are none
  uint32_t vocab_size = 0;
  uint32_t max_context = 0;
  bool tied_embeddings = false;
  bool output_gate = false;
  uint32_t num_experts = 0;
  uint32_t experts_per_token = 0;
  uint32_t expert_ffn_size = 0;
  uint32_t shared_ffn_size = 0;  // of shared experts together
  MlaFacts mla;
  LinearFacts linear;
  uint32_t index_bytes = 0;  // of a sparse indexer's cache, for a token and layer
  std::vector<LayerFacts> layers;
  std::string stored_format = "bf16";  // weight_format.h
  std::string published_total;         // as its maker says; may be empty
  std::string source;
  std::string note;

  [[nodiscard]] uint32_t num_layers() const { return static_cast<uint32_t>(layers.size()); }
  [[nodiscard]] LayerParameters ParametersOf(const LayerFacts& layer) const;
  [[nodiscard]] uint64_t EmbeddingParameters() const;
  // Of embedding, layers and head; tied ones count once.
  [[nodiscard]] uint64_t TotalParameters() const;
  // Those a token goes through, with embedding and head.
  [[nodiscard]] uint64_t ActiveParameters() const;
};

// kInvalidArgument: the field, its value and its limit.
Status CheckFacts(const ModelFacts& model);

// Key and value of one token in one layer that keeps them, all heads, in `element_bytes` each;
// without an indexer's.
double KvElements(const ModelFacts& model);
// Of all layers; windows are not full yet.
double KvBytesPerToken(const ModelFacts& model, double element_bytes);
// Of one sequence's linear layers, whatever its length: a matrix of fp32 for each value head, and
// the convolution's last inputs in 2 bytes.
uint64_t StateBytesOfLayer(const ModelFacts& model);
// Of a sequence of so many tokens, with indexer and states.
double SequenceBytes(const ModelFacts& model, double element_bytes, uint64_t tokens);

// What the engine would cut, of a model it could run; kUnsupported names what it cannot.
Result<ModelShape> EngineShape(const ModelFacts& model);

// 70.55 for 70552387584: billions with two digits, halves away from zero.
double InBillions(uint64_t parameters);

}  // namespace cleave

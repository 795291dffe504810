#pragma once
// ModelConfig: the numbers of one decoder-only model, whatever file they came from.
//
// One decoder serves every family; a family is a set of these values, never a branch by name in
// the forward pass. Filled by the checkpoint readers (model/format), checked by Validate, then
// constant. Any thread.
//
// Shapes used throughout: T tokens, D hidden_size, H query heads, G KV heads, d head_dim,
// F ffn_size, V vocab_size, E num_experts.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace cleave {

enum class Family { kLlama, kMistral, kQwen2, kQwen3, kGemma3, kMixtral, kQwen3Moe };

enum class Activation { kSilu, kGeluTanh };

// How rotary frequencies are stretched beyond the trained context.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kFactors };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  // kLlama3 only (transformers' "llama3" rope type).
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  uint32_t original_context = 8192;
  // kFactors only: the frequency of rotary pair i is divided by freq_factors[i] (d/2 of them). GGUF
  // files of Llama 3.1 and later hold these instead of the four numbers above.
  std::vector<float> freq_factors;

  bool operator==(const RopeScaling&) const = default;
};

struct LayerConfig {
  // Tokens a query sees, itself counted; 0 means all.
  uint32_t window = 0;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
};

struct ModelConfig {
  // Readers check it before they make room for the layers a file announces.
  static constexpr uint32_t kMaxLayers = 1024;
  static constexpr uint32_t kMaxExperts = 2048;
  static constexpr uint32_t kMaxExpertsPerToken = 64;

  Family family = Family::kLlama;
  std::string architecture;  // as the file names it

  uint32_t hidden_size = 0;   // D
  uint32_t num_heads = 0;     // H
  uint32_t num_kv_heads = 0;  // G, divides H
  uint32_t head_dim = 0;      // d, even
  uint32_t ffn_size = 0;      // F of a dense layer, or of each expert
  uint32_t vocab_size = 0;    // V: rows of the embedding
  uint32_t max_position = 0;  // context the model was made for
  std::vector<LayerConfig> layers;

  uint32_t num_experts = 0;  // E in every layer; 0: all layers are dense
  uint32_t experts_per_token = 0;
  // Gates of a token's experts are divided by their sum (Mixtral, Qwen3-MoE with norm_topk_prob).
  bool norm_topk_prob = false;

  double norm_eps = 1e-5;
  double attention_scale = 0.0;  // multiplies q·k; usually 1/sqrt(d)
  double embedding_scale = 1.0;  // Gemma: sqrt(D) rounded to fp32, as an fp32 run has it
  Activation activation = Activation::kSilu;
  bool qkv_bias = false;             // Qwen2
  bool qk_norm = false;              // Qwen3, Gemma 3: RMS norm over each head of q and k
  bool post_norms = false;           // Gemma 3: norms after attention and after the FFN
  bool norm_plus_one = false;        // norm weights stored as w where 1 + w is meant (HF Gemma)
  bool tied_embeddings = false;      // the head is the embedding
  double final_logit_softcap = 0.0;  // 0 = none

  // Fails with kInvalidArgument, naming the field, its value and what would be valid.
  [[nodiscard]] Status Validate() const;

  [[nodiscard]] uint32_t num_layers() const { return static_cast<uint32_t>(layers.size()); }
  [[nodiscard]] bool has_experts() const { return num_experts > 0; }
  [[nodiscard]] uint32_t q_per_kv() const { return num_heads / num_kv_heads; }
};

// What generation_config.json or the GGUF says about stopping and default sampling.
struct GenerationDefaults {
  std::vector<int32_t> eos_token_ids;
  // Nothing = the file does not say.
  double temperature = -1.0;
  double top_p = -1.0;
  int32_t top_k = -1;
  double min_p = -1.0;
  double repetition_penalty = -1.0;
  int32_t max_new_tokens = -1;
};

}  // namespace cleave

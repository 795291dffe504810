#pragma once
// For tests: tiny whole models, D 8, H 2, G 1, F 6, as GGUF files and Hugging Face folders.

#include <string>
#include <vector>

#include "model/format/test_files.h"

namespace cleave::testing_files {

struct TinyOptions {
  std::string arch = "llama";
  uint32_t layers = 2;
  uint32_t head_dim = 4;
  uint32_t vocab = 0;  // rows of the embedding; 0: as many as tokens
  int64_t eos = 2;     // -1: none
  bool biases = false;
  bool qk_norm = false;
  bool post_norms = false;
  bool head = false;
  bool experts = false;  // leaves the FFN to the test
  std::vector<std::string> tokens = {"a", "b", "c"};
  std::string without = {};  // leaves this tensor out
  bool merges = true;
};

inline void AddTinyLayer(const TinyOptions& options, const std::string& prefix,
                         GgufWriter* writer) {
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& extents) {
    if (prefix + name != options.without) writer->F32(prefix + name, extents);
  };
  const uint64_t query = 2 * uint64_t{options.head_dim};
  const uint64_t key = options.head_dim;
  add("attn_norm.weight", {8});
  add("attn_q.weight", {8, query});
  add("attn_k.weight", {8, key});
  add("attn_v.weight", {8, key});
  add("attn_output.weight", {query, 8});
  add("ffn_norm.weight", {8});
  if (!options.experts) {
    add("ffn_gate.weight", {8, 6});
    add("ffn_up.weight", {8, 6});
    add("ffn_down.weight", {6, 8});
  }
  if (options.biases) {
    add("attn_q.bias", {query});
    add("attn_k.bias", {key});
    add("attn_v.bias", {key});
  }
  if (options.qk_norm) {
    add("attn_q_norm.weight", {key});
    add("attn_k_norm.weight", {key});
  }
  if (options.post_norms) {
    add("post_attention_norm.weight", {8});
    add("post_ffw_norm.weight", {8});
  }
}

inline GgufWriter TinyGguf(const TinyOptions& options) {
  GgufWriter writer;
  const std::string arch = options.arch + ".";
  writer.String("general.architecture", options.arch);
  writer.Uint(arch + "block_count", options.layers).Uint(arch + "embedding_length", 8);
  writer.Uint(arch + "attention.head_count", 2).Uint(arch + "attention.head_count_kv", 1);
  writer.Uint(arch + "attention.key_length", options.head_dim);
  writer.Uint(arch + "feed_forward_length", 6).Uint(arch + "context_length", 128);
  writer.Float(arch + "attention.layer_norm_rms_epsilon", 1e-5F);
  if (!options.tokens.empty()) {
    writer.String("tokenizer.ggml.model", "gpt2");
    writer.Strings("tokenizer.ggml.tokens", options.tokens);
    if (options.merges) writer.Strings("tokenizer.ggml.merges", {});
  }
  if (options.eos >= 0) {
    writer.Uint("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(options.eos));
  }
  const uint64_t vocab = options.vocab == 0 ? options.tokens.size() : options.vocab;
  if (options.without != "token_embd.weight") {
    writer.F32("token_embd.weight", {8, vocab == 0 ? 3 : vocab});
  }
  writer.F32("output_norm.weight", {8});
  if (options.head) writer.F32("output.weight", {8, vocab});
  if (options.layers > 100) return writer;
  for (uint32_t layer = 0; layer < options.layers; ++layer) {
    AddTinyLayer(options, "blk." + std::to_string(layer) + ".", &writer);
  }
  return writer;
}

// The tensors of a Llama with `layers` layers and an untied head.
inline std::vector<SafeTensorSpec> TinyTensors(uint32_t layers, const std::string& prefix) {
  std::vector<SafeTensorSpec> specs = {{prefix + "embed_tokens.weight", {3, 8}},
                                       {prefix + "norm.weight", {8}}};
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const std::string at = prefix + "layers." + std::to_string(layer) + ".";
    specs.push_back({at + "input_layernorm.weight", {8}});
    specs.push_back({at + "self_attn.q_proj.weight", {8, 8}});
    specs.push_back({at + "self_attn.k_proj.weight", {4, 8}});
    specs.push_back({at + "self_attn.v_proj.weight", {4, 8}});
    specs.push_back({at + "self_attn.o_proj.weight", {8, 8}});
    specs.push_back({at + "post_attention_layernorm.weight", {8}});
    specs.push_back({at + "mlp.gate_proj.weight", {6, 8}});
    specs.push_back({at + "mlp.up_proj.weight", {6, 8}});
    specs.push_back({at + "mlp.down_proj.weight", {8, 6}});
  }
  return specs;
}

// config.json of the same.
inline nlohmann::json TinyConfig(const std::string& architecture) {
  return {{"architectures", {architecture}},
          {"hidden_size", 8},
          {"intermediate_size", 6},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 4},
          {"num_hidden_layers", 2},
          {"vocab_size", 3},
          {"max_position_embeddings", 128},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"}};
}

}  // namespace cleave::testing_files

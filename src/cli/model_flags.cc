#include "cli/model_flags.h"

namespace cleave {

void ModelFlags::AddTo(OptionTable* table) {
  const std::string section = "Model and memory";
  table->Positional("MODEL", "A .gguf file, a Hugging Face folder, or a Hub name (org/model)",
                    &model);
  table->Text(section, "--model", "The same as MODEL", &model_flag);
  table->OneOf(
      section, "--dtype",
      "Type of unquantised matrices; float32 takes the exact values of quantised ones too; "
      "auto: as stored",
      {"auto", "float32", "float", "float16", "half", "bfloat16"}, &dtype);
  table->OneOf(section, "--kv-cache-dtype",
               "Type of cached keys and values; int8, also int8_per_token_head: with a scale for "
               "every token and KV head; auto: f32 for F32 weights, bf16 for bf16, else f16",
               {"auto", "f32", "f16", "bf16", "int8", "float32", "float16", "bfloat16",
                "int8_per_token_head"},
               &kv_cache_dtype);
  table->Count(section, "--block-size", "Tokens in a KV block: 16, 32, 64 or 128", 16, 128,
               &block_size);
  table->CountOrAuto(
      section, "--max-model-len",
      "Prompt and output tokens of one sequence; auto: what the model and memory allow", 1, 1 << 24,
      &max_model_len);
  table->Count(section, "--max-num-seqs", "Sequences running at once", 1, 1 << 14, &max_num_seqs);
  table->Count(
      section, "--max-num-batched-tokens",
      "Tokens of one step over all sequences: larger prefills faster, smaller streams smoother", 1,
      1 << 20, &max_num_batched_tokens);
  table->Number(
      section, "--gpu-memory-utilization",
      "Share of the device's memory (cgroup limit respected) that model and cache may take", 0.01,
      1.0, &gpu_memory_utilization);
  table->Alias("--device-memory-utilization", "--gpu-memory-utilization");
  table->CountOrAuto(
      section, "--kv-cache-memory-bytes",
      "Exact size of the KV pool of a rank (4G, 512M); auto: what the flags above can use", 1,
      INT64_MAX, &kv_cache_memory_bytes);
  table->Count(section, "--threads", "Threads of the rank; 0: one per usable core", 0, 1024,
               &threads);
  table->Text(section, "--repacked-cache-dir",
              "Folder that keeps the repacked weights, beside a checksum: later starts map them "
              "instead of repacking, and ranks on one machine share them",
              &repacked_cache_dir);
}

Result<std::string> ModelFlags::Path() const {
  const std::string& name = model.empty() ? model_flag : model;
  if (name.empty()) {
    return InvalidArgument(
        "no model given: name a .gguf file, a Hugging Face folder or a Hub name; 'make models' "
        "brings "
        "a small one to models/SmolLM2-135M-Instruct.Q4_1.gguf");
  }
  return ResolveModelPath(name);
}

ModelSettings ModelFlags::Settings() const {
  ModelSettings s;
  s.dtype = dtype;
  s.kv_cache_dtype = kv_cache_dtype;
  s.block_size = static_cast<uint32_t>(block_size);
  if (max_model_len) s.max_model_len = static_cast<uint32_t>(*max_model_len);
  s.max_num_seqs = static_cast<uint32_t>(max_num_seqs);
  s.max_num_batched_tokens = static_cast<uint32_t>(max_num_batched_tokens);
  s.memory_utilization = gpu_memory_utilization;
  if (kv_cache_memory_bytes)
    s.kv_cache_memory_bytes = static_cast<uint64_t>(*kv_cache_memory_bytes);
  s.threads = static_cast<uint32_t>(threads);
  s.repacked_cache_dir = repacked_cache_dir;
  return s;
}

}  // namespace cleave

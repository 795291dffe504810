#pragma once
// The flags that say which model runs and how large: shared by serve, chat and bench.

#include <optional>
#include <string>

#include "cli/option_table.h"
#include "engine/open_model.h"

namespace cleave {

struct ModelFlags {
  std::string model;       // positional
  std::string model_flag;  // --model, as vLLM has it too
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  int64_t block_size = 16;
  std::optional<int64_t> max_model_len;
  int64_t max_num_seqs = 64;
  int64_t max_num_batched_tokens = 512;
  double gpu_memory_utilization = 0.92;
  std::optional<int64_t> kv_cache_memory_bytes;
  int64_t threads = 0;
  std::string repacked_cache_dir;

  void AddTo(OptionTable* table);
  // The model's path; kInvalidArgument when none was given, kNotFound when it is nowhere.
  [[nodiscard]] Result<std::string> Path() const;
  [[nodiscard]] ModelSettings Settings() const;
};

}  // namespace cleave

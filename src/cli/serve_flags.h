#pragma once
// The flags of cleave serve, as vLLM spells them.

#include <string>
#include <vector>

#include "cli/model_flags.h"
#include "cli/option_table.h"
#include "cli/split_flags.h"
#include "engine/engine.h"
#include "http/options.h"

namespace cleave {

struct ServeFlags {
  ModelFlags model;
  SplitFlags split;
  bool dry_run = false;
  bool json = false;     // of --dry-run
  ServerOptions server;  // filled by Finish

  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::vector<std::string> served_model_names;
  std::vector<std::string> api_keys;
  std::vector<std::string> allowed_origins;
  int64_t max_body_bytes = 16 << 20;
  int64_t max_connections = 1024;
  double stall_timeout_s = 60;
  int64_t max_logprobs = 20;
  std::string generation_config = "auto";
  std::string chat_template;  // a file, or the template itself
  bool trust_request_chat_template = false;
  bool enable_prompt_tokens_details = false;
  bool enable_force_include_usage = false;
  bool return_tokens_as_token_ids = false;
  bool access_log = true;

  int64_t max_num_queued_reqs = 1024;
  int64_t max_num_queued_tokens = 1 << 20;
  int64_t long_prefill_token_threshold = 0;
  bool enable_prefix_caching = true;
  std::string scheduling_policy = "fcfs";
  std::optional<int64_t> seed;

  double shutdown_timeout_s = 30;
  std::string log_level = "info";
  std::string log_format = "text";

  void AddTo(OptionTable* table);
  // Copies what the table filled into `server`.
  void Finish();
  // max_model_len, block_size, num_blocks and kv_partitions come from the plan.
  [[nodiscard]] EngineConfig Engine(const ModelPlan& plan) const;
};

}  // namespace cleave

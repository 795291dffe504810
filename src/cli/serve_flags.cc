#include "cli/serve_flags.h"

#include "cli/engine_host.h"

namespace cleave {
namespace {

constexpr char kFooter[] =
    R"(Examples:
  cleave serve models/SmolLM2-135M-Instruct.Q4_1.gguf
  cleave serve org/model --host 0.0.0.0 --api-key SECRET --max-model-len 8K
  cleave serve MODEL -tp 2 -pp 2 --dry-run       # then without --dry-run
  cleave serve MODEL --kv-cache-memory-bytes 2G --max-num-seqs 32 --config cleave.yaml

Then: curl localhost:8000/v1/chat/completions -H 'content-type: application/json' \
        -d '{"messages": [{"role": "user", "content": "Hello!"}]}'
/ready says when it can serve, /metrics has vLLM's names. SIGTERM drains: /ready turns 503 and
running requests have --shutdown-timeout seconds.)";

}  // namespace

void ServeFlags::AddTo(OptionTable* table) {
  model.AddTo(table);
  split.AddTo(table);
  const std::string cut = "The cut (dp, pp, tp, ep, cp)";
  table->Switch(cut, "--dry-run", "Say who would hold and send what, and load nothing", &dry_run);
  table->Switch(cut, "--json", "--dry-run as JSON", &json);
  const std::string http = "Server";
  table->Text(http, "--host", "Address to listen on; 0.0.0.0: every interface", &host);
  table->Count(http, "--port", "Port; 0: any free one", 0, 65535, &port);
  table->TextList(http, "--served-model-name", "Name(s) in the API; default: the model argument",
                  &served_model_names);
  table->TextList(http, "--api-key", "Key(s) that /v1 requests must carry as a bearer token",
                  &api_keys);
  table->TextList(http, "--allowed-origins", "Browser origins to allow; '*': any",
                  &allowed_origins);
  table->Count(http, "--max-body-bytes", "Largest request body", 1024, INT64_MAX, &max_body_bytes);
  table->Count(http, "--max-connections", "Open connections; more get 503", 1, 1 << 20,
               &max_connections);
  table->Number(http, "--stall-timeout",
                "Seconds without a step, while requests run, to count as hung", 1, 86400,
                &stall_timeout_s);
  table->Number(http, "--shutdown-timeout", "Seconds that running requests have after SIGTERM", 0,
                86400, &shutdown_timeout_s);

  const std::string api = "Answers";
  table->Text(api, "--chat-template", "A Jinja file, or the template itself; default: the model's",
              &chat_template);
  table->Switch(api, "--trust-request-chat-template", "Let requests bring their own template",
                &trust_request_chat_template);
  table->OneOf(api, "--generation-config", "Sampling defaults: auto: the model's, vllm: neutral",
               {"auto", "vllm"}, &generation_config);
  table->Count(api, "--max-logprobs", "Most logprobs a request may ask for; -1: the vocabulary", -1,
               1 << 24, &max_logprobs);
  table->CountOrAuto(api, "--seed", "Seed of requests that bring none; auto: a new one each start",
                     0, INT64_MAX, &seed);
  table->Switch(api, "--enable-prompt-tokens-details", "Usage tells cached prompt tokens",
                &enable_prompt_tokens_details);
  table->Switch(api, "--enable-force-include-usage", "Every stream ends with a usage chunk",
                &enable_force_include_usage);
  table->Switch(api, "--return-tokens-as-token-ids", "Logprobs name tokens as token_id:N",
                &return_tokens_as_token_ids);

  const std::string engine = "Scheduling";
  table->Count(engine, "--max-num-queued-reqs", "Sequences waiting; more get 503", 1, 1 << 24,
               &max_num_queued_reqs);
  table->Count(engine, "--max-num-queued-tokens", "Prompt tokens waiting; more get 503", 1,
               INT64_MAX, &max_num_queued_tokens);
  table->Count(engine, "--long-prefill-token-threshold",
               "Most prompt tokens of one sequence in a step; 0: what the batch leaves", 0, 1 << 20,
               &long_prefill_token_threshold);
  table->Switch(engine, "--enable-prefix-caching", "Reuse the KV blocks of equal prefixes",
                &enable_prefix_caching);
  table->OneOf(engine, "--scheduling-policy", "Who runs first", {"fcfs", "priority"},
               &scheduling_policy);

  const std::string log = "Logging";
  table->OneOf(log, "--log-level", "Least severity shown",
               {"trace", "debug", "info", "warning", "error", "critical"}, &log_level);
  table->OneOf(log, "--log-format", "Lines for people, or one JSON object each", {"text", "json"},
               &log_format);
  table->Switch(log, "--access-log", "A line for each request", &access_log);
  table->Footer(kFooter);
}

void ServeFlags::Finish() {
  server.host = host;
  server.port = static_cast<uint16_t>(port);
  server.limits.body_bytes = static_cast<size_t>(max_body_bytes);
  server.limits.connections = static_cast<size_t>(max_connections);
  server.served_model_names = served_model_names;
  if (server.served_model_names.empty()) {
    server.served_model_names = {model.model.empty() ? model.model_flag : model.model};
  }
  server.api_keys = api_keys;
  server.allowed_origins = allowed_origins;
  server.version = CLEAVE_VERSION;
  server.data_parallel_size = static_cast<uint32_t>(split.dp);
  server.max_logprobs = static_cast<int32_t>(max_logprobs);
  server.generation_config = generation_config == "vllm" ? GenerationConfigSource::kNeutral
                                                         : GenerationConfigSource::kModel;
  server.trust_request_chat_template = trust_request_chat_template;
  server.prompt_tokens_details = enable_prompt_tokens_details;
  server.force_include_usage = enable_force_include_usage;
  server.return_tokens_as_token_ids = return_tokens_as_token_ids;
  server.access_log = access_log;
  if (seed) server.seed = static_cast<uint64_t>(*seed);
  server.stall_timeout = std::chrono::milliseconds(static_cast<int64_t>(stall_timeout_s * 1000));
}

EngineConfig ServeFlags::Engine(const ModelPlan& plan) const {
  EngineConfig config = EngineConfigOf(plan);
  config.max_num_queued_reqs = static_cast<uint32_t>(max_num_queued_reqs);
  config.max_num_queued_tokens = static_cast<uint64_t>(max_num_queued_tokens);
  config.enable_prefix_caching = enable_prefix_caching;
  config.policy =
      scheduling_policy == "priority" ? SchedulingPolicy::kPriority : SchedulingPolicy::kFcfs;
  config.long_prefill_token_threshold = static_cast<uint32_t>(long_prefill_token_threshold);
  return config;
}

}  // namespace cleave

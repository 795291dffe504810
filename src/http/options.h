#pragma once
// ServerOptions: everything about the API server that can be configured. Plain values.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "http/server.h"

namespace cleave {

// Where sampling defaults come from when a request names none: --generation-config auto or vllm.
enum class GenerationConfigSource { kModel, kNeutral };

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: the system picks one
  http::Limits limits;

  std::vector<std::string> served_model_names;  // the first is what answers say
  std::vector<std::string> api_keys;            // none: /v1 is open
  std::vector<std::string> allowed_origins;     // of browsers; "*" = any; none: no CORS headers
  std::string version = "0.1.0";
  uint32_t data_parallel_size = 1;  // X-data-parallel-rank names one of so many

  int32_t max_logprobs = 20;  // -1: the whole vocabulary
  GenerationConfigSource generation_config = GenerationConfigSource::kModel;
  // Requests without a seed get one made of this and how many came before; nothing: a random one.
  std::optional<uint64_t> seed;
  bool trust_request_chat_template = false;
  bool prompt_tokens_details = false;  // usage shows cached tokens
  bool force_include_usage = false;    // every stream ends with usage
  bool return_tokens_as_token_ids = false;
  bool access_log = true;

  uint32_t tokenizer_threads = 1;
  uint32_t max_preparing_requests = 512;  // received, not yet with the engine; beyond: 503
  // Sequences run but no step ended for so long: the engine counts as hung.
  std::chrono::milliseconds stall_timeout{60'000};
};

}  // namespace cleave

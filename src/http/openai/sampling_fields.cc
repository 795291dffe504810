// Fields that chat and completions share: sampling, stopping, streaming, answer extras.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "http/openai/fields.h"
#include "http/openai/request.h"

namespace cleave::openai {
namespace {

constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
// Below it a temperature only adds noise of rounding; vLLM raises it likewise.
constexpr double kMinTemperature = 0.01;
// Dividing or multiplying a logit by it stays far from overflow.
constexpr double kMinRepetitionPenalty = 0.001;
constexpr double kMaxRepetitionPenalty = 1000.0;

float Or(const std::optional<double>& given, double model_default, double otherwise) {
  if (given) return static_cast<float>(*given);
  return static_cast<float>(model_default >= 0 ? model_default : otherwise);
}

void ReadDistribution(Fields& fields, const RequestRules& rules, Generation* out) {
  const GenerationDefaults& defaults = rules.defaults;
  SamplingParams& s = out->sampling;
  s.temperature = Or(fields.Number("temperature", 0, 2), defaults.temperature, 1);
  if (s.temperature > 0)
    s.temperature = std::max(s.temperature, static_cast<float>(kMinTemperature));
  s.top_p = Or(fields.Number("top_p", 0, 1), defaults.top_p, 1);
  if (s.top_p <= 0) fields.Fail("top_p", "must be in (0, 1], got 0");
  const auto top_k = fields.Int("top_k", -1, kInt32Max);
  s.top_k = static_cast<int32_t>(top_k ? *top_k : defaults.top_k);
  if (s.top_k < 0) s.top_k = 0;
  s.min_p = Or(fields.Number("min_p", 0, 1), defaults.min_p, 0);
  s.repetition_penalty =
      Or(fields.Number("repetition_penalty", kMinRepetitionPenalty, kMaxRepetitionPenalty),
         defaults.repetition_penalty, 1);
  s.presence_penalty = Or(fields.Number("presence_penalty", -2, 2), -1, 0);
  s.frequency_penalty = Or(fields.Number("frequency_penalty", -2, 2), -1, 0);
  if (const auto seed = fields.Int("seed", kInt64Min, kInt64Max)) {
    out->seed = static_cast<uint64_t>(*seed);
  }
  out->n = static_cast<uint32_t>(fields.Int("n", 1, kMaxChoices).value_or(1));
  if (out->n > 1 && s.temperature == 0) {
    fields.Fail("n", fmt::format("must be 1 when temperature is 0 (greedy), got {}", out->n));
  }
}

void ReadLogitBias(Fields& fields, const RequestRules& rules, SamplingParams* s) {
  const Json* bias = fields.Object("logit_bias");
  if (bias == nullptr) return;
  if (bias->size() > kMaxLogitBias) {
    fields.Fail("logit_bias",
                fmt::format("must hold at most {} entries, got {}", kMaxLogitBias, bias->size()));
    return;
  }
  for (const auto& [key, value] : bias->items()) {
    int32_t id = -1;
    const char* end = key.data() + key.size();
    const auto [stop, ec] = std::from_chars(key.data(), end, id);
    if (ec != std::errc() || stop != end || id < 0 || id >= rules.vocab_size) {
      fields.Fail("logit_bias", fmt::format("keys must be token ids in [0, {}), got {}",
                                            rules.vocab_size, Brief(Json(key))));
      return;
    }
    const double v = value.is_number() ? value.get<double>() : std::nan("");
    if (!(v >= -100 && v <= 100)) {
      fields.Fail("logit_bias",
                  fmt::format("values must be numbers in [-100, 100], got {}", Brief(value)));
      return;
    }
    s->logit_bias.emplace_back(id, static_cast<float>(v));
  }
}

void ReadTokenLimits(Fields& fields, const RequestRules& rules, Generation* out) {
  SamplingParams& s = out->sampling;
  ReadLogitBias(fields, rules, &s);
  const auto vocab = static_cast<size_t>(std::max(rules.vocab_size, 0));
  if (auto ids = fields.Ids("allowed_token_ids", vocab, rules.vocab_size)) {
    s.allowed_token_ids = *std::move(ids);
    if (s.allowed_token_ids.empty()) {
      fields.Fail("allowed_token_ids", "must hold at least one id, or be left out");
    }
  }
  if (auto ids = fields.Ids("stop_token_ids", kMaxStopTokenIds, rules.vocab_size)) {
    s.stop_token_ids = *std::move(ids);
  }
  if (auto words = fields.Strings("bad_words", kMaxBadWords, kMaxBadWordBytes)) {
    out->bad_words = *std::move(words);
  }
  if (auto stop = fields.Strings("stop", kMaxStops, kMaxStopBytes)) out->stop = *std::move(stop);
  out->include_stop = fields.Bool("include_stop_str_in_output").value_or(false);
  s.ignore_eos = fields.Bool("ignore_eos").value_or(false);
  s.min_tokens = static_cast<uint32_t>(fields.Int("min_tokens", 0, kInt32Max).value_or(0));
}

void ReadStreaming(Fields& fields, const RequestRules& rules, Generation* out) {
  out->stream = fields.Bool("stream").value_or(false);
  out->include_usage = out->stream && rules.force_include_usage;
  const Json* options = fields.Object("stream_options");
  if (options == nullptr) return;
  if (!out->stream) {
    fields.Fail("stream_options", "can only be set when stream is true");
    return;
  }
  Fields inner(*options, "stream_options.");
  if (inner.Bool("include_usage").value_or(false)) out->include_usage = true;
  const bool continuous = inner.Bool("continuous_usage_stats").value_or(false);
  out->continuous_usage = out->include_usage && continuous;
  if (inner.error()) fields.Fail(*inner.error());
}

void ReadPromptOptions(Fields& fields, const RequestRules& rules, Generation* out) {
  const auto cut = fields.Int("truncate_prompt_tokens", -1, rules.max_model_len);
  if (cut && *cut == 0) fields.Fail("truncate_prompt_tokens", "must be -1 or at least 1, got 0");
  out->truncate_prompt_tokens = cut;
  if (const auto side = fields.String("truncation_side", kMaxNameBytes)) {
    if (*side != "left" && *side != "right") {
      fields.Fail("truncation_side", "must be \"left\" or \"right\"");
    }
    out->truncation_side = *side == "right" ? TruncationSide::kRight : TruncationSide::kLeft;
  }
  const int64_t most = rules.max_logprobs < 0 ? rules.vocab_size : rules.max_logprobs;
  const auto prompt_logprobs = fields.Int("prompt_logprobs", -1, kInt32Max);
  if (!prompt_logprobs) return;
  const int64_t k = *prompt_logprobs < 0 ? rules.vocab_size : *prompt_logprobs;
  if (out->stream) {
    fields.Fail("prompt_logprobs", "is not available when stream is true");
  } else if (k > most) {
    fields.Fail("prompt_logprobs",
                fmt::format("must be at most {} (--max-logprobs), got {}", most, *prompt_logprobs));
  } else {
    out->sampling.prompt_logprobs = static_cast<int32_t>(k);
  }
}

void ReadIdentity(Fields& fields, const RequestRules& rules, Generation* out) {
  out->request_id = fields.String("request_id", kMaxNameBytes).value_or("");
  for (const char c : out->request_id) {
    if (c > ' ' && c <= '~') continue;
    fields.Fail("request_id", "must hold printable ASCII characters without spaces only");
    break;
  }
  const auto priority = fields.Int("priority", -kInt32Max, kInt32Max).value_or(0);
  if (priority != 0 && !rules.priorities) {
    fields.Fail("priority", "needs a server started with --scheduling-policy priority");
  }
  out->priority = static_cast<int32_t>(priority);
  if (auto salt = fields.String("cache_salt", kMaxCacheSaltBytes)) {
    if (salt->empty()) fields.Fail("cache_salt", "must not be empty");
    out->cache_salt = *std::move(salt);
  }
  (void)fields.String("user", kMaxCacheSaltBytes);
  (void)fields.String("session_id", kMaxCacheSaltBytes);
}

void RefuseUnsupported(Fields& fields) {
  for (const std::string_view field : kUnsupportedFields) {
    const std::string name(field);
    if (fields.Get(name) != nullptr) fields.Fail(name, "is not supported yet; leave it out");
  }
  for (const std::string_view field : kUnsupportedSwitches) {
    const std::string name(field);
    if (fields.Bool(name).value_or(false)) fields.Fail(name, "is not supported yet; leave it out");
  }
  const Json* format = fields.Object("response_format");
  if (format == nullptr) return;
  Fields inner(*format, "response_format.");
  const std::string type = inner.String("type", kMaxNameBytes).value_or("");
  if (inner.error()) {
    fields.Fail(*inner.error());
  } else if (type != "text") {
    fields.Fail("response_format",
                fmt::format("of type {} is not supported yet; use {{\"type\":\"text\"}}",
                            Brief(Json(type))));
  }
}

}  // namespace

void ReadModel(Fields& fields, const RequestRules& rules, std::string* model) {
  const auto given = fields.String("model", 4096);
  *model = given.value_or(rules.model_names.empty() ? "" : rules.model_names.front());
  if (!given) return;
  const auto& names = rules.model_names;
  if (std::find(names.begin(), names.end(), *given) != names.end()) return;
  fields.Fail(ModelNotFound(*given));
}

void ReadGeneration(Fields& fields, const RequestRules& rules, Generation* out) {
  ReadModel(fields, rules, &out->model);
  ReadStreaming(fields, rules, out);
  ReadDistribution(fields, rules, out);
  ReadTokenLimits(fields, rules, out);
  ReadPromptOptions(fields, rules, out);
  ReadIdentity(fields, rules, out);
  RefuseUnsupported(fields);
  out->skip_special = fields.Bool("skip_special_tokens").value_or(true);
  (void)fields.Bool("spaces_between_special_tokens");  // byte-level decoding puts none of its own
  (void)fields.Int("stream_interval", 1, kInt32Max);   // every step is streamed
  (void)fields.Number("length_penalty", -kMaxRepetitionPenalty, kMaxRepetitionPenalty);  // beams
  out->return_token_ids = fields.Bool("return_token_ids").value_or(false);
  out->tokens_as_ids =
      fields.Bool("return_tokens_as_token_ids").value_or(rules.return_tokens_as_token_ids);
  const auto best_of = fields.Int("best_of", 1, kMaxChoices);
  if (best_of && *best_of != out->n) {
    fields.Fail("best_of", fmt::format("other than n is not supported, got {}", *best_of));
  }
}

}  // namespace cleave::openai

#include "engine/sampler/logit_rules.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace cleave {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

}  // namespace

LogitRules::LogitRules(uint32_t vocab_size, std::vector<int32_t> eos_token_ids)
    : vocab_size_(vocab_size), eos_token_ids_(std::move(eos_token_ids)), seen_(vocab_size) {}

bool LogitRules::Changes(const SamplingParams& p, uint32_t output_tokens) {
  return !p.logit_bias.empty() || !p.allowed_token_ids.empty() || !p.bad_words.empty() ||
         output_tokens < p.min_tokens || p.repetition_penalty != 1.0F ||
         p.frequency_penalty != 0.0F || p.presence_penalty != 0.0F;
}

void LogitRules::Apply(const SampleContext& context, float* logits) {
  const SamplingParams& p = *context.params;
  for (const auto& [id, bias] : p.logit_bias) {
    if (Known(id)) logits[id] += bias;
  }
  if (!p.allowed_token_ids.empty()) KeepOnly(p.allowed_token_ids, logits);
  MaskBadWords(context, logits);
  if (context.output().size() < p.min_tokens) {
    if (!p.ignore_eos) Mask(eos_token_ids_, logits);
    Mask(p.stop_token_ids, logits);
  }
  if (p.repetition_penalty != 1.0F) Repetition(context, logits);
  if (p.frequency_penalty != 0.0F || p.presence_penalty != 0.0F) {
    FrequencyAndPresence(context, logits);
  }
}

void LogitRules::Mask(std::span<const int32_t> ids, float* logits) const {
  for (const int32_t id : ids) {
    if (Known(id)) logits[id] = kMasked;
  }
}

void LogitRules::KeepOnly(std::span<const int32_t> ids, float* logits) {
  NextMark();
  for (const int32_t id : ids) {
    if (Known(id)) seen_[static_cast<uint32_t>(id)].mark = mark_;
  }
  for (uint32_t i = 0; i < vocab_size_; ++i) {
    if (seen_[i].mark != mark_) logits[i] = kMasked;
  }
}

void LogitRules::MaskBadWords(const SampleContext& context, float* logits) const {
  const std::span<const int32_t> output = context.output();
  for (const std::vector<int32_t>& word : context.params->bad_words) {
    if (word.empty() || !Known(word.back())) continue;
    const size_t before = word.size() - 1;
    if (before > output.size()) continue;
    const auto end = output.last(before);
    if (std::equal(end.begin(), end.end(), word.begin())) logits[word.back()] = kMasked;
  }
}

void LogitRules::Repetition(const SampleContext& context, float* logits) {
  NextMark();
  const float penalty = context.params->repetition_penalty;
  for (const int32_t id : context.tokens) {
    if (!Known(id)) continue;
    Seen& seen = seen_[static_cast<uint32_t>(id)];
    if (std::exchange(seen.mark, mark_) == mark_) continue;
    logits[id] = logits[id] > 0.0F ? logits[id] / penalty : logits[id] * penalty;
  }
}

void LogitRules::FrequencyAndPresence(const SampleContext& context, float* logits) {
  NextMark();
  for (const int32_t id : context.output()) {
    if (!Known(id)) continue;
    Seen& seen = seen_[static_cast<uint32_t>(id)];
    if (std::exchange(seen.mark, mark_) != mark_) seen.count = 0;
    ++seen.count;
  }
  for (const int32_t id : context.output()) {
    if (!Known(id)) continue;
    Seen& seen = seen_[static_cast<uint32_t>(id)];
    if (seen.count == 0) continue;  // done
    logits[id] -= context.params->frequency_penalty * static_cast<float>(seen.count);
    logits[id] -= context.params->presence_penalty;
    seen.count = 0;
  }
}

void LogitRules::NextMark() {
  if (++mark_ != 0) return;
  std::fill(seen_.begin(), seen_.end(), Seen());
  mark_ = 1;
}

}  // namespace cleave

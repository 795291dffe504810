#pragma once
// LogitRules: what a request changes about the model's logits before anything is drawn.
//
// In this order, each skipped when not asked for:
//   logit_bias           added
//   allowed_token_ids    all others to -inf
//   bad_words            the last id of a word whose earlier ids end the output: -inf
//   min_tokens           EOS (unless ignored) and stop ids: -inf while the output is shorter
//   repetition_penalty   every id of prompt and output, once: x / r if x > 0, else x · r
//   frequency_penalty    minus f · (times in the output)
//   presence_penalty     minus p, for every id of the output
// These are vLLM's meanings and order. Nothing is kept from step to step: a resumed sequence gets
// what it would have got.
//
// Owner: the sampler; one thread. Ids outside the vocabulary are ignored. No allocation after
// construction.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace cleave {

struct SampleContext {
  const SamplingParams* params = nullptr;
  std::span<const int32_t> tokens;  // prompt, then output so far
  uint32_t prompt_tokens = 0;

  [[nodiscard]] std::span<const int32_t> output() const { return tokens.subspan(prompt_tokens); }
};

class LogitRules {
 public:
  LogitRules(uint32_t vocab_size, std::vector<int32_t> eos_token_ids);

  // Whether the request changes logits after so many tokens of output.
  [[nodiscard]] static bool Changes(const SamplingParams& params, uint32_t output_tokens);

  // logits: [vocab_size].
  void Apply(const SampleContext& context, float* logits);

 private:
  struct Seen {
    uint32_t mark = 0;   // equal to mark_: counted in this call
    uint32_t count = 0;  // in the output
  };

  [[nodiscard]] bool Known(int32_t id) const {
    return id >= 0 && static_cast<uint32_t>(id) < vocab_size_;
  }
  void Mask(std::span<const int32_t> ids, float* logits) const;
  void KeepOnly(std::span<const int32_t> ids, float* logits);
  void MaskBadWords(const SampleContext& context, float* logits) const;
  void Repetition(const SampleContext& context, float* logits);
  void FrequencyAndPresence(const SampleContext& context, float* logits);
  void NextMark();

  const uint32_t vocab_size_;
  const std::vector<int32_t> eos_token_ids_;
  std::vector<Seen> seen_;  // [vocab_size]
  uint32_t mark_ = 0;
};

}  // namespace cleave

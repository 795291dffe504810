#pragma once
// Log-probabilities as the model gave them (vLLM's raw_logprobs): logit - ln Σ exp(logit), before
// any rule, penalty or temperature. The sum is an integer sum (kernels/logits.h), so the figures do
// not depend on the batch or on who holds which part of the vocabulary.
//
// Always finite: what would be below kLowestLogprob (a masked or impossible token) is reported as
// it, so that answers stay valid JSON.
// Owner: the engine core; one thread. Calculate allocates the list it returns and nothing else.

#include <cstdint>
#include <vector>

#include "engine/request.h"
#include "kernels/isa.h"

namespace cleave {

inline constexpr float kLowestLogprob = -9999.0F;

class LogprobCalculator {
 public:
  LogprobCalculator(Isa isa, uint32_t vocab_size);

  // `chosen`'s log-probability and rank (1 + tokens with a greater logit), and the `k` most likely
  // tokens by (logit descending, id ascending); k above the vocabulary means all of it.
  [[nodiscard]] TokenLogprobs Calculate(const float* logits, int32_t chosen, uint32_t k);

 private:
  void SelectTop(const float* logits, uint32_t k);
  void SelectFew(const float* logits, uint32_t k);

  const Isa isa_;
  const uint32_t vocab_size_;
  std::vector<uint64_t> keys_;  // room for [vocab_size]: (ordered logit, ~id), greater is better
};

}  // namespace cleave

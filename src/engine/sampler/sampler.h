#pragma once
// Sampler: from one row of logits to one token.
//
// The request's rules (logit_rules.h), then: the highest logit, lowest id among equals, when the
// temperature is 0; else each token's mass is an integer count of quanta relative to the highest
// logit (kernels/logits.h), and in the order (mass descending, id ascending)
//   min_p   keeps masses of at least ⌈min_p · the highest mass⌉
//   top_k   keeps the first k
//   top_p   keeps the shortest beginning whose sum is at least ⌈top_p · the sum kept so far⌉
//   draw    takes the token at ⌊bits · sum / 2^64⌋ quanta from the beginning
// with bits = RandomBits(seed, prompt index, choice index, position) and position the index of the
// new token in the whole sequence. Integers only, so nothing depends on the batch, the instruction
// set, a preemption, or who holds which part of the vocabulary.
//
// The order is found by selection, never by sorting the vocabulary: among the likeliest tokens
// first, further down only when the answer lies there.
// Owner: the engine core; one thread, holding a ScopedFpMode. No allocation after construction.

#include <cstdint>
#include <vector>

#include "engine/request.h"
#include "engine/sampler/logit_rules.h"
#include "kernels/isa.h"

namespace cleave {

class Sampler {
 public:
  // Returned when the rules leave no token, or no logit is a number.
  static constexpr int32_t kNoToken = -1;
  // Vocabularies up to here; ids and masses then share 64 bits.
  static constexpr uint32_t kMaxVocab = 1U << 22U;
  // Below it, a temperature is 0: its masses could not be told apart from that.
  static constexpr float kGreedyBelow = 1e-5F;

  Sampler(Isa isa, uint32_t vocab_size, std::vector<int32_t> eos_token_ids);

  // Whether the sequence's next token is the highest logit's, whatever the others are: then Sample
  // need not be called, and who asks for it need not have the row.
  [[nodiscard]] static bool TakesHighest(const SamplingParams& params, uint32_t output_tokens);
  // The next token of the sequence. logits ([vocab_size]) are changed.
  int32_t Sample(const SampleContext& context, float* logits);

 private:
  struct Prefix {
    size_t count;
    int64_t sum;
  };

  int32_t Draw(const SamplingParams& params, int64_t total, uint64_t bits);
  int64_t Gather(int64_t least);
  bool LookFurther();
  void CutToTopK(size_t k);
  Prefix PrefixReaching(int64_t goal);

  const Isa isa_;
  const uint32_t vocab_size_;
  LogitRules rules_;
  std::vector<int64_t> mass_;   // [vocab_size]
  std::vector<uint64_t> keys_;  // room for [vocab_size]: (mass, ~id), greater comes first
  int64_t held_ = 0;            // sum of keys_ as gathered or cut
  int64_t gathered_ = 0;        // keys_ holds what has this mass or more
  int64_t lowest_ = 0;          // what has less is out of the draw
};

}  // namespace cleave

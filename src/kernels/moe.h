#pragma once
// Mixtures of experts: which experts a token takes, with what weights, and the tokens of each
// expert. The products are matmul.h's: MatmulColumn over gathered rows for gate and up,
// MatmulExpert for down, whose integers of all experts add in any order (docs/arithmetic.md).
//
// A step, on every rank of the layer:
//   1. the router's logits (MatmulColumn, never split); RouteTokens: threads split tokens
//   2. ExpertDispatch::Assign for the experts held here: one thread, then a barrier
//   3. totals cleared; per expert with tokens: GatherActs of the layer's prepared input, gate and
//      up, GatedActivation, PrepareTwoTerms or PrepareActs; int64 (wide) for the rows whose
//      RowBound · |gate| is not under kNarrowBound; MatmulExpert
//   4. totals of all ranks added as integers; x += QuantaToFloat
// A shared expert is one more expert, of all tokens, whose gate is 1 or its own sigmoid.
// Nothing here allocates except ExpertDispatch's constructor.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/isa.h"

namespace cleave {

enum class GateRule {
  // Softmax of the chosen logits; the same number as a softmax of all whose chosen ones are then
  // divided by their sum (Mixtral; Qwen3-MoE with norm_topk_prob).
  kSoftmaxOfChosen,
  // Softmax of all logits, of which the chosen are taken (Qwen3-MoE without).
  kSoftmaxOfAll,
};

inline constexpr uint32_t kMaxTopK = 64;

struct RouterShape {
  uint32_t experts = 0;
  uint32_t top_k = 0;  // 1 .. min(experts, kMaxTopK)
  GateRule rule = GateRule::kSoftmaxOfChosen;
};

// Rows [row_begin, row_end) of logits ([tokens, stride] fp32) to chosen and gates [tokens][top_k].
// Chosen are the largest logits, largest first, of equals the lower index first; NaN counts as
// -inf. A gate is mass / sum of masses, the masses of logits.h (integers, 2^40 at the largest
// logit), so what lies under 2^-41 of the largest is 0. Where the largest logit is not finite all
// gates are NaN.
void RouteTokens(Isa isa, const RouterShape& shape, const float* logits, size_t stride,
                 uint32_t row_begin, uint32_t row_end, uint32_t* chosen, float* gates);

// The tokens of each expert held by this rank. Owner: the layer's executor; Assign by one thread,
// read by all.
class ExpertDispatch {
 public:
  // This rank holds experts [begin, end) whole or some columns of each.
  ExpertDispatch(uint32_t max_tokens, uint32_t top_k, uint32_t begin, uint32_t end);

  // chosen and gates [tokens][top_k], as RouteTokens leaves them; experts held elsewhere are
  // skipped.
  void Assign(const uint32_t* chosen, const float* gates, uint32_t tokens);

  // Of held expert `expert`: its tokens, ascending, and their gates.
  [[nodiscard]] std::span<const uint32_t> tokens(uint32_t expert) const {
    return {token_.data() + first(expert), first(expert + 1) - first(expert)};
  }
  [[nodiscard]] std::span<const float> gates(uint32_t expert) const {
    return {gate_.data() + first(expert), first(expert + 1) - first(expert)};
  }
  // Where the expert's tokens begin among all assignments of the step: for buffers over all
  // experts.
  [[nodiscard]] uint32_t first(uint32_t expert) const { return first_[expert - begin_]; }

 private:
  uint32_t top_k_;
  uint32_t begin_;
  uint32_t end_;
  std::vector<uint32_t> first_;  // [held + 1]
  std::vector<uint32_t> next_;   // [held]
  std::vector<uint32_t> token_;  // [max_tokens * top_k]
  std::vector<float> gate_;      // as token_
};

}  // namespace cleave

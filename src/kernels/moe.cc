#include "kernels/moe.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/status.h"
#include "kernels/logits.h"
#include "kernels/math.h"

namespace cleave {
namespace {

// The top_k largest of a row into chosen and, for now, their logits into value: both kept sorted,
// and an equal later one stays behind.
void ChooseLargest(const RouterShape& shape, const float* logits, uint32_t* chosen, float* value) {
  uint32_t count = 0;
  for (uint32_t e = 0; e < shape.experts; ++e) {
    const bool number = logits[e] == logits[e];
    const float v = number ? logits[e] : -std::numeric_limits<float>::infinity();
    if (count == shape.top_k && !(v > value[count - 1])) continue;
    uint32_t at = count < shape.top_k ? count++ : count - 1;
    for (; at > 0 && v > value[at - 1]; --at) {
      value[at] = value[at - 1];
      chosen[at] = chosen[at - 1];
    }
    value[at] = v;
    chosen[at] = e;
  }
}

}  // namespace

void RouteTokens(Isa isa, const RouterShape& shape, const float* logits, size_t stride,
                 uint32_t row_begin, uint32_t row_end, uint32_t* chosen, float* gates) {
  CLEAVE_CHECK(shape.top_k > 0 && shape.top_k <= std::min(shape.experts, kMaxTopK));
  std::array<int64_t, kMaxTopK> mass;
  for (size_t row = row_begin; row < row_end; ++row) {
    const float* all = logits + row * stride;
    float* gate = gates + row * shape.top_k;
    ChooseLargest(shape, all, chosen + row * shape.top_k, gate);
    const float max = gate[0];
    int64_t sum = ComputeMasses(isa, gate, shape.top_k, max, kLog2E, mass.data());
    if (shape.rule == GateRule::kSoftmaxOfAll) {
      sum = ComputeMasses(isa, all, shape.experts, max, kLog2E, nullptr);
    }
    // Both are below 2^53, so the quotient is rounded in double and then once more.
    for (uint32_t i = 0; i < shape.top_k; ++i) {
      gate[i] = static_cast<float>(static_cast<double>(mass[i]) / static_cast<double>(sum));
    }
  }
}

ExpertDispatch::ExpertDispatch(uint32_t max_tokens, uint32_t top_k, uint32_t begin, uint32_t end)
    : top_k_(top_k),
      begin_(begin),
      end_(end),
      first_(end - begin + 1),
      next_(end - begin),
      token_(size_t{max_tokens} * top_k),
      gate_(token_.size()) {}

void ExpertDispatch::Assign(const uint32_t* chosen, const float* gates, uint32_t tokens) {
  const size_t pairs = size_t{tokens} * top_k_;
  CLEAVE_CHECK(pairs <= token_.size());
  std::fill(first_.begin(), first_.end(), 0U);
  for (size_t i = 0; i < pairs; ++i) {
    if (chosen[i] >= begin_ && chosen[i] < end_) ++first_[chosen[i] - begin_ + 1];
  }
  for (size_t e = 0; e < next_.size(); ++e) {
    first_[e + 1] += first_[e];
    next_[e] = first_[e];
  }
  for (size_t i = 0; i < pairs; ++i) {
    if (chosen[i] < begin_ || chosen[i] >= end_) continue;
    const uint32_t at = next_[chosen[i] - begin_]++;
    token_[at] = static_cast<uint32_t>(i / top_k_);
    gate_[at] = gates[i];
  }
}

}  // namespace cleave

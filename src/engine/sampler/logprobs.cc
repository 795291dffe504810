#include "engine/sampler/logprobs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "kernels/logits.h"
#include "kernels/math.h"

namespace cleave {
namespace {

// Up to here a heap over one pass beats selecting from all keys.
constexpr uint32_t kHeapLimit = 128;

// Unsigned order equals the order of floats; both zeros are one value; NaN is below everything.
uint32_t OrderedBits(float x) {
  if (std::isnan(x)) return 0;
  const auto bits = std::bit_cast<uint32_t>(x + 0.0F);
  return (bits >> 31U) != 0 ? ~bits : bits | 0x80000000U;
}

uint64_t KeyOf(const float* logits, uint32_t id) {
  return (uint64_t{OrderedBits(logits[id])} << 32U) | (~id);
}
int32_t IdOf(uint64_t key) { return static_cast<int32_t>(~static_cast<uint32_t>(key)); }

float Finite(float logprob) { return logprob >= kLowestLogprob ? logprob : kLowestLogprob; }

int32_t CountGreater(const float* logits, uint32_t n, float value) {
  int32_t count = 0;
  for (uint32_t i = 0; i < n; ++i) count += logits[i] > value ? 1 : 0;
  return count;
}

}  // namespace

LogprobCalculator::LogprobCalculator(Isa isa, uint32_t vocab_size)
    : isa_(isa), vocab_size_(vocab_size) {
  keys_.reserve(vocab_size);
}

TokenLogprobs LogprobCalculator::Calculate(const float* logits, int32_t chosen, uint32_t k) {
  const MaxLogit max = FindMax(isa_, logits, vocab_size_);
  const int64_t sum = ComputeMasses(isa_, logits, vocab_size_, max.value, kLog2E, nullptr);
  const float log_sum = LogSumExp(max.value, sum);
  const auto logprob = [&](int32_t id) { return Finite(logits[id] - log_sum); };

  TokenLogprobs result;
  result.chosen = {chosen, logprob(chosen), 1 + CountGreater(logits, vocab_size_, logits[chosen])};
  if (k == 0) return result;
  SelectTop(logits, std::min(k, vocab_size_));
  result.top.resize(keys_.size());
  for (size_t i = 0; i < keys_.size(); ++i) {
    TokenLogprob& entry = result.top[i];
    entry.id = IdOf(keys_[i]);
    entry.logprob = logprob(entry.id);
    const bool ties = i > 0 && logits[entry.id] == logits[result.top[i - 1].id];
    entry.rank = ties ? result.top[i - 1].rank : static_cast<int32_t>(i) + 1;
  }
  return result;
}

// The first k keys, best first, into keys_.
void LogprobCalculator::SelectTop(const float* logits, uint32_t k) {
  keys_.clear();
  if (k <= kHeapLimit && k < vocab_size_) return SelectFew(logits, k);
  for (uint32_t i = 0; i < vocab_size_; ++i) keys_.push_back(KeyOf(logits, i));
  const auto end = keys_.begin() + static_cast<std::ptrdiff_t>(k);
  if (k < vocab_size_) std::nth_element(keys_.begin(), end, keys_.end(), std::greater<>());
  keys_.resize(k);
  std::sort(keys_.begin(), keys_.end(), std::greater<>());
}

void LogprobCalculator::SelectFew(const float* logits, uint32_t k) {
  for (uint32_t i = 0; i < k; ++i) keys_.push_back(KeyOf(logits, i));
  std::make_heap(keys_.begin(), keys_.end(), std::greater<>());
  float worst = logits[IdOf(keys_.front())];
  for (uint32_t i = k; i < vocab_size_; ++i) {
    // An equal logit with a higher id does not enter; NaN neither enters nor stays.
    if (!(logits[i] > worst) && !std::isnan(worst)) continue;
    const uint64_t key = KeyOf(logits, i);
    if (key < keys_.front()) continue;
    std::pop_heap(keys_.begin(), keys_.end(), std::greater<>());
    keys_.back() = key;
    std::push_heap(keys_.begin(), keys_.end(), std::greater<>());
    worst = logits[IdOf(keys_.front())];
  }
  std::sort_heap(keys_.begin(), keys_.end(), std::greater<>());
}

}  // namespace cleave

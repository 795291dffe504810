#include "engine/sampler/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/rng.h"
#include "base/status.h"
#include "kernels/logits.h"
#include "kernels/math.h"

namespace cleave {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr unsigned kIdBits = 22;
constexpr uint32_t kIdMask = (1U << kIdBits) - 1;
static_assert(kMassBits + 1 + kIdBits <= 64);

// The first look takes tokens with 2^kFirstBits times the average mass, so at most one in as many;
// each further look lowers that by 2^kLookBits.
constexpr int kFirstBits = 4;
constexpr unsigned kLookBits = 4;
// Ranges this short are sorted and walked.
constexpr size_t kWalk = 64;

uint64_t KeyOf(int64_t mass, uint32_t id) {
  return (static_cast<uint64_t>(mass) << kIdBits) | (kIdMask - id);
}
int64_t MassOf(uint64_t key) { return static_cast<int64_t>(key >> kIdBits); }
int32_t IdOf(uint64_t key) { return static_cast<int32_t>(kIdMask - (key & kIdMask)); }

using KeyIterator = std::vector<uint64_t>::iterator;
int64_t SumOf(KeyIterator begin, KeyIterator end) {
  return std::accumulate(begin, end, int64_t{0},
                         [](int64_t sum, uint64_t key) { return sum + MassOf(key); });
}

// ⌈share · total⌉ exactly, at least 1: a float is a 24-bit integer times a power of two.
int64_t CeilShare(float share, int64_t total) {
  int exponent = 0;
  const float fraction = std::frexp(std::clamp(share, 0.0F, 1.0F), &exponent);
  const auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, 24));
  const int shift = 24 - exponent;
  if (mantissa == 0 || shift >= 100) return 1;
  const Uint128 product = static_cast<Uint128>(mantissa) * static_cast<uint64_t>(total);
  const Uint128 up = (static_cast<Uint128>(1) << static_cast<unsigned>(shift)) - 1;
  return std::max<int64_t>(1, static_cast<int64_t>((product + up) >> static_cast<unsigned>(shift)));
}

}  // namespace

Sampler::Sampler(Isa isa, uint32_t vocab_size, std::vector<int32_t> eos_token_ids)
    : isa_(isa),
      vocab_size_(vocab_size),
      rules_(vocab_size, std::move(eos_token_ids)),
      mass_(vocab_size) {
  CLEAVE_CHECK(vocab_size <= kMaxVocab);
  keys_.reserve(vocab_size);
}

bool Sampler::TakesHighest(const SamplingParams& params, uint32_t output_tokens) {
  return !(params.temperature >= kGreedyBelow) && !LogitRules::Changes(params, output_tokens);
}

int32_t Sampler::Sample(const SampleContext& context, float* logits) {
  rules_.Apply(context, logits);
  const SamplingParams& p = *context.params;
  const MaxLogit max = FindMax(isa_, logits, vocab_size_);
  if (max.id < 0) return kNoToken;
  if (!(p.temperature >= kGreedyBelow) || !std::isfinite(max.value)) return max.id;
  const int64_t total =
      ComputeMasses(isa_, logits, vocab_size_, max.value, kLog2E / p.temperature, mass_.data());
  if (total <= 0) return max.id;
  return Draw(p, total,
              RandomBits({p.seed, p.prompt_index, p.choice_index, context.tokens.size()}));
}

int32_t Sampler::Draw(const SamplingParams& params, int64_t total, uint64_t bits) {
  if (params.min_p > 0.0F) {
    lowest_ = CeilShare(params.min_p, int64_t{1} << kMassBits);
    total = Gather(lowest_);
  } else {
    lowest_ = 1;
    const int shift = std::bit_width(vocab_size_) - kFirstBits;
    Gather(std::max<int64_t>(1, total >> static_cast<unsigned>(std::max(0, shift))));
  }
  if (params.top_k > 0) {
    const auto k = static_cast<size_t>(params.top_k);
    while (keys_.size() < k && LookFurther()) {
    }
    if (keys_.size() > k) CutToTopK(k);
    total = held_;
  }
  if (params.top_p < 1.0F) {
    const int64_t goal = CeilShare(params.top_p, total);
    while (held_ < goal && LookFurther()) {
    }
    const Prefix kept = PrefixReaching(goal);
    keys_.resize(kept.count);
    total = kept.sum;
  }
  const auto target =
      static_cast<int64_t>((static_cast<Uint128>(bits) * static_cast<uint64_t>(total)) >> 64U);
  while (held_ <= target && LookFurther()) {
  }
  return IdOf(keys_[PrefixReaching(target + 1).count - 1]);
}

// Keys of all tokens with at least `least` mass, in no order; returns their sum.
int64_t Sampler::Gather(int64_t least) {
  gathered_ = least;
  keys_.clear();
  held_ = 0;
  for (uint32_t i = 0; i < vocab_size_; ++i) {
    if (mass_[i] < least) continue;
    keys_.push_back(KeyOf(mass_[i], i));
    held_ += mass_[i];
  }
  return held_;
}

// False when all tokens that count are gathered.
bool Sampler::LookFurther() {
  if (gathered_ <= lowest_) return false;
  Gather(std::max(lowest_, gathered_ >> kLookBits));
  return true;
}

void Sampler::CutToTopK(size_t k) {
  const auto end = keys_.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(keys_.begin(), end, keys_.end(), std::greater<>());
  keys_.resize(k);
  held_ = SumOf(keys_.begin(), keys_.end());
}

// The shortest beginning of the order with a sum of at least `goal` (1 … the sum of all keys).
// Afterwards it is the first `count` keys, the last of the order at its end. Halves what is
// undecided by selection, so it is linear in the number of keys; since most of the mass is in few
// tokens, the first split is small.
Sampler::Prefix Sampler::PrefixReaching(int64_t goal) {
  size_t lo = 0;
  size_t hi = keys_.size();
  int64_t before = 0;
  const auto at = [this](size_t i) { return keys_.begin() + static_cast<std::ptrdiff_t>(i); };
  size_t split = kWalk;
  while (hi - lo > kWalk) {
    const size_t mid = lo + std::min(split, (hi - lo) / 2);
    split = hi;
    std::nth_element(at(lo), at(mid), at(hi), std::greater<>());
    const int64_t left = SumOf(at(lo), at(mid));
    if (before + left >= goal) {
      hi = mid;
    } else {
      before += left;
      lo = mid;
    }
  }
  std::sort(at(lo), at(hi), std::greater<>());
  while (before + MassOf(keys_[lo]) < goal) before += MassOf(keys_[lo++]);
  return {lo + 1, before + MassOf(keys_[lo])};
}

}  // namespace cleave

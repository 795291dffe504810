#include "kernels/attention_bins.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math.h"
#include "kernels/math_constants.h"

namespace cleave {
namespace {

using attention::kBinBits;
using attention::kBins;
using attention::kFractionBits;

// The nearest integer of x·unit, ties to even. A float of 2^51 quanta or more is whole already.
Int128 Quantise(float x, double unit) {
  const double scaled = static_cast<double>(x) * unit;
  if (std::fabs(scaled) >= 0x1p51) return static_cast<Int128>(scaled);
  return static_cast<Int128>((scaled + math::kRoundDouble) - math::kRoundDouble);
}

}  // namespace

int32_t AttentionBinOf(int32_t m) { return -((-m) >> 4); }

uint32_t AttentionSlotOf(int32_t bin) {
  const int32_t r = bin % static_cast<int32_t>(kBins);
  return static_cast<uint32_t>(r < 0 ? r + static_cast<int32_t>(kBins) : r);
}

KeptBins::Entry KeptBins::Admit(int32_t bin) {
  constexpr auto kKept = static_cast<int32_t>(kBins);
  if (empty()) top_ = bin;
  if (bin <= top_ - kKept) return Entry::kTooLow;
  // At most three bins fall out, whatever the distance.
  for (int32_t b = std::max(top_ + 1, bin - kKept + 1); b <= bin; ++b) {
    held_ &= ~(1U << AttentionSlotOf(b));
  }
  top_ = std::max(top_, bin);
  const uint32_t slot = 1U << AttentionSlotOf(bin);
  const bool held = (held_ & slot) != 0;
  held_ |= slot;
  return held ? Entry::kHeld : Entry::kFresh;
}

bool KeptBins::Holds(int32_t bin) const {
  if (bin > top_ || bin <= top_ - static_cast<int32_t>(kBins)) return false;
  return (held_ & (1U << AttentionSlotOf(bin))) != 0;
}

uint32_t KeptBins::UnderTop() const {
  uint32_t bins = 0;
  for (uint32_t i = 0; i < kBins; ++i) {
    if (Holds(top_ - static_cast<int32_t>(i))) bins |= 1U << i;
  }
  return bins;
}

AttentionBins::AttentionBins(uint32_t head_dim) : head_dim_(head_dim) {
  for (auto& bin : counts_) bin.resize(head_dim + 1);
}

void AttentionBins::Clear() {
  bins_ = {};
  broken_ = false;
}

Int128* AttentionBins::Slot(int32_t bin) {
  const KeptBins::Entry entry = bins_.Admit(bin);
  if (entry == KeptBins::Entry::kTooLow) return nullptr;
  auto& counts = counts_[AttentionSlotOf(bin)];
  if (entry == KeptBins::Entry::kFresh) std::fill(counts.begin(), counts.end(), Int128{0});
  return counts.data();
}

const Int128* AttentionBins::CountsOf(int32_t bin) const {
  return bins_.Holds(bin) ? counts_[AttentionSlotOf(bin)].data() : nullptr;
}

void AttentionBins::AddRun(int32_t m, float l, const float* o) {
  const int32_t bin = AttentionBinOf(m);
  const double unit = PowerOfTwo(m - kBinBits * bin + kFractionBits);
  bool finite = std::fabs(l) < attention::kLargestElement;
  for (uint32_t i = 0; i < head_dim_; ++i) {
    finite = finite && std::fabs(o[i]) < attention::kLargestElement;
  }
  broken_ = broken_ || !finite;
  if (broken_) return;
  Int128* counts = Slot(bin);
  if (counts == nullptr) return;
  for (uint32_t i = 0; i < head_dim_; ++i) counts[i] += Quantise(o[i], unit);
  counts[head_dim_] += Quantise(l, unit);
}

void AttentionBins::AddCounts(int32_t bin, const int64_t* values, int64_t mass) {
  Int128* counts = Slot(bin);
  if (counts == nullptr) return;
  for (uint32_t i = 0; i < head_dim_; ++i) counts[i] += values[i];
  counts[head_dim_] += mass;
}

void AttentionBins::Merge(const AttentionBins& other) {
  broken_ = broken_ || other.broken_;
  const int32_t top = other.bins_.top();
  for (int32_t b = top; b > top - static_cast<int32_t>(kBins); --b) {
    const Int128* added = other.CountsOf(b);
    Int128* counts = added == nullptr ? nullptr : Slot(b);
    if (counts == nullptr) continue;
    for (uint32_t i = 0; i <= head_dim_; ++i) counts[i] += added[i];
  }
}

void AttentionBins::Finish(float* out) const {
  if (broken_) {
    std::fill(out, out + head_dim_, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const int32_t top = bins_.top();
  FinishCounts(CountsOf(top), CountsOf(top - 1), CountsOf(top - 2), head_dim_, out);
}

bool AttentionBins::operator==(const AttentionBins& other) const {
  if (broken_ || other.broken_) return broken_ == other.broken_;
  const int32_t top = bins_.top();
  if (bins_.empty() || other.bins_.empty() || top != other.bins_.top()) {
    return bins_.empty() && other.bins_.empty();
  }
  for (int32_t b = top; b > top - static_cast<int32_t>(kBins); --b) {
    const Int128* mine = CountsOf(b);
    const Int128* theirs = other.CountsOf(b);
    if ((mine == nullptr) != (theirs == nullptr)) return false;
    if (mine != nullptr && !std::equal(mine, mine + head_dim_ + 1, theirs)) return false;
  }
  return true;
}

}  // namespace cleave

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

AttentionBins::AttentionBins(uint32_t head_dim) : head_dim_(head_dim) {
  for (auto& bin : counts_) bin.resize(head_dim + 1);
}

void AttentionBins::Clear() {
  for (auto& bin : counts_) std::fill(bin.begin(), bin.end(), Int128{0});
  empty_ = true;
  broken_ = false;
  top_ = 0;
}

Int128* AttentionBins::Slot(int32_t bin) {
  if (empty_) {
    empty_ = false;
    top_ = bin;
  }
  if (bin <= top_ - static_cast<int32_t>(kBins)) return nullptr;
  // At most three bins fall out, whatever the distance.
  const int32_t from = std::max(top_ + 1, bin - static_cast<int32_t>(kBins) + 1);
  for (int32_t b = from; b <= bin; ++b) {
    auto& fresh = counts_[AttentionSlotOf(b)];
    std::fill(fresh.begin(), fresh.end(), Int128{0});
  }
  top_ = std::max(top_, bin);
  return counts_[AttentionSlotOf(bin)].data();
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
  if (other.empty_) return;
  for (int32_t b = other.top_; b > other.top_ - static_cast<int32_t>(kBins); --b) {
    Int128* counts = Slot(b);
    if (counts == nullptr) continue;
    const auto& added = other.counts_[AttentionSlotOf(b)];
    for (uint32_t i = 0; i <= head_dim_; ++i) counts[i] += added[i];
  }
}

void AttentionBins::Finish(float* out) const {
  if (broken_) {
    std::fill(out, out + head_dim_, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const Int128* high = counts_[AttentionSlotOf(top_)].data();
  const Int128* middle = counts_[AttentionSlotOf(top_ - 1)].data();
  const Int128* low = counts_[AttentionSlotOf(top_ - 2)].data();
  const auto value = [&](uint32_t i) {
    double sum = static_cast<double>(high[i]);
    sum += static_cast<double>(middle[i]) * 0x1p-16;
    sum += static_cast<double>(low[i]) * 0x1p-32;
    return static_cast<float>(sum * 0x1p-36);
  };
  const float mass = value(head_dim_);
  for (uint32_t i = 0; i < head_dim_; ++i) out[i] = value(i) / mass;
}

bool AttentionBins::operator==(const AttentionBins& other) const {
  if (broken_ || other.broken_) return broken_ == other.broken_;
  return empty_ == other.empty_ && top_ == other.top_ && counts_ == other.counts_;
}

}  // namespace cleave

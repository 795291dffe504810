#pragma once
// AttentionBins: what one query head row knows after any set of runs, as integers that add.
//
// A run's partial (integer maximum m, mass l, weighted values o[d]; p = 2^(s-m)) goes to the bin
// b = ⌈m/16⌉ as counts of the quantum 2^(16b-36), each element rounded once to nearest even. Only
// the three highest bins of the row count. What a bin holds depends on its partials alone, so any
// order and any grouping of runs, over tiles or over ranks that Merge, gives the same counts.
//
// A partial with an element at or above 2^72, or not finite, makes the whole row NaN (`broken`), in
// any order as well. Below that, counts stay under 2^108 a run and fit 128 bits for 2^19 runs.
// One thread at a time. Only the constructor allocates.

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/attention_steps.h"

namespace cleave {

__extension__ using Int128 = __int128;

// Which of a row's bins count: top, the highest seen, and the two below it. Bin b has slot b mod 3.
class KeptBins {
 public:
  enum class Entry {
    kTooLow,  // does not count
    kFresh,   // nothing was in this bin before
    kHeld,    // adds to what is there
  };
  // A partial of this bin comes. Bins up to a new top take the slots of those that fall out.
  Entry Admit(int32_t bin);

  [[nodiscard]] bool empty() const { return held_ == 0; }
  [[nodiscard]] int32_t top() const { return top_; }
  [[nodiscard]] bool Holds(int32_t bin) const;
  // Bit i: whether bin top - i holds partials.
  [[nodiscard]] uint32_t UnderTop() const;

 private:
  int32_t top_ = 0;
  uint32_t held_ = 0;  // bit s: slot s holds partials
};

class AttentionBins {
 public:
  explicit AttentionBins(uint32_t head_dim);

  void Clear();
  void AddRun(int32_t m, float l, const float* o);
  // Adds counts that were kept elsewhere: `values` of bin b, then l's.
  void AddCounts(int32_t bin, const int64_t* values, int64_t mass);
  void Merge(const AttentionBins& other);
  // out[i] = float(o[i]) / float(l), each the sum of its three bins from the highest down, in
  // double.
  void Finish(float* out) const;

  [[nodiscard]] bool operator==(const AttentionBins& other) const;

  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] const KeptBins& bins() const { return bins_; }
  // [d] then l; null where nothing was added.
  [[nodiscard]] const Int128* CountsOf(int32_t bin) const;

 private:
  // Makes room for bin b, which may drop lower ones; null when b itself is too low to count.
  Int128* Slot(int32_t bin);

  uint32_t head_dim_;
  bool broken_ = false;
  KeptBins bins_;
  std::array<std::vector<Int128>, attention::kBins> counts_;  // [d] then l, of bins at b mod 3
};

// The answer of `Finish` from counts of three bins, [d] then l each; null counts are zero.
template <typename Count>
void FinishCounts(const Count* high, const Count* middle, const Count* low, uint32_t head_dim,
                  float* out) {
  const auto value = [&](uint32_t i) {
    double sum = high == nullptr ? 0.0 : static_cast<double>(high[i]);
    if (middle != nullptr) sum += static_cast<double>(middle[i]) * 0x1p-16;
    if (low != nullptr) sum += static_cast<double>(low[i]) * 0x1p-32;
    return static_cast<float>(sum * 0x1p-36);
  };
  const float mass = value(head_dim);
  for (uint32_t i = 0; i < head_dim; ++i) out[i] = value(i) / mass;
}

// ⌈m/16⌉, and the slot of three that holds bin b: b mod 3.
int32_t AttentionBinOf(int32_t m);
uint32_t AttentionSlotOf(int32_t bin);

}  // namespace cleave

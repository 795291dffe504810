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

class AttentionBins {
 public:
  explicit AttentionBins(uint32_t head_dim);

  void Clear();
  void AddRun(int32_t m, float l, const float* o);
  // Adds counts that were kept elsewhere: `values` of bin b, then l's.
  void AddCounts(int32_t bin, const int64_t* values, int64_t mass);
  void MarkBroken() { broken_ = true; }
  void Merge(const AttentionBins& other);
  // out[i] = float(o[i]) / float(l), each the sum of its three bins from the highest down, in
  // double.
  void Finish(float* out) const;

  [[nodiscard]] bool operator==(const AttentionBins& other) const;

 private:
  // Makes room for bin b, which may drop lower ones; null when b itself is too low to count.
  Int128* Slot(int32_t bin);

  uint32_t head_dim_;
  bool empty_ = true;
  bool broken_ = false;
  int32_t top_ = 0;  // the highest bin; bins top, top-1 and top-2 lie at b mod 3
  std::array<std::vector<Int128>, attention::kBins> counts_;  // [d] then l
};

// ⌈m/16⌉, and the slot of three that holds bin b: b mod 3.
int32_t AttentionBinOf(int32_t m);
uint32_t AttentionSlotOf(int32_t bin);

}  // namespace cleave

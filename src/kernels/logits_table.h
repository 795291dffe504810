#pragma once
// The logit reductions of one instruction set (logits.cc chooses); semantics in logits.h.

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/logits.h"

namespace cleave {

struct LogitsTable {
  MaxLogit (*find_max)(const float* logits, uint32_t n);
  int64_t (*compute_masses)(const float* logits, uint32_t n, float max, float scale_log2e,
                            int64_t* mass);
};

extern const LogitsTable kLogitsScalar;
extern const LogitsTable kLogitsAvx2;
extern const LogitsTable kLogitsAvx512;

}  // namespace cleave

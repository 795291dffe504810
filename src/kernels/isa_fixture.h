#pragma once
// The instruction sets that a test can compare, for tests and benchmarks.

#include <vector>

#include "kernels/isa.h"

namespace cleave {

// Every instruction set of this processor: the scalar truth first, the best last.
inline std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (CpuSupports(isa)) isas.push_back(isa);
  }
  return isas;
}

}  // namespace cleave

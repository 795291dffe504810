#pragma once
// Isa: which instruction set the kernels use. Chosen once, from cpuid; every choice gives the same
// bits (docs/arithmetic.md), so it changes speed only. CLEAVE_ISA=scalar|avx2|avx512|amx lowers it,
// for tests and comparisons.
// Pure; any thread.

#include <string_view>

#include "base/status.h"

namespace cleave {

enum class Isa {
  kScalar,
  kAvx2,    // AVX2, FMA, F16C
  kAvx512,  // AVX-512 F, BW, DQ, VL and VNNI; bf16 dot products where the processor has them
  kAmx,     // kAvx512, and AMX's tiles for int8 products of many rows
};

std::string_view IsaName(Isa isa);
// Of kAmx: also whether the kernel lets this process use tiles, for which the first call asks it.
bool CpuSupports(Isa isa);
// Whether vdpbf16ps is there, and whether it is worth using: the same chain by fma gives the same
// bits. AMD's takes half the time of two fma; Intel's issues every other cycle, no better than fma.
bool CpuHasBf16Dot();
bool CpuHasFastBf16Dot();
// The best one this processor has, or the lower one CLEAVE_ISA names; kInvalidArgument for a name
// that is unknown or not supported here.
Result<Isa> ChooseIsa();

// What belongs to `isa` of three; kAmx is kAvx512 but for int8 products.
template <typename T>
T OfIsa(Isa isa, T scalar, T avx2, T avx512) {
  if (isa == Isa::kScalar) return scalar;
  return isa == Isa::kAvx2 ? avx2 : avx512;
}

// Rounding to nearest even, denormals flushed to zero on input and output, for the life of the
// object: vdpbf16ps flushes whatever the mode says, so every thread of the model does the same.
class ScopedFpMode {
 public:
  ScopedFpMode();
  ~ScopedFpMode();
  ScopedFpMode(const ScopedFpMode&) = delete;
  ScopedFpMode& operator=(const ScopedFpMode&) = delete;

 private:
  unsigned saved_;
};

}  // namespace cleave

#pragma once
// Peak: what one core computes at most with the instructions that the products of kernels/matmul.h
// are made of. RunPeak issues just these, on registers alone: nothing is loaded, stored or waited
// for, so no product of that kind is faster. (AMX' dots go through the first cache: tiles have no
// other way to the registers.)
//
//   kInt8Scaled  a block of 32 elements of quantised weights: dot products of 8-bit integers, the
//                sum as fp32, the product of two scales, and their fma into the chain
//   kBf16        vdpbf16ps where the products use it, else two fma a pair
//   kF32         fma
//
// Pure; any thread.

#include <cstdint>
#include <string_view>

#include "kernels/isa.h"
#include "kernels/packed_matrix.h"

namespace cleave {

enum class PeakKind : uint8_t { kInt8Scaled, kBf16, kF32 };

// "int8_scaled", "bf16", "f32".
std::string_view PeakKindName(PeakKind kind);
// What bounds products with activations of a kind.
PeakKind PeakKindOf(ActKind acts);

// The scalar kernels are for comparing, not for speed: no peak is measured for them.
inline bool HasPeak(Isa isa) { return isa != Isa::kScalar; }

struct PeakRun {
  uint64_t operations = 0;  // multiply and add count two
  // The sum of every accumulator: a multiply-add is one of 1 by 1. While no accumulator reaches
  // 2^24 it is operations / 2.
  double sum = 0;
};

// `rounds` of some hundred instructions each. HasPeak(isa) and CpuSupports(isa).
PeakRun RunPeak(Isa isa, PeakKind kind, uint64_t rounds);

}  // namespace cleave

#pragma once
// The rounds of RunPeak of every instruction set. Internal to kernels. Plain declarations only:
// sources of an instruction set include it (kernels/matmul_job.h says why).

#include <cstdint>

namespace cleave {

constexpr uint32_t kPeakLanes = 16;  // floats that the accumulators of a row are stored as

// Of one kind: `run` does rounds and stores the accumulators of `rows` rows, [rows][kPeakLanes];
// one round is row_operations for each of them.
struct PeakLoop {
  void (*run)(uint64_t rounds, float* accumulators);
  uint32_t rows;
  uint32_t row_operations;
};

constexpr uint32_t kPeakMaxRows = 24;

extern const PeakLoop kPeakInt8Avx2;
extern const PeakLoop kPeakF32Avx2;
extern const PeakLoop kPeakInt8Avx512;
extern const PeakLoop kPeakF32Avx512;
extern const PeakLoop kPeakDotBf16;  // by vdpbf16ps
extern const PeakLoop kPeakInt8Amx;

}  // namespace cleave

#include "kernels/peak.h"

#include <array>

#include "base/status.h"
#include "kernels/peak_table.h"

namespace cleave {
namespace {

const PeakLoop& LoopOf(Isa isa, PeakKind kind) {
  const bool wide = isa >= Isa::kAvx512;
  switch (kind) {
    case PeakKind::kInt8Scaled:
      if (isa == Isa::kAmx) return kPeakInt8Amx;
      return wide ? kPeakInt8Avx512 : kPeakInt8Avx2;
    case PeakKind::kBf16:
      if (wide && CpuHasFastBf16Dot()) return kPeakDotBf16;
      break;
    case PeakKind::kF32:
      break;
  }
  return wide ? kPeakF32Avx512 : kPeakF32Avx2;
}

}  // namespace

std::string_view PeakKindName(PeakKind kind) {
  switch (kind) {
    case PeakKind::kInt8Scaled:
      return "int8_scaled";
    case PeakKind::kBf16:
      return "bf16";
    case PeakKind::kF32:
      return "f32";
  }
  return "unknown";
}

PeakKind PeakKindOf(ActKind acts) {
  if (acts == ActKind::kInt8) return PeakKind::kInt8Scaled;
  return acts == ActKind::kBF16 ? PeakKind::kBf16 : PeakKind::kF32;
}

PeakRun RunPeak(Isa isa, PeakKind kind, uint64_t rounds) {
  CLEAVE_CHECK(HasPeak(isa));
  const PeakLoop& loop = LoopOf(isa, kind);
  alignas(64) std::array<float, kPeakMaxRows * kPeakLanes> accumulators{};
  loop.run(rounds, accumulators.data());
  PeakRun result{.operations = rounds * loop.rows * loop.row_operations};
  for (uint32_t i = 0; i < loop.rows * kPeakLanes; ++i) result.sum += accumulators[i];
  return result;
}

}  // namespace cleave

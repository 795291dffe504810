#include "kernels/isa.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <array>
#include <cstdlib>

namespace cleave {
namespace {

constexpr std::array<Isa, 4> kBestFirst = {Isa::kAmx, Isa::kAvx512, Isa::kAvx2, Isa::kScalar};

// MXCSR: bit 6 reads denormals as zero, bits 7-12 mask every exception, bits 13-14 are the rounding
// mode (0: nearest even), bit 15 flushes denormal results to zero.
constexpr unsigned kDenormalsAreZero = 1U << 6;
constexpr unsigned kMaskExceptions = 0x3FU << 7;
constexpr unsigned kFlushToZero = 1U << 15;

bool CpuHasF16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// __builtin_cpu_supports also asks whether the operating system saves the registers.
bool CpuHasAvx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && CpuHasF16c();
}

bool CpuHasAvx512() {
  return CpuHasAvx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
}

// Leaf 7: the processor has tiles, and dot products of bytes in them. A process asks the kernel for
// the 8 KiB of state once, for all its threads.
bool AskForTiles() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kAmxTile = 1U << 24;
  constexpr unsigned kAmxInt8 = 1U << 25;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxTile) == 0 || (d & kAmxInt8) == 0) return false;
  constexpr int64_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int64_t kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool CpuHasTiles() {
  static const bool has = CpuHasAvx512() && AskForTiles();
  return has;
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

bool CpuSupports(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return CpuHasAvx2();
    case Isa::kAvx512:
      return CpuHasAvx512();
    case Isa::kAmx:
      return CpuHasTiles();
  }
  return false;
}

bool CpuHasBf16Dot() { return CpuHasAvx512() && __builtin_cpu_supports("avx512bf16") != 0; }

bool CpuHasFastBf16Dot() { return CpuHasBf16Dot() && __builtin_cpu_is("amd") != 0; }

Result<Isa> ChooseIsa() {
  const char* wanted = std::getenv("CLEAVE_ISA");
  if (wanted == nullptr || *wanted == '\0') {
    for (Isa isa : kBestFirst) {
      if (CpuSupports(isa)) return isa;
    }
  }
  for (Isa isa : kBestFirst) {
    if (IsaName(isa) != wanted) continue;
    if (CpuSupports(isa)) return isa;
    return InvalidArgument(
        fmt::format("CLEAVE_ISA={}: this processor does not have it; unset it to use the best one "
                    "it has",
                    wanted));
  }
  return InvalidArgument(fmt::format(
      "CLEAVE_ISA={} is not known; use scalar, avx2, avx512 or amx, or unset it", wanted));
}

ScopedFpMode::ScopedFpMode() : saved_(_mm_getcsr()) {
  _mm_setcsr(kDenormalsAreZero | kMaskExceptions | kFlushToZero);
}

ScopedFpMode::~ScopedFpMode() { _mm_setcsr(saved_); }

}  // namespace cleave

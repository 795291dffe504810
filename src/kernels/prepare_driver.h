// What the vector versions of preparing activations share. Included once by each source of an
// instruction set; unnamed namespace: see tile_driver.h.

#pragma once

#include "kernels/matmul_job.h"

namespace cleave {
namespace {  // NOLINT(google-build-namespaces)

constexpr float kLargest = 0x1.fffffep127F;

// A block of zeros: scale 0, or NaN where an element is not finite.
inline void SetZero(const QuantiseJob& job, uint32_t b, float scale) {
  __builtin_memset(job.q + 32 * static_cast<size_t>(b), 0, 32);
  job.scale[b] = scale;
  job.sum[b] = 0;
  job.half_sum[b] = 0;
}

}  // namespace
}  // namespace cleave

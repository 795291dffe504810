#pragma once
// Record: the bytes of one (group, block) of a PackedMatrix: 16 rows ("lanes") × 32 elements.
//
//   quantised   codes, then high bits, then scales, then minimums
//     codes     8 bits: eight vectors of 64 B; byte 4·lane + i of vector j is element 4j + i
//               4, 5, 6 bits: four vectors; the low nibble of byte 4·lane + i of vector v is
//               element 8v + i, the high nibble element 8v + 4 + i
//     high bits 5 bits: one vector; bit j of byte 4·lane + i is bit 4 of element 4j + i
//               6 bits: two vectors; bits 2t, 2t + 1 of vector p are bits 4, 5 of element 16p + 4t
//               + i
//     scales    fp16 [16], or fp32 [16] (K-quants: the effective scale), twice where each half of
//               16 elements has its own
//     minimums  fp16 [16], or fp32 [16]: what is added, so the negative of a K-quant's minimum
//   bf16        sixteen vectors: lane's 32 bits of vector j are elements 2j (low) and 2j + 1
//   f16, f32    thirty-two vectors of 16 lanes
//
//   type   codes  high  scales  minimums  bytes     type  bytes
//   Q4_0   256    0     32      0         288       F32   2048
//   Q4_1   256    0     32      32        320       F16   1024
//   Q5_0   256    64    32      0         352       BF16  1024
//   Q5_1   256    64    32      32        384
//   Q8_0   512    0     32      0         544
//   Q4_K   256    0     64      64        384
//   Q5_K   256    64    64      64        448
//   Q6_K   256    128   128     0         512
// A row's value is float(code - zero) · scale + minimum. Internal to kernels. Constant expressions
// only: sources of every instruction set include it.

#include <cstdint>

#include "tensor/dtype.h"

namespace cleave {

struct RecordLayout {
  uint32_t code_bits = 0;  // 4, 5, 6 or 8; 16 or 32 for plain types
  uint32_t zero = 0;       // the code that stands for zero
  uint32_t scales = 0;     // fp32 or fp16 scales a row: 1, or 2 for halves of 16; 0 for plain types
  uint32_t high_at = 0;    // byte offsets in the record
  uint32_t scale_at = 0;
  uint32_t min_at = 0;
  uint32_t bytes = 0;
  bool half_scales = false;
  bool has_min = false;
  bool pairs = false;  // bf16: elements 2j and 2j + 1 of a lane side by side
};

constexpr RecordLayout QuantLayout(DType dtype, uint32_t bits, uint32_t scales,
                                   uint32_t scale_bytes) {
  const bool has_min = HasMin(dtype);
  RecordLayout r;
  r.code_bits = bits;
  r.zero = ZeroCode(dtype);
  r.scales = scales;
  r.half_scales = scale_bytes == 2;
  r.has_min = has_min;
  r.high_at = bits == 8 ? 512 : 256;
  r.scale_at = r.high_at + (bits == 5 ? 64 : bits == 6 ? 128 : 0);
  r.min_at = r.scale_at + 16 * scales * scale_bytes;
  r.bytes = r.min_at + (has_min ? 16 * scale_bytes : 0);
  return r;
}

constexpr RecordLayout PlainLayout(uint32_t bits) {
  RecordLayout r;
  r.code_bits = bits;
  r.bytes = 16 * 32 * bits / 8;
  return r;
}

constexpr RecordLayout LayoutOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return PlainLayout(32);
    case DType::kF16:
      return PlainLayout(16);
    case DType::kBF16: {
      RecordLayout r = PlainLayout(16);
      r.pairs = true;
      return r;
    }
    case DType::kQ40:
    case DType::kQ41:
      return QuantLayout(dtype, 4, 1, 2);
    case DType::kQ50:
    case DType::kQ51:
      return QuantLayout(dtype, 5, 1, 2);
    case DType::kQ80:
      return QuantLayout(dtype, 8, 1, 2);
    case DType::kQ4K:
      return QuantLayout(dtype, 4, 1, 4);
    case DType::kQ5K:
      return QuantLayout(dtype, 5, 1, 4);
    case DType::kQ6K:
      return QuantLayout(dtype, 6, 2, 4);
  }
  return {};
}

static_assert(LayoutOf(DType::kQ41).bytes == 320 && LayoutOf(DType::kQ80).bytes == 544 &&
              LayoutOf(DType::kQ6K).bytes == 512 && LayoutOf(DType::kQ5K).bytes == 448);

}  // namespace cleave

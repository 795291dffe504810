#pragma once
// KvType: how a KV cache stores keys and values.
//
// kInt8: a row (a token's key or value of one KV head, [d]) is int8 with one fp32 scale:
// scale = amax/127, q = rne(x·(1/scale)), each operation rounded once in fp32. A row whose amax is
// under 2^-100 is zeros of scale 0; one that holds a NaN or an infinity is zeros of scale NaN, so
// that whatever sees it becomes NaN. Nothing but the row decides: not its block, step or split.
// The scale takes 4 bytes of d + 4. As a half it would take 2, overflow where amax passes 8.3e6,
// lose bits where it is under 0.008, and move every other row by up to 2^-11.

#include <cstdint>

namespace cleave {

enum class KvType : uint8_t { kF32, kF16, kBF16, kInt8 };

}  // namespace cleave

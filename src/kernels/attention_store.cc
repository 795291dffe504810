// How keys and values get into the cache.

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "kernels/attention_int8.h"
#include "kernels/attention_scratch.h"
#include "kernels/matmul_job.h"

namespace cleave {
namespace {

using attention::kLanes;
using attention::Steps;

// A key's elements, as convert(first, n, out) makes them, to its lane of a group.
template <typename T, typename Convert>
void SpreadKey(uint32_t d, const Convert& convert, T* lane) {
  T part[64];
  for (uint32_t i = 0; i < d; i += 64) {
    const uint32_t n = std::min<uint32_t>(64, d - i);
    convert(i, n, part);
    for (uint32_t k = 0; k < n; ++k) lane[static_cast<size_t>(i + k) * kLanes] = part[k];
  }
}

// The first element of a key in a head's block [.][d][16].
size_t KeyAt(uint32_t offset, uint32_t d) {
  return static_cast<size_t>(offset / kLanes) * kLanes * d + offset % kLanes;
}

void StoreInt8(const Steps& steps, const KvShape& shape, const float* key, const float* value,
               uint32_t offset, std::byte* head_block) {
  const uint32_t d = shape.head_dim;
  const auto convert = [&](const float* x, float inverse, uint32_t n, int8_t* out) {
    if (inverse != 0) return steps.to_int8(x, inverse, n, out);
    std::fill_n(out, n, int8_t{0});
  };
  const attention::Int8Scale keys_by = attention::Int8ScaleOf(steps.largest(key, d));
  const attention::Int8Scale values_by = attention::Int8ScaleOf(steps.largest(value, d));
  auto* block = reinterpret_cast<int8_t*>(head_block);
  SpreadKey<int8_t>(
      d, [&](uint32_t i, uint32_t n, int8_t* out) { convert(key + i, keys_by.inverse, n, out); },
      block + KeyAt(offset, d));
  convert(value, values_by.inverse, d,
          block + (static_cast<size_t>(shape.block_tokens) + offset) * d);
  const auto store = [&](size_t at, float scale) {
    std::memcpy(head_block + at + offset * sizeof scale, &scale, sizeof scale);
  };
  store(shape.key_scales_at(), keys_by.scale);
  store(shape.value_scales_at(), values_by.scale);
}

}  // namespace

std::string_view NameOf(KvType type) {
  constexpr std::array<std::string_view, 4> kNames = {"float32", "float16", "bfloat16",
                                                      "int8_per_token_head"};
  return kNames[static_cast<size_t>(type)];
}

attention::Int8Scale attention::Int8ScaleOf(float largest) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (!(largest < kInfinity)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (largest < kSmallestAmax) return {0, 0};
  const float scale = largest / 127.0F;
  return {scale, 1.0F / scale};
}

void StoreKv(Isa isa, const KvShape& shape, const float* key, const float* value, uint32_t offset,
             std::byte* head_block) {
  if (isa == Isa::kScalar || shape.type == KvType::kF32) {
    attention::StoreKvScalar(shape, key, value, offset, head_block);
    return;
  }
  const Steps& steps = attention::StepsFor(isa);
  if (shape.type == KvType::kInt8) {
    StoreInt8(steps, shape, key, value, offset, head_block);
    return;
  }
  const uint32_t d = shape.head_dim;
  auto* block = reinterpret_cast<uint16_t*>(head_block);
  steps.to_cache(shape.type, value, d,
                 block + (static_cast<size_t>(shape.block_tokens) + offset) * d);
  SpreadKey<uint16_t>(
      d,
      [&](uint32_t i, uint32_t n, uint16_t* out) { steps.to_cache(shape.type, key + i, n, out); },
      block + KeyAt(offset, d));
}

}  // namespace cleave

#pragma once
// The steps of Attention that deal with one row or one group, on Lanes: scaling and widening before
// the tiles, and the way from a run's partial to counts and from counts to the answer. L is the
// Lanes of the including source, W its WideLanes.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention_tile_lanes.h"

namespace cleave::attention {

template <typename L, typename W>
struct LaneRows {
  static void ScaleQuery(const float* in, float scale, uint32_t d, float* out) {
    const L s = L::Set(scale);
    uint32_t i = 0;
    for (; i + kLanes <= d; i += kLanes) (L::Load(in + i) * s).Store(out + i);
    if (i < d) (L::LoadFirst(in + i, d - i) * s).StoreFirst(out + i, d - i);
  }

  // n elements to fp32, and zeros up to the next multiple of 16.
  template <KvType kType>
  static void Widen(const std::byte* in, uint32_t n, float* out) {
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      LaneTiles<L>::template LoadElements<kType>(in + i * LaneTiles<L>::template Size<kType>())
          .Store(out + i);
    if (i == n) return;
    std::byte rest[kLanes * 4] = {};
    std::memcpy(rest, in + i * LaneTiles<L>::template Size<kType>(),
                (n - i) * LaneTiles<L>::template Size<kType>());
    LaneTiles<L>::template LoadElements<kType>(rest).Store(out + i);
  }

  template <KvType kType>
  static void WidenTyped(const std::byte* keys, const std::byte* values, uint32_t d,
                         uint32_t padded_dim, float* keys_out, float* values_out) {
    Widen<kType>(keys, d * kLanes, keys_out);
    for (uint32_t j = 0; j < kLanes; ++j) {
      Widen<kType>(values + static_cast<size_t>(j) * d * LaneTiles<L>::template Size<kType>(), d,
                   values_out + static_cast<size_t>(j) * padded_dim);
    }
  }

  static void WidenGroup(KvType type, const std::byte* keys, const std::byte* values, uint32_t d,
                         uint32_t padded_dim, float* keys_out, float* values_out) {
    switch (type) {
      case KvType::kF16:
        return WidenTyped<KvType::kF16>(keys, values, d, padded_dim, keys_out, values_out);
      case KvType::kBF16:
        return WidenTyped<KvType::kBF16>(keys, values, d, padded_dim, keys_out, values_out);
      case KvType::kInt8:
        return WidenTyped<KvType::kInt8>(keys, values, d, padded_dim, keys_out, values_out);
      default:
        return WidenTyped<KvType::kF32>(keys, values, d, padded_dim, keys_out, values_out);
    }
  }

  static float SumLanes(const float* l) { return L::Sum(L::Load(l)); }

  static float Largest(const float* x, uint32_t n) {
    L largest = L::Zero();
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) largest = L::MaxMagnitude(L::Load(x + i), largest);
    if (i < n) largest = L::MaxMagnitude(L::LoadFirst(x + i, n - i), largest);
    return L::LargestMagnitude(largest);
  }

  static void SetQuanta(const float* x, float unit, uint32_t n, int64_t* counts) {
    const L u = L::Set(unit);
    for (uint32_t i = 0; i < n; i += kLanes) L::StoreInt64(L::Load(x + i) * u, counts + i);
  }

  static void AddQuanta(const float* x, float unit, uint32_t n, int64_t* counts) {
    const L u = L::Set(unit);
    for (uint32_t i = 0; i < n; i += kLanes) L::AddInt64(L::Load(x + i) * u, counts + i);
  }

  // Sixteen elements from counts [16].
  static L Combine(const int64_t* high, const int64_t* middle, const int64_t* low) {
    float x[kLanes];
    for (uint32_t i = 0; i < kLanes; i += W::kCount) {
      W sum = W::FromInt64(high + i);
      if (middle != nullptr) sum = sum + W::FromInt64(middle + i) * W::Set(0x1p-16);
      if (low != nullptr) sum = sum + W::FromInt64(low + i) * W::Set(0x1p-32);
      (sum * W::Set(0x1p-36)).Store(x + i);
    }
    return L::Load(x);
  }

  static void Finish(const int64_t* high, const int64_t* middle, const int64_t* low, uint32_t d,
                     uint32_t mass_index, float* out) {
    const auto at = [&](uint32_t i) {
      return Combine(high + i, middle == nullptr ? nullptr : middle + i,
                     low == nullptr ? nullptr : low + i);
    };
    float mass[kLanes];
    at(mass_index).Store(mass);
    const L divisor = L::Set(mass[0]);
    uint32_t i = 0;
    for (; i + kLanes <= d; i += kLanes) (at(i) / divisor).Store(out + i);
    if (i < d) (at(i) / divisor).StoreFirst(out + i, d - i);
  }

  static uint16_t ToBrain(float x) {
    uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16U) | 0x40U);
    return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
  }

  static void ToCache(KvType type, const float* x, uint32_t n, uint16_t* out) {
    if (type == KvType::kBF16) {
      for (uint32_t i = 0; i < n; ++i) out[i] = ToBrain(x[i]);
      return;
    }
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) L::Load(x + i).StoreHalf(out + i);
    if (i == n) return;
    uint16_t rest[kLanes];
    L::LoadFirst(x + i, n - i).StoreHalf(rest);
    std::memcpy(out + i, rest, (n - i) * sizeof(uint16_t));
  }

  static void ToInt8(const float* x, float inverse, uint32_t n, int8_t* out) {
    const L factor = L::Set(inverse);
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) (L::Load(x + i) * factor).StoreInt8(out + i);
    if (i == n) return;
    int8_t rest[kLanes];
    (L::LoadFirst(x + i, n - i) * factor).StoreInt8(rest);
    std::memcpy(out + i, rest, n - i);
  }
};

}  // namespace cleave::attention

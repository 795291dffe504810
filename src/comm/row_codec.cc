#include "comm/row_codec.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace cleave {
namespace {

int32_t Int32At(const std::byte* data, uint32_t i) {
  int32_t value = 0;
  std::memcpy(&value, data + size_t{i} * sizeof value, sizeof value);
  return value;
}

// Elements [begin, n), one by one: the whole row on plain processors, the rest of it on others.
void NarrowFrom(uint32_t begin, const int64_t* from, uint32_t n, int32_t* to) {
  for (uint32_t i = begin; i < n; ++i) to[i] = static_cast<int32_t>(from[i]);
}
void SumNarrowFrom(uint32_t begin, const int64_t* mine, const PeerRow* peers, uint32_t peer_count,
                   uint32_t n, float scale, float* out) {
  for (uint32_t i = begin; i < n; ++i) {
    int64_t sum = mine[i];
    for (uint32_t p = 0; p < peer_count; ++p) sum += Int32At(peers[p].data, i);
    out[i] = static_cast<float>(sum) * scale;
  }
}
void ToFloatFrom(uint32_t begin, const int64_t* sums, uint32_t n, float scale, float* out) {
  for (uint32_t i = begin; i < n; ++i) out[i] = static_cast<float>(sums[i]) * scale;
}

void NarrowScalar(const int64_t* from, uint32_t n, int32_t* to, StoreKind /*store*/) {
  NarrowFrom(0, from, n, to);
}
void SumNarrowScalar(const int64_t* mine, const PeerRow* peers, uint32_t peer_count, uint32_t n,
                     float scale, float* out) {
  SumNarrowFrom(0, mine, peers, peer_count, n, scale, out);
}
void ToFloatScalar(const int64_t* sums, uint32_t n, float scale, float* out) {
  ToFloatFrom(0, sums, n, scale, out);
}

// Elements before the first one at a multiple of `alignment` bytes.
uint32_t HeadOf(const int32_t* to, uint32_t n, uintptr_t alignment) {
  const uintptr_t past = reinterpret_cast<uintptr_t>(to) % alignment;
  return past == 0 ? 0 : std::min<uint32_t>(n, static_cast<uint32_t>((alignment - past) / 4));
}

[[gnu::target("avx2")]] __m256i Narrow8(const int64_t* from) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 4));
  const __m256i even = _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), 0x88));
  return _mm256_permute4x64_epi64(even, 0xd8);
}

[[gnu::target("avx2")]] void NarrowAvx2(const int64_t* from, uint32_t n, int32_t* to,
                                        StoreKind store) {
  uint32_t i = 0;
  if (store == StoreKind::kStreaming) {
    i = HeadOf(to, n, 32);
    NarrowFrom(0, from, i, to);
    for (; i + 8 <= n; i += 8) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), Narrow8(from + i));
    }
  }
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), Narrow8(from + i));
  }
  NarrowFrom(i, from, n, to);
}

[[gnu::target("avx2")]] void SumNarrowAvx2(const int64_t* mine, const PeerRow* peers,
                                           uint32_t peer_count, uint32_t n, float scale,
                                           float* out) {
  const __m256 scales = _mm256_set1_ps(scale);
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i own = Narrow8(mine + i);
    __m256d low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(own));
    __m256d high = _mm256_cvtepi32_pd(_mm256_extracti128_si256(own, 1));
    for (uint32_t p = 0; p < peer_count; ++p) {
      const auto* at = reinterpret_cast<const __m128i*>(peers[p].data + size_t{i} * 4);
      low = _mm256_add_pd(low, _mm256_cvtepi32_pd(_mm_loadu_si128(at)));
      high = _mm256_add_pd(high, _mm256_cvtepi32_pd(_mm_loadu_si128(at + 1)));
    }
    const __m256 sum = _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(sum, scales));
  }
  SumNarrowFrom(i, mine, peers, peer_count, n, scale, out);
}

[[gnu::target("avx512f")]] void NarrowAvx512(const int64_t* from, uint32_t n, int32_t* to,
                                             StoreKind store) {
  uint32_t i = 0;
  if (store == StoreKind::kStreaming) {
    i = HeadOf(to, n, 64);
    NarrowFrom(0, from, i, to);
    for (; i + 16 <= n; i += 16) {
      const __m256i low = _mm512_cvtepi64_epi32(_mm512_loadu_si512(from + i));
      const __m256i high = _mm512_cvtepi64_epi32(_mm512_loadu_si512(from + i + 8));
      const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), both);
    }
  }
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm512_cvtepi64_epi32(_mm512_loadu_si512(from + i)));
  }
  NarrowFrom(i, from, n, to);
}

[[gnu::target("avx512f,avx512dq")]] void SumNarrowAvx512(const int64_t* mine, const PeerRow* peers,
                                                         uint32_t peer_count, uint32_t n,
                                                         float scale, float* out) {
  const __m256 scales = _mm256_set1_ps(scale);
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m512d sum = _mm512_cvtepi64_pd(_mm512_loadu_si512(mine + i));
    for (uint32_t p = 0; p < peer_count; ++p) {
      const auto* at = reinterpret_cast<const __m256i*>(peers[p].data + size_t{i} * 4);
      sum = _mm512_add_pd(sum, _mm512_cvtepi32_pd(_mm256_loadu_si256(at)));
    }
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm512_cvtpd_ps(sum), scales));
  }
  SumNarrowFrom(i, mine, peers, peer_count, n, scale, out);
}

[[gnu::target("avx512f,avx512dq")]] void ToFloatAvx512(const int64_t* sums, uint32_t n, float scale,
                                                       float* out) {
  const __m256 scales = _mm256_set1_ps(scale);
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 value = _mm512_cvtepi64_ps(_mm512_loadu_si512(sums + i));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(value, scales));
  }
  ToFloatFrom(i, sums, n, scale, out);
}

constexpr RowCodec kScalarCodec = {NarrowScalar, SumNarrowScalar, ToFloatScalar};
constexpr RowCodec kAvx2Codec = {NarrowAvx2, SumNarrowAvx2, ToFloatScalar};
constexpr RowCodec kAvx512Codec = {NarrowAvx512, SumNarrowAvx512, ToFloatAvx512};

// Sums of either width go through a strip of int64 that stays in the first cache.
constexpr uint32_t kStrip = 256;

void AddPeer(const PeerRow& peer, uint32_t begin, uint32_t n, int64_t* sums) {
  if (!peer.wide) {
    for (uint32_t i = 0; i < n; ++i) sums[i] += Int32At(peer.data, begin + i);
    return;
  }
  std::array<int64_t, kStrip> theirs;
  std::memcpy(theirs.data(), peer.data + size_t{begin} * 8, size_t{n} * 8);
  for (uint32_t i = 0; i < n; ++i) {
    // Partial sums of a damaged message may overflow; they wrap, like the sum of all would.
    sums[i] =
        static_cast<int64_t>(static_cast<uint64_t>(sums[i]) + static_cast<uint64_t>(theirs[i]));
  }
}

}  // namespace

const RowCodec* RowCodecOf(uint32_t index) {
  std::array<const RowCodec*, 4> all = {&kScalarCodec, nullptr, nullptr, nullptr};
  uint32_t count = 1;
  if (__builtin_cpu_supports("avx2")) all[count++] = &kAvx2Codec;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
    all[count++] = &kAvx512Codec;
  }
  return index < count ? all[index] : nullptr;
}

const RowCodec& BestRowCodec() {
  const RowCodec* best = &kScalarCodec;
  for (uint32_t i = 0; RowCodecOf(i) != nullptr; ++i) best = RowCodecOf(i);
  return *best;
}

void SumRow(const RowCodec& codec, const int64_t* mine, bool mine_wide, const PeerRow* peers,
            uint32_t peer_count, uint32_t n, int32_t shift, float* out) {
  const float scale = QuantumOf(shift);
  const bool any_wide =
      mine_wide || std::any_of(peers, peers + peer_count, [](const PeerRow& p) { return p.wide; });
  if (!any_wide) return codec.sum_narrow(mine, peers, peer_count, n, scale, out);
  if (peer_count == 0) return codec.to_float(mine, n, scale, out);
  std::array<int64_t, kStrip> sums;
  for (uint32_t begin = 0; begin < n; begin += kStrip) {
    const uint32_t count = std::min(kStrip, n - begin);
    std::copy_n(mine + begin, count, sums.begin());
    for (uint32_t p = 0; p < peer_count; ++p) AddPeer(peers[p], begin, count, sums.data());
    codec.to_float(sums.data(), count, scale, out + begin);
  }
}

void CopyTo(std::byte* to, const std::byte* from, size_t n, StoreKind store) {
  if (n == 0) return;
  if (store == StoreKind::kOrdinary) {
    std::memcpy(to, from, n);
    return;
  }
  const size_t past = reinterpret_cast<uintptr_t>(to) % 16;
  size_t i = past == 0 ? 0 : std::min(n, 16 - past);
  std::memcpy(to, from, i);
  for (; i + 16 <= n; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
  std::memcpy(to + i, from + i, n - i);
}

void StreamFence() { _mm_sfence(); }

float QuantumOf(int32_t shift) {
  constexpr int32_t kBias = 127;
  constexpr uint32_t kMantissaBits = 23;
  const int32_t clamped = std::clamp(shift, -kMaxShift, kMaxShift);
  return std::bit_cast<float>(static_cast<uint32_t>(kBias - clamped) << kMantissaBits);
}

}  // namespace cleave

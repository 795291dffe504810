#pragma once
// The steps of Attention on Lanes, once for every vector instruction set. L is the Lanes of the
// including source, W its WideLanes.
//
// Scores have positions in lanes and run over d; values have d in lanes and run over positions.
// Both are register tiles of R query rows × N Lanes, at most L::kAccumulators of them, so that a
// key or value that is loaded (and widened) serves R rows.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention_steps.h"
#include "kernels/math_lanes.h"

namespace cleave::attention {

template <typename L, typename W>
struct LaneSteps {
  // A few query rows that go through a chunk together; positions are relative to the chunk.
  struct Strip {
    uint32_t rows;
    uint32_t begin[L::kRows];
    uint32_t end[L::kRows];
    float* q;
    float* o;
    float* p;
  };

  template <DType kType>
  static constexpr size_t Size() {
    return kType == DType::kF32 ? 4 : 2;
  }

  template <DType kType>
  static L LoadElements(const std::byte* p) {
    if constexpr (kType == DType::kF32) {
      return L::Load(reinterpret_cast<const float*>(p));
    } else if constexpr (kType == DType::kF16) {
      return L::LoadHalf(p);
    } else {
      return L::LoadBrain(p);
    }
  }

  // ---- scores ----

  template <DType kType, int R, int N>
  static void ScoreTile(const std::byte* const* keys, const Rows& rows, const Strip& strip,
                        uint32_t row, uint32_t group) {
    L sum[R][N];
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) sum[r][n] = L::Zero();
    }
    const float* q = strip.q + static_cast<size_t>(row) * rows.padded_dim;
    for (uint32_t i = 0; i < rows.head_dim; ++i) {
      L key[N];
      for (int n = 0; n < N; ++n) {
        key[n] = LoadElements<kType>(keys[n] + static_cast<size_t>(i) * kLanes * Size<kType>());
      }
      for (int r = 0; r < R; ++r) {
        const L query = L::Set(q[static_cast<size_t>(r) * rows.padded_dim + i]);
        for (int n = 0; n < N; ++n) sum[r][n] = L::Fma(query, key[n], sum[r][n]);
      }
    }
    for (int r = 0; r < R; ++r) {
      float* p = strip.p + (row + static_cast<uint32_t>(r)) * kChunk + group * kLanes;
      for (int n = 0; n < N; ++n) sum[r][n].Store(p + n * static_cast<int>(kLanes));
    }
  }

  template <DType kType, int R>
  static void Scores(const Chunk& chunk, const Rows& rows, const Strip& strip, uint32_t first,
                     uint32_t last) {
    uint32_t g = first;
    if constexpr (8 * R <= L::kAccumulators) {
      for (; g + 8 <= last; g += 8) ScoreTile<kType, R, 8>(chunk.keys + g, rows, strip, 0, g);
    }
    if constexpr (4 * R <= L::kAccumulators) {
      for (; g + 4 <= last; g += 4) ScoreTile<kType, R, 4>(chunk.keys + g, rows, strip, 0, g);
    }
    if constexpr (2 * R <= L::kAccumulators) {
      for (; g + 2 <= last; g += 2) ScoreTile<kType, R, 2>(chunk.keys + g, rows, strip, 0, g);
    }
    for (; g < last; ++g) ScoreTile<kType, R, 1>(chunk.keys + g, rows, strip, 0, g);
  }

  // ---- softmax ----

  static float Ceiling(float x) {
    if (!(x > -kMaximumLimit)) return -kMaximumLimit;
    if (x >= kMaximumLimit) return kMaximumLimit;
    const auto whole = static_cast<float>(static_cast<int32_t>(x));
    return whole < x ? whole + 1.0F : whole;
  }

  // 2^(from - to) for whole numbers from <= to; 0 where that is not a normal number.
  static float Rescale(float from, float to) {
    const float n = from - to;
    if (n < -126.0F) return 0.0F;
    const auto bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
    float power = 0;
    std::memcpy(&power, &bits, sizeof power);
    return power;
  }

  static void RaiseMaximum(const Rows& rows, uint32_t row, float m) {
    const L factor = L::Set(Rescale(rows.m[row], m));
    rows.m[row] = m;
    float* l = rows.l + static_cast<size_t>(row) * kLanes;
    (L::Load(l) * factor).Store(l);
    float* o = rows.o + static_cast<size_t>(row) * rows.stride;
    for (uint32_t i = 0; i < rows.padded_dim; i += kLanes) (L::Load(o + i) * factor).Store(o + i);
  }

  // Scores to probabilities for positions [begin, end) of the chunk; others of the same groups
  // become 0.
  static void Softmax(const Rows& rows, uint32_t row, uint32_t begin, uint32_t end) {
    float* p = rows.p + static_cast<size_t>(row) * kChunk;
    const uint32_t first = begin / kLanes;
    const uint32_t last = (end - 1) / kLanes;
    const auto seen = [&](uint32_t g) {
      return L::Between(g == first ? begin % kLanes : 0, g == last ? end - last * kLanes : kLanes);
    };
    const L none = L::Set(-kMaximumLimit);
    L highest = none;
    for (uint32_t g = first; g <= last; ++g) {
      L score = L::Load(p + g * kLanes);
      if (g == first || g == last) score = L::Select(seen(g), score, none);
      highest = L::Max(score, highest);
    }
    const float m = Ceiling(L::Largest(highest));
    if (m > rows.m[row]) RaiseMaximum(rows, row, m);

    const L maximum = L::Set(rows.m[row]);
    L l = L::Load(rows.l + static_cast<size_t>(row) * kLanes);
    for (uint32_t g = first; g <= last; ++g) {
      const L exponent = L::Min(L::Zero(), L::Load(p + g * kLanes) - maximum);
      L mass = Exp2InRange(exponent);
      mass = L::Select(L::Less(exponent, L::Set(kScoreFloor)), L::Zero(), mass);
      if (g == first || g == last) mass = L::Select(seen(g), mass, L::Zero());
      mass.Store(p + g * kLanes);
      l = l + mass;
    }
    l.Store(rows.l + static_cast<size_t>(row) * kLanes);
  }

  // ---- values ----

  // o[r][16·column …] += Σ p·v over positions [begin, end), ascending.
  template <DType kType, int R, int N>
  static void ValueTile(const Chunk& chunk, const Rows& rows, const Strip& strip, uint32_t row,
                        uint32_t column, uint32_t begin, uint32_t end) {
    float* o = strip.o + static_cast<size_t>(row) * rows.stride + column * kLanes;
    const float* p = strip.p + static_cast<size_t>(row) * kChunk;
    L sum[R][N];
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) {
        sum[r][n] =
            L::Load(o + static_cast<size_t>(r) * rows.stride + n * static_cast<int>(kLanes));
      }
    }
    const size_t step = rows.padded_dim * Size<kType>();
    for (uint32_t j = begin; j < end;) {
      const uint32_t group = j / kLanes;
      const uint32_t stop = (group + 1) * kLanes < end ? (group + 1) * kLanes : end;
      const std::byte* v =
          chunk.values[group] + (j % kLanes) * step + column * kLanes * Size<kType>();
      for (; j < stop; ++j, v += step) {
        L value[N];
        for (int n = 0; n < N; ++n) {
          value[n] = LoadElements<kType>(v + static_cast<size_t>(n) * kLanes * Size<kType>());
        }
        for (int r = 0; r < R; ++r) {
          const L mass = L::Set(p[static_cast<size_t>(r) * kChunk + j]);
          for (int n = 0; n < N; ++n) sum[r][n] = L::Fma(mass, value[n], sum[r][n]);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) {
        sum[r][n].Store(o + static_cast<size_t>(r) * rows.stride + n * static_cast<int>(kLanes));
      }
    }
  }

  template <DType kType, int R>
  static void Values(const Chunk& chunk, const Rows& rows, const Strip& strip, uint32_t row,
                     uint32_t begin, uint32_t end) {
    if (begin >= end) return;
    const uint32_t columns = rows.padded_dim / kLanes;
    uint32_t c = 0;
    if constexpr (8 * R <= L::kAccumulators) {
      for (; c + 8 <= columns; c += 8)
        ValueTile<kType, R, 8>(chunk, rows, strip, row, c, begin, end);
    }
    if constexpr (4 * R <= L::kAccumulators) {
      for (; c + 4 <= columns; c += 4)
        ValueTile<kType, R, 4>(chunk, rows, strip, row, c, begin, end);
    }
    if constexpr (2 * R <= L::kAccumulators) {
      for (; c + 2 <= columns; c += 2)
        ValueTile<kType, R, 2>(chunk, rows, strip, row, c, begin, end);
    }
    for (; c < columns; ++c) ValueTile<kType, R, 1>(chunk, rows, strip, row, c, begin, end);
  }

  // ---- a strip through a chunk ----

  // Positions that all rows see are summed together; what a row alone sees before and after them,
  // by itself. A masked position is never multiplied, so that an infinite value there does no harm.
  template <DType kType, int R>
  static void StripStep(const Chunk& chunk, const Rows& rows, const Strip& strip, uint32_t row) {
    uint32_t all_begin = 0;
    uint32_t all_end = kChunk;
    uint32_t any_begin = kChunk;
    uint32_t any_end = 0;
    for (int r = 0; r < R; ++r) {
      const uint32_t begin = strip.begin[r];
      const uint32_t end = strip.end[r];
      if (begin > all_begin) all_begin = begin;
      if (end < all_end) all_end = end;
      if (begin >= end) continue;
      if (begin < any_begin) any_begin = begin;
      if (end > any_end) any_end = end;
    }
    if (any_begin >= any_end) return;
    Scores<kType, R>(chunk, rows, strip, any_begin / kLanes, (any_end + kLanes - 1) / kLanes);
    for (uint32_t r = 0; r < R; ++r) {
      if (strip.begin[r] < strip.end[r]) Softmax(rows, row + r, strip.begin[r], strip.end[r]);
    }
    if (all_begin >= all_end) {
      for (uint32_t r = 0; r < R; ++r) {
        Values<kType, 1>(chunk, rows, strip, r, strip.begin[r], strip.end[r]);
      }
      return;
    }
    for (uint32_t r = 0; r < R; ++r) {
      Values<kType, 1>(chunk, rows, strip, r, strip.begin[r], all_begin);
    }
    Values<kType, R>(chunk, rows, strip, 0, all_begin, all_end);
    for (uint32_t r = 0; r < R; ++r) {
      Values<kType, 1>(chunk, rows, strip, r, all_end, strip.end[r]);
    }
  }

  static uint32_t Clip(uint32_t position, uint32_t chunk_begin) {
    if (position <= chunk_begin) return 0;
    return position - chunk_begin < kChunk ? position - chunk_begin : kChunk;
  }

  template <DType kType, int R = 1>
  static void StepRows(const Chunk& chunk, const Rows& rows, const Strip& strip, uint32_t row) {
    if constexpr (R <= L::kRows) {
      if (strip.rows == static_cast<uint32_t>(R)) {
        StripStep<kType, R>(chunk, rows, strip, row);
      } else {
        StepRows<kType, R + 1>(chunk, rows, strip, row);
      }
    }
  }

  template <DType kType>
  static void StepTile(const Chunk& chunk, const Rows& rows) {
    // Strips of nearly equal height: eight rows are better 4 + 4 than 6 + 2.
    const uint32_t strips = (rows.count + L::kRows - 1) / L::kRows;
    for (uint32_t s = 0; s < strips; ++s) {
      const uint32_t row = rows.count * s / strips;
      Strip strip;
      strip.rows = rows.count * (s + 1) / strips - row;
      strip.q = rows.q + static_cast<size_t>(row) * rows.padded_dim;
      strip.o = rows.o + static_cast<size_t>(row) * rows.stride;
      strip.p = rows.p + static_cast<size_t>(row) * kChunk;
      for (uint32_t r = 0; r < strip.rows; ++r) {
        strip.begin[r] = Clip(rows.begin[row + r], chunk.first_position);
        strip.end[r] = Clip(rows.end[row + r], chunk.first_position);
      }
      StepRows<kType>(chunk, rows, strip, row);
    }
  }

  static void ChunkStep(const Chunk& chunk, const Rows& rows) {
    switch (chunk.dtype) {
      case DType::kF16:
        return StepTile<DType::kF16>(chunk, rows);
      case DType::kBF16:
        return StepTile<DType::kBF16>(chunk, rows);
      default:
        return StepTile<DType::kF32>(chunk, rows);
    }
  }

  // ---- the rest ----

  static void ScaleQuery(const float* in, float scale, uint32_t d, float* out) {
    const L s = L::Set(scale);
    uint32_t i = 0;
    for (; i + kLanes <= d; i += kLanes) (L::Load(in + i) * s).Store(out + i);
    if (i < d) (L::LoadFirst(in + i, d - i) * s).StoreFirst(out + i, d - i);
  }

  // n elements to fp32, and zeros up to the next multiple of 16.
  template <DType kType>
  static void Widen(const std::byte* in, uint32_t n, float* out) {
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) LoadElements<kType>(in + i * Size<kType>()).Store(out + i);
    if (i == n) return;
    std::byte rest[kLanes * 4] = {};
    std::memcpy(rest, in + i * Size<kType>(), (n - i) * Size<kType>());
    LoadElements<kType>(rest).Store(out + i);
  }

  template <DType kType>
  static void WidenTyped(const std::byte* keys, const std::byte* values, uint32_t d,
                         uint32_t padded_dim, float* keys_out, float* values_out) {
    Widen<kType>(keys, d * kLanes, keys_out);
    for (uint32_t j = 0; j < kLanes; ++j) {
      Widen<kType>(values + static_cast<size_t>(j) * d * Size<kType>(), d,
                   values_out + static_cast<size_t>(j) * padded_dim);
    }
  }

  static void WidenGroup(DType dtype, const std::byte* keys, const std::byte* values, uint32_t d,
                         uint32_t padded_dim, float* keys_out, float* values_out) {
    switch (dtype) {
      case DType::kF16:
        return WidenTyped<DType::kF16>(keys, values, d, padded_dim, keys_out, values_out);
      case DType::kBF16:
        return WidenTyped<DType::kBF16>(keys, values, d, padded_dim, keys_out, values_out);
      default:
        return WidenTyped<DType::kF32>(keys, values, d, padded_dim, keys_out, values_out);
    }
  }

  static float SumLanes(const float* l) { return L::Sum(L::Load(l)); }

  static float Largest(const float* x, uint32_t n) {
    L largest = L::Zero();
    for (uint32_t i = 0; i < n; i += kLanes) largest = L::MaxMagnitude(L::Load(x + i), largest);
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

  static void ToCache(DType dtype, const float* x, uint32_t n, uint16_t* out) {
    if (dtype == DType::kBF16) {
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

  static constexpr Steps Table() {
    return {ScaleQuery, WidenGroup, ChunkStep, SumLanes, Largest,
            SetQuanta,  AddQuanta,  Finish,    ToCache};
  }
};

}  // namespace cleave::attention

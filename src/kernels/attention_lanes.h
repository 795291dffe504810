#pragma once
// One chunk of Attention on Lanes, once for every vector instruction set: scores, the online
// softmax, values. L is the Lanes of the including source, W its WideLanes.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention_row_lanes.h"
#include "kernels/attention_tile_lanes.h"
#include "kernels/math_lanes.h"

namespace cleave::attention {

template <typename L, typename W>
struct LaneSteps {
  using Tiles = LaneTiles<L>;
  using Strip = typename Tiles::Strip;

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

  // Scores to probabilities, scaled for the values, for positions [begin, end) of the chunk; others
  // of the same groups become 0.
  template <Scaling kScaling>
  static void Softmax(const Chunk& chunk, const Rows& rows, uint32_t row, uint32_t begin,
                      uint32_t end) {
    constexpr bool kScaled = kScaling == Scaling::kPerToken;
    float* p = rows.p + static_cast<size_t>(row) * kChunk;
    const uint32_t first = begin / kLanes;
    const uint32_t last = (end - 1) / kLanes;
    const auto seen = [&](uint32_t g) {
      return L::Between(g == first ? begin % kLanes : 0, g == last ? end - last * kLanes : kLanes);
    };
    const auto score_of = [&](uint32_t g) {
      const L sum = L::Load(p + g * kLanes);
      return kScaled ? sum * L::Load(chunk.key_scales[g]) : sum;
    };
    const L none = L::Set(-kMaximumLimit);
    L highest = none;
    for (uint32_t g = first; g <= last; ++g) {
      L score = score_of(g);
      if (g == first || g == last) score = L::Select(seen(g), score, none);
      highest = L::Max(score, highest);
    }
    const float m = Ceiling(L::Largest(highest));
    if (m > rows.m[row]) RaiseMaximum(rows, row, m);

    const L maximum = L::Set(rows.m[row]);
    L l = L::Load(rows.l + static_cast<size_t>(row) * kLanes);
    for (uint32_t g = first; g <= last; ++g) {
      const L exponent = L::Min(L::Zero(), score_of(g) - maximum);
      L mass = Exp2InRange(exponent);
      mass = L::Select(L::Less(exponent, L::Set(kScoreFloor)), L::Zero(), mass);
      L weight = kScaled ? mass * L::Load(chunk.value_scales[g]) : mass;
      if (g == first || g == last) {
        mass = L::Select(seen(g), mass, L::Zero());
        weight = L::Select(seen(g), weight, L::Zero());
      }
      weight.Store(p + g * kLanes);
      l = l + mass;
    }
    l.Store(rows.l + static_cast<size_t>(row) * kLanes);
  }

  // Positions that all rows see are summed together; what a row alone sees before and after them,
  // by itself. A masked position is never multiplied, so that an infinite value there does no harm.
  template <KvType kType, int R>
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
    Tiles::template Scores<kType, R>(chunk, rows, strip, any_begin / kLanes,
                                     (any_end + kLanes - 1) / kLanes);
    for (uint32_t r = 0; r < R; ++r) {
      if (strip.begin[r] >= strip.end[r]) continue;
      const auto softmax =
          chunk.scaling == Scaling::kNone ? Softmax<Scaling::kNone> : Softmax<Scaling::kPerToken>;
      softmax(chunk, rows, row + r, strip.begin[r], strip.end[r]);
    }
    if (all_begin >= all_end) {
      for (uint32_t r = 0; r < R; ++r) {
        Tiles::template Values<kType, 1>(chunk, rows, strip, r, strip.begin[r], strip.end[r]);
      }
      return;
    }
    for (uint32_t r = 0; r < R; ++r) {
      Tiles::template Values<kType, 1>(chunk, rows, strip, r, strip.begin[r], all_begin);
    }
    Tiles::template Values<kType, R>(chunk, rows, strip, 0, all_begin, all_end);
    for (uint32_t r = 0; r < R; ++r) {
      Tiles::template Values<kType, 1>(chunk, rows, strip, r, all_end, strip.end[r]);
    }
  }

  static uint32_t Clip(uint32_t position, uint32_t chunk_begin) {
    if (position <= chunk_begin) return 0;
    return position - chunk_begin < kChunk ? position - chunk_begin : kChunk;
  }

  template <KvType kType, int R = 1>
  static void StepRows(const Chunk& chunk, const Rows& rows, const Strip& strip, uint32_t row) {
    if constexpr (R <= L::kRows) {
      if (strip.rows == static_cast<uint32_t>(R)) {
        StripStep<kType, R>(chunk, rows, strip, row);
      } else {
        StepRows<kType, R + 1>(chunk, rows, strip, row);
      }
    }
  }

  template <KvType kType>
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
    switch (chunk.type) {
      case KvType::kF16:
        return StepTile<KvType::kF16>(chunk, rows);
      case KvType::kBF16:
        return StepTile<KvType::kBF16>(chunk, rows);
      case KvType::kInt8:
        return StepTile<KvType::kInt8>(chunk, rows);
      default:
        return StepTile<KvType::kF32>(chunk, rows);
    }
  }

  static constexpr Steps Table() {
    using Rest = LaneRows<L, W>;
    return {Rest::ScaleQuery, Rest::WidenGroup, ChunkStep,    Rest::SumLanes, Rest::Largest,
            Rest::SetQuanta,  Rest::AddQuanta,  Rest::Finish, Rest::ToCache,  Rest::ToInt8};
  }
};

}  // namespace cleave::attention

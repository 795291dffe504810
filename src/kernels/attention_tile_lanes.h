#pragma once
// The register tiles of Attention on Lanes: R query rows × N Lanes, at most L::kAccumulators of
// them, so that a key or value that is loaded (and widened) serves R rows. Scores have positions in
// lanes and run over d; values have d in lanes and run over positions. L is the Lanes of the
// including source.

#include <cstddef>
#include <cstdint>

#include "kernels/attention_steps.h"

namespace cleave::attention {

template <typename L>
struct LaneTiles {
  // A few query rows that go through a chunk together; positions are relative to the chunk.
  struct Strip {
    uint32_t rows;
    uint32_t begin[L::kRows];
    uint32_t end[L::kRows];
    float* q;
    float* o;
    float* p;
  };

  static constexpr size_t kLine = 64;

  template <KvType kType>
  static constexpr size_t Size() {
    return kType == KvType::kF32 ? 4 : kType == KvType::kInt8 ? 1 : 2;
  }

  template <KvType kType>
  static L LoadElements(const std::byte* p) {
    if constexpr (kType == KvType::kF32) {
      return L::Load(reinterpret_cast<const float*>(p));
    } else if constexpr (kType == KvType::kF16) {
      return L::LoadHalf(p);
    } else if constexpr (kType == KvType::kInt8) {
      return L::LoadInt8(p);
    } else {
      return L::LoadBrain(p);
    }
  }

  // sum[r][n] += row(r)·column(n). The fewer operands are held in registers, the others pass by.
  template <int R, int N, typename Row, typename Column>
  static void MultiplyAdd(L (&sum)[R][N], Row row, Column column) {
    if constexpr (R < N) {
      L held[R];
      for (int r = 0; r < R; ++r) held[r] = row(r);
      for (int n = 0; n < N; ++n) {
        const L passing = column(n);
        for (int r = 0; r < R; ++r) sum[r][n] = L::Fma(held[r], passing, sum[r][n]);
      }
    } else {
      L held[N];
      for (int n = 0; n < N; ++n) held[n] = column(n);
      for (int r = 0; r < R; ++r) {
        const L passing = row(r);
        for (int n = 0; n < N; ++n) sum[r][n] = L::Fma(passing, held[n], sum[r][n]);
      }
    }
  }

  // Memory answers late, and blocks of a page or less lie anywhere, so that no processor guesses
  // the next one: while keys are summed their values are brought in, and while values are, the keys
  // of the next chunk, which are as many bytes. fp32 is mostly what was widened, so read already.
  template <KvType kType>
  static constexpr bool FromMemory() {
    return kType != KvType::kF32;
  }

  // Step i of d of N groups' keys: a part of as many bytes at each of `pieces`.
  template <KvType kType, int N>
  static void BringValues(const std::byte* const* pieces, uint32_t i) {
    constexpr size_t kBytes = N * kLanes * Size<kType>();
    if constexpr (FromMemory<kType>() && kBytes >= kLine) {
      const std::byte* piece = pieces[i % N] + i / N * kBytes;
      for (size_t at = 0; at < kBytes; at += kLine) L::Prefetch(piece + at);
    }
  }

  // N Lanes of a row of values.
  template <KvType kType, int N>
  static void BringKeys(const std::byte* piece) {
    constexpr size_t kBytes = N * kLanes * Size<kType>();
    if constexpr (FromMemory<kType>()) {
      for (size_t at = 0; at < kBytes; at += kLine) L::Prefetch(piece + at);
    }
  }

  template <KvType kType, int R, int N>
  static void ScoreTile(const Chunk& chunk, const Rows& rows, const Strip& strip, uint32_t row,
                        uint32_t group) {
    const std::byte* const* keys = chunk.keys + group;
    L sum[R][N];
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) sum[r][n] = L::Zero();
    }
    const float* q = strip.q + static_cast<size_t>(row) * rows.padded_dim;
    // Tested at the end: with a path around the loop the compiler keeps `sum` in memory as well.
    uint32_t i = 0;
    do {
      MultiplyAdd<R, N>(
          sum, [&](int r) { return L::Set(q[static_cast<size_t>(r) * rows.padded_dim + i]); },
          [&](int n) {
            return LoadElements<kType>(keys[n] + static_cast<size_t>(i) * kLanes * Size<kType>());
          });
      BringValues<kType, N>(chunk.values + group, i);
    } while (++i < rows.head_dim);
    for (int r = 0; r < R; ++r) {
      float* p = strip.p + (row + static_cast<uint32_t>(r)) * kChunk + group * kLanes;
      for (int n = 0; n < N; ++n) sum[r][n].Store(p + n * static_cast<int>(kLanes));
    }
  }

  template <KvType kType, int R>
  static void Scores(const Chunk& chunk, const Rows& rows, const Strip& strip, uint32_t first,
                     uint32_t last) {
    uint32_t g = first;
    if constexpr (8 * R <= L::kAccumulators) {
      for (; g + 8 <= last; g += 8) ScoreTile<kType, R, 8>(chunk, rows, strip, 0, g);
    }
    if constexpr (4 * R <= L::kAccumulators) {
      for (; g + 4 <= last; g += 4) ScoreTile<kType, R, 4>(chunk, rows, strip, 0, g);
    }
    if constexpr (2 * R <= L::kAccumulators) {
      for (; g + 2 <= last; g += 2) ScoreTile<kType, R, 2>(chunk, rows, strip, 0, g);
    }
    for (; g < last; ++g) ScoreTile<kType, R, 1>(chunk, rows, strip, 0, g);
  }

  // o[r][16·column …] += Σ p·v over positions [begin, end), ascending; at least one.
  template <KvType kType, int R, int N>
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
    uint32_t j = begin;
    do {
      const uint32_t group = j / kLanes;
      const uint32_t stop = (group + 1) * kLanes < end ? (group + 1) * kLanes : end;
      const size_t at = (j % kLanes) * step + column * kLanes * Size<kType>();
      const std::byte* v = chunk.values[group] + at;
      const std::byte* next = chunk.next_keys[group] + at;
      do {
        MultiplyAdd<R, N>(
            sum, [&](int r) { return L::Set(p[static_cast<size_t>(r) * kChunk + j]); },
            [&](int n) {
              return LoadElements<kType>(v + static_cast<size_t>(n) * kLanes * Size<kType>());
            });
        BringKeys<kType, N>(next);
        v += step;
        next += step;
      } while (++j < stop);
    } while (j < end);
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) {
        sum[r][n].Store(o + static_cast<size_t>(r) * rows.stride + n * static_cast<int>(kLanes));
      }
    }
  }

  template <KvType kType, int R>
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
};

}  // namespace cleave::attention

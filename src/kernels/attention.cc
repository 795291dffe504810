#include "kernels/attention.h"

#include <algorithm>

#include "base/checked.h"
#include "kernels/attention_partial.h"
#include "kernels/attention_scratch.h"
#include "kernels/math.h"

namespace cleave {
namespace {

using attention::Chunk;
using attention::kBins;
using attention::kChunk;
using attention::kChunkGroups;
using attention::kLanes;
using attention::kRun;
using attention::kTileRows;
using attention::Rows;
using attention::Scaling;
using attention::Steps;
using Buffers = AttentionScratch::Buffers;

// With more rows than this, a chunk is widened to fp32 once instead of once per strip of rows.
constexpr uint32_t kDirectRows = 12;

// A block's scales: its bytes before them are a multiple of 32.
const float* FloatsAt(const std::byte* at) { return reinterpret_cast<const float*>(at); }

// The runs of a tile's rows, added up.
class TileBins {
 public:
  // Counts of `partials` narrow rows fit 64 bits together.
  TileBins(const Steps& steps, uint32_t partials, Buffers* buffers)
      : steps_(steps),
        narrow_reach_(attention::kNarrowReach / static_cast<float>(partials)),
        buffers_(*buffers) {}

  void Clear(uint32_t row) { buffers_.narrow[row] = {}; }

  // The partial of one row: m, l and o as the steps left them.
  void AddRun(uint32_t row) {
    float* o = buffers_.o.data() + static_cast<size_t>(row) * buffers_.stride;
    o[buffers_.padded_dim] =
        steps_.sum_lanes(buffers_.l.data() + static_cast<size_t>(row) * kLanes);
    Buffers::Narrow& narrow = buffers_.narrow[row];
    const auto m = static_cast<int32_t>(buffers_.m[row]);
    const float largest = steps_.largest(o, buffers_.stride);
    if (!narrow.wide) {
      narrow.reach += largest;
      if (narrow.reach < narrow_reach_) {
        AddNarrow(row, m, o);
        return;
      }
      Widen(row);
    }
    buffers_.wide[row].AddRun(m, o[buffers_.padded_dim], o);
  }

  void Finish(uint32_t row, float* out) {
    const Buffers::Narrow& narrow = buffers_.narrow[row];
    if (narrow.wide) {
      buffers_.wide[row].Finish(out);
      return;
    }
    const int32_t top = narrow.bins.top();
    steps_.finish(CountsOf(row, top), CountsOf(row, top - 1), CountsOf(row, top - 2),
                  buffers_.head_dim, buffers_.padded_dim, out);
  }

  // The row as one record of PartialRows, at `counts` or `wide`.
  PartialCode Export(uint32_t row, int64_t* counts, Int128* wide) {
    const Buffers::Narrow& narrow = buffers_.narrow[row];
    const uint32_t d = buffers_.head_dim;
    if (narrow.wide) return attention::ExportBins(buffers_.wide[row], d, wide);
    if (narrow.bins.empty()) return {};
    const int32_t top = narrow.bins.top();
    for (uint32_t i = 0; i < kBins; ++i) {
      const int64_t* from = CountsOf(row, top - static_cast<int32_t>(i));
      if (from == nullptr) continue;
      int64_t* to = counts + i * (size_t{d} + 1);
      std::copy_n(from, d, to);
      to[d] = from[buffers_.padded_dim];
    }
    return PartialCode::Narrow(top, narrow.bins.UnderTop());
  }

 private:
  // Null where nothing was added.
  int64_t* CountsOf(uint32_t row, int32_t bin) {
    return buffers_.narrow[row].bins.Holds(bin) ? Slot(row, AttentionSlotOf(bin)) : nullptr;
  }
  int64_t* Slot(uint32_t row, uint32_t slot) {
    return buffers_.counts.data() + (static_cast<size_t>(row) * kBins + slot) * buffers_.stride;
  }

  void AddNarrow(uint32_t row, int32_t m, const float* o) {
    const int32_t bin = AttentionBinOf(m);
    const KeptBins::Entry entry = buffers_.narrow[row].bins.Admit(bin);
    if (entry == KeptBins::Entry::kTooLow) return;
    const float unit = PowerOfTwo(m - attention::kBinBits * bin + attention::kFractionBits);
    const auto put = entry == KeptBins::Entry::kFresh ? steps_.set_quanta : steps_.add_quanta;
    put(o, unit, buffers_.stride, Slot(row, AttentionSlotOf(bin)));
  }

  // The same integers, in 128 bits.
  void Widen(uint32_t row) {
    Buffers::Narrow& narrow = buffers_.narrow[row];
    AttentionBins& wide = buffers_.wide[row];
    wide.Clear();
    const int32_t top = narrow.bins.top();
    for (int32_t b = top; b > top - static_cast<int32_t>(kBins); --b) {
      const int64_t* counts = CountsOf(row, b);
      if (counts != nullptr) wide.AddCounts(b, counts, counts[buffers_.padded_dim]);
    }
    narrow.wide = true;
  }

  const Steps& steps_;
  const float narrow_reach_;
  Buffers& buffers_;
};

// Up to kTileRows query head rows of one job; row r is token r / heads, head r mod heads.
class Tile {
 public:
  Tile(const Steps& steps, const KvShape& shape, const AttentionJob& job, AttentionRuns runs,
       Buffers* buffers)
      : steps_(steps),
        shape_(shape),
        job_(job),
        runs_(runs),
        buffers_(*buffers),
        bins_(steps, runs.count, buffers) {}

  // The own runs of rows [first_row, first_row + count).
  void Attend(uint32_t first_row, uint32_t count) {
    Start(first_row, count);
    const uint32_t begin = rows_.begin[0];
    const uint32_t end = rows_.end[count - 1];
    for (uint32_t run = begin / kRun * kRun; run < end; run += kRun) {
      if (run / kRun % runs_.count != runs_.index) continue;
      StartRun();
      for (uint32_t first = run; first < run + kRun; first += kChunk) {
        if (first + kChunk <= begin || first >= end) continue;
        Chunk chunk = ReadChunk(first, begin, end);
        LookAhead(NextChunk(first), end, &chunk);
        steps_.chunk_step(chunk, rows_);
      }
      for (uint32_t r = 0; r < count; ++r) {
        if (rows_.begin[r] < run + kRun && rows_.end[r] > run) bins_.AddRun(r);
      }
    }
  }

  void Finish(uint32_t first_row, uint32_t count) {
    for (uint32_t r = 0; r < count; ++r) {
      bins_.Finish(r, job_.out + Offset(first_row + r, job_.out_stride));
    }
  }

  void Export(uint32_t first_row, uint32_t count, const PartialRows& rows) {
    for (uint32_t r = 0; r < count; ++r) {
      const uint32_t row = first_row + r;
      const size_t record = row / job_.heads * rows.token_stride + row % job_.heads;
      const size_t at = record * PartialCounts(shape_.head_dim);
      rows.codes[record] = bins_.Export(r, rows.counts + at, rows.wide + at);
    }
  }

 private:
  [[nodiscard]] size_t Offset(uint32_t row, size_t token_stride) const {
    return row / job_.heads * token_stride +
           static_cast<size_t>(row % job_.heads) * shape_.head_dim;
  }

  void Start(uint32_t first_row, uint32_t count) {
    Buffers& b = buffers_;
    rows_ = {count,      b.head_dim, b.padded_dim, b.stride,       b.q.data(),  b.o.data(),
             b.p.data(), b.l.data(), b.m.data(),   b.begin.data(), b.end.data()};
    const float scale = job_.scale * kLog2E;
    for (uint32_t r = 0; r < count; ++r) {
      const uint32_t end = job_.first_position + (first_row + r) / job_.heads + 1;
      rows_.begin[r] = job_.window == 0 || job_.window >= end ? 0 : end - job_.window;
      rows_.end[r] = end;
      steps_.scale_query(job_.q + Offset(first_row + r, job_.q_stride), scale, shape_.head_dim,
                         rows_.q + static_cast<size_t>(r) * rows_.padded_dim);
      bins_.Clear(r);
    }
  }

  void StartRun() {
    std::fill_n(rows_.o, static_cast<size_t>(rows_.count) * rows_.stride, 0.0F);
    std::fill_n(rows_.l, static_cast<size_t>(rows_.count) * kLanes, 0.0F);
    std::fill_n(rows_.m, rows_.count, -attention::kMaximumLimit);
  }

  [[nodiscard]] const std::byte* BlockOf(uint32_t position) const {
    const int32_t block = job_.block_table[position / shape_.block_tokens] - job_.first_block;
    return job_.kv + static_cast<size_t>(block) * job_.block_stride;
  }

  // Of the own runs, the chunk after the one at `first`.
  [[nodiscard]] uint32_t NextChunk(uint32_t first) const {
    const uint32_t next = first + kChunk;
    const uint32_t run = next / kRun;
    const uint32_t others = (runs_.index + runs_.count - run % runs_.count) % runs_.count;
    return others == 0 ? next : (run + others) * kRun;
  }

  // The keys of the chunk at `next` as far as it is seen; where it is not, what is in reach.
  void LookAhead(uint32_t next, uint32_t end, Chunk* chunk) const {
    const size_t key_bytes = shape_.head_dim * shape_.element_bytes();
    for (uint32_t g = 0; g < kChunkGroups; ++g) {
      const uint32_t position = next + g * kLanes;
      chunk->next_keys[g] = position >= end
                                ? chunk->keys[g]
                                : BlockOf(position) + position % shape_.block_tokens * key_bytes;
    }
  }

  // The chunk's groups that hold a position of [begin, end): no other block is looked at.
  Chunk ReadChunk(uint32_t first, uint32_t begin, uint32_t end) {
    const uint32_t d = shape_.head_dim;
    const bool widen =
        rows_.padded_dim != d || (shape_.type != KvType::kF32 && rows_.count > kDirectRows);
    Chunk chunk = {};
    chunk.type = widen ? KvType::kF32 : shape_.type;
    chunk.scaling = shape_.type == KvType::kInt8 ? Scaling::kPerToken : Scaling::kNone;
    chunk.first_position = first;
    for (uint32_t g = 0; g < kChunkGroups; ++g) {
      const uint32_t position = first + g * kLanes;
      if (position + kLanes <= begin || position >= end) continue;
      const uint32_t offset = position % shape_.block_tokens;
      const std::byte* base = BlockOf(position);
      const size_t element = shape_.element_bytes();
      const std::byte* keys = base + static_cast<size_t>(offset) * d * element;
      const std::byte* values =
          base + (static_cast<size_t>(shape_.block_tokens) + offset) * d * element;
      if (widen) {
        float* wide_keys = buffers_.keys.data() + static_cast<size_t>(g) * kLanes * d;
        float* wide_values =
            buffers_.values.data() + static_cast<size_t>(g) * kLanes * rows_.padded_dim;
        steps_.widen_group(shape_.type, keys, values, d, rows_.padded_dim, wide_keys, wide_values);
        keys = reinterpret_cast<const std::byte*>(wide_keys);
        values = reinterpret_cast<const std::byte*>(wide_values);
      }
      chunk.keys[g] = keys;
      chunk.values[g] = values;
      if (chunk.scaling == Scaling::kNone) continue;
      chunk.key_scales[g] = FloatsAt(base + shape_.key_scales_at()) + offset;
      chunk.value_scales[g] = FloatsAt(base + shape_.value_scales_at()) + offset;
    }
    return chunk;
  }

  const Steps& steps_;
  const KvShape& shape_;
  const AttentionJob& job_;
  const AttentionRuns runs_;
  Buffers& buffers_;
  TileBins bins_;
  Rows rows_ = {};
};

}  // namespace

AttentionScratch::Buffers::Buffers(uint32_t d)
    : head_dim(d),
      padded_dim(RoundUp(d, kLanes)),
      stride(padded_dim + kLanes),
      q(static_cast<size_t>(kTileRows) * padded_dim),
      o(static_cast<size_t>(kTileRows) * stride),
      p(static_cast<size_t>(kTileRows) * kChunk),
      l(static_cast<size_t>(kTileRows) * kLanes),
      m(kTileRows),
      begin(kTileRows),
      end(kTileRows),
      keys(static_cast<size_t>(kChunk) * d),
      values(static_cast<size_t>(kChunk) * padded_dim),
      counts(static_cast<size_t>(kTileRows) * kBins * stride),
      narrow(kTileRows),
      wide(kTileRows, AttentionBins(d)) {}

AttentionScratch::AttentionScratch(uint32_t head_dim)
    : buffers_(std::make_unique<Buffers>(head_dim)) {}
AttentionScratch::~AttentionScratch() = default;
AttentionScratch::AttentionScratch(AttentionScratch&&) noexcept = default;

void Attention(Isa isa, const KvShape& shape, const AttentionJob& job, AttentionScratch* scratch) {
  if (isa == Isa::kScalar) {
    attention::AttentionScalar(shape, job, &scratch->buffers());
    return;
  }
  Tile tile(attention::StepsFor(isa), shape, job, {}, &scratch->buffers());
  const uint32_t rows = job.tokens * job.heads;
  for (uint32_t row = 0; row < rows; row += kTileRows) {
    const uint32_t count = std::min(kTileRows, rows - row);
    tile.Attend(row, count);
    tile.Finish(row, count);
  }
}

void AttentionPartial(Isa isa, const KvShape& shape, const AttentionJob& job, AttentionRuns runs,
                      const PartialRows& rows, AttentionScratch* scratch) {
  if (isa == Isa::kScalar) {
    attention::AttentionPartialScalar(shape, job, runs, rows, &scratch->buffers());
    return;
  }
  Tile tile(attention::StepsFor(isa), shape, job, runs, &scratch->buffers());
  const uint32_t total = job.tokens * job.heads;
  for (uint32_t row = 0; row < total; row += kTileRows) {
    const uint32_t count = std::min(kTileRows, total - row);
    tile.Attend(row, count);
    tile.Export(row, count, rows);
  }
}

}  // namespace cleave

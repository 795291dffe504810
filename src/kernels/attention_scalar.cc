// Attention, plain: one query head row at a time, each step as the definition says it.

#include <cmath>
#include <cstring>

#include "kernels/attention_int8.h"
#include "kernels/attention_scratch.h"
#include "kernels/math.h"
#include "tensor/dtype.h"

namespace cleave::attention {
namespace {

float ReadFloat(const std::byte* data, size_t index) {
  float x = 0;
  std::memcpy(&x, data + 4 * index, 4);
  return x;
}

void WriteFloat(std::byte* data, size_t index, float x) { std::memcpy(data + 4 * index, &x, 4); }

// Of an int8 cache, the integer.
float ReadElement(KvType type, const std::byte* data, size_t index) {
  if (type == KvType::kF32) return ReadFloat(data, index);
  if (type == KvType::kInt8) return static_cast<float>(static_cast<int8_t>(data[index]));
  uint16_t bits = 0;
  std::memcpy(&bits, data + 2 * index, 2);
  return type == KvType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

void WriteElement(KvType type, std::byte* data, size_t index, float x) {
  if (type == KvType::kF32) return WriteFloat(data, index, x);
  const uint16_t bits = type == KvType::kF16 ? FloatToHalf(x) : FloatToBFloat16(x);
  std::memcpy(data + 2 * index, &bits, 2);
}

size_t KeyIndex(const KvShape& shape, uint32_t offset, uint32_t i) {
  return (static_cast<size_t>(offset / kLanes) * shape.head_dim + i) * kLanes + offset % kLanes;
}

size_t ValueIndex(const KvShape& shape, uint32_t offset, uint32_t i) {
  return (static_cast<size_t>(shape.block_tokens) + offset) * shape.head_dim + i;
}

struct Cache {
  const KvShape& shape;
  const AttentionJob& job;

  const std::byte* BlockOf(uint32_t position) const {
    const int32_t block = job.block_table[position / shape.block_tokens] - job.first_block;
    return job.kv + static_cast<size_t>(block) * job.block_stride;
  }
  float Key(uint32_t position, uint32_t i) const {
    return ReadElement(shape.type, BlockOf(position),
                       KeyIndex(shape, position % shape.block_tokens, i));
  }
  float Value(uint32_t position, uint32_t i) const {
    return ReadElement(shape.type, BlockOf(position),
                       ValueIndex(shape, position % shape.block_tokens, i));
  }
  // What the integers of an int8 cache stand for is them times these; 1 in others.
  float KeyScale(uint32_t position) const { return Scale(position, shape.key_scales_at()); }
  float ValueScale(uint32_t position) const { return Scale(position, shape.value_scales_at()); }

 private:
  float Scale(uint32_t position, size_t at) const {
    if (shape.type != KvType::kInt8) return 1;
    return ReadFloat(BlockOf(position) + at, position % shape.block_tokens);
  }
};

// 2^(from - to) for whole numbers from <= to; 0 where that is not a normal number.
float Rescale(float from, float to) {
  const float n = from - to;
  return n < -126.0F ? 0.0F : PowerOfTwo(static_cast<int>(n));
}

float Ceiling(float x) {
  if (!(x > -kMaximumLimit)) return -kMaximumLimit;
  if (x >= kMaximumLimit) return kMaximumLimit;
  auto whole = static_cast<float>(static_cast<int32_t>(x));
  return whole < x ? whole + 1.0F : whole;
}

// The state of one run of one row.
struct Run {
  float m = -kMaximumLimit;
  float l[kLanes] = {};
  float* o;  // [d]
};

// Positions [begin, end) of one chunk.
void AddChunk(const Cache& cache, const float* q, uint32_t begin, uint32_t end, Run* run) {
  const uint32_t d = cache.shape.head_dim;
  float p[kChunk];
  float highest = -kMaximumLimit;
  for (uint32_t j = begin; j < end; ++j) {
    float score = 0;
    for (uint32_t i = 0; i < d; ++i) score = std::fmaf(q[i], cache.Key(j, i), score);
    score *= cache.KeyScale(j);
    p[j - begin] = score;
    if (score > highest) highest = score;
  }
  const float ceiling = Ceiling(highest);
  const float m = ceiling > run->m ? ceiling : run->m;
  const float rescale = Rescale(run->m, m);
  run->m = m;
  for (float& l : run->l) l *= rescale;
  for (uint32_t i = 0; i < d; ++i) run->o[i] *= rescale;

  for (uint32_t j = begin; j < end; ++j) {
    const float under = p[j - begin] - m;
    const float exponent = under > 0.0F ? 0.0F : under;
    p[j - begin] = exponent < kScoreFloor ? 0.0F : Exp2(exponent);
    run->l[j % kLanes] += p[j - begin];
    p[j - begin] *= cache.ValueScale(j);
  }
  for (uint32_t i = 0; i < d; ++i) {
    for (uint32_t j = begin; j < end; ++j) {
      run->o[i] = std::fmaf(p[j - begin], cache.Value(j, i), run->o[i]);
    }
  }
}

float SumLanes(const float* l) {
  float lane[kLanes];
  std::memcpy(lane, l, sizeof lane);
  for (uint32_t width = kLanes / 2; width > 0; width /= 2) {
    for (uint32_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}

float Largest(const float* x, uint32_t n, float largest) {
  for (uint32_t i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > largest) largest = std::fabs(x[i]);
  }
  return largest;
}

// The own runs' positions of [begin, end). Returns the row's reach: no count is larger than this
// times 2^36.
float AttendRow(const Cache& cache, const float* q, uint32_t begin, uint32_t end,
                AttentionRuns runs, float* o, AttentionBins* bins) {
  float reach = 0;
  bins->Clear();
  for (uint32_t first = begin / kRun * kRun; first < end; first += kRun) {
    if (first / kRun % runs.count != runs.index) continue;
    Run run;
    run.o = o;
    for (uint32_t i = 0; i < cache.shape.head_dim; ++i) o[i] = 0;
    for (uint32_t chunk = first; chunk < first + kRun; chunk += kChunk) {
      const uint32_t from = chunk > begin ? chunk : begin;
      const uint32_t to = chunk + kChunk < end ? chunk + kChunk : end;
      if (from < to) AddChunk(cache, q, from, to, &run);
    }
    const float l = SumLanes(run.l);
    bins->AddRun(static_cast<int32_t>(run.m), l, o);
    reach += Largest(o, cache.shape.head_dim, std::fabs(l));
  }
  return reach;
}

// Calls finish(token, head, reach) for every row, whose bins are buffers->wide[0].
template <typename Finish>
void AttendRows(const KvShape& shape, const AttentionJob& job, AttentionRuns runs,
                AttentionScratch::Buffers* buffers, const Finish& finish) {
  const Cache cache{shape, job};
  const float scale = job.scale * kLog2E;
  float* q = buffers->q.data();
  for (uint32_t t = 0; t < job.tokens; ++t) {
    const uint32_t end = job.first_position + t + 1;
    const uint32_t begin = job.window == 0 || job.window >= end ? 0 : end - job.window;
    for (uint32_t h = 0; h < job.heads; ++h) {
      const float* in = job.q + t * job.q_stride + static_cast<size_t>(h) * shape.head_dim;
      for (uint32_t i = 0; i < shape.head_dim; ++i) q[i] = in[i] * scale;
      finish(t, h, AttendRow(cache, q, begin, end, runs, buffers->o.data(), &buffers->wide[0]));
    }
  }
}

// Writes a row's integers where index(shape, offset, i) says; its scale.
template <typename Index>
float StoreInt8(const float* x, const KvShape& shape, uint32_t offset, const Index& index,
                std::byte* head_block) {
  float largest = 0;
  for (uint32_t i = 0; i < shape.head_dim; ++i) {
    if (!(std::fabs(x[i]) <= largest)) largest = std::fabs(x[i]);
    if (std::isnan(largest)) break;
  }
  const Int8Scale by = Int8ScaleOf(largest);
  for (uint32_t i = 0; i < shape.head_dim; ++i) {
    const auto q = by.inverse == 0 ? 0 : std::lrint(x[i] * by.inverse);
    head_block[index(shape, offset, i)] = static_cast<std::byte>(static_cast<int8_t>(q));
  }
  return by.scale;
}

}  // namespace

void AttentionScalar(const KvShape& shape, const AttentionJob& job,
                     AttentionScratch::Buffers* buffers) {
  AttendRows(shape, job, {}, buffers, [&](uint32_t t, uint32_t h, float) {
    buffers->wide[0].Finish(job.out + t * job.out_stride + static_cast<size_t>(h) * shape.head_dim);
  });
}

void AttentionPartialScalar(const KvShape& shape, const AttentionJob& job, AttentionRuns runs,
                            const PartialRows& rows, AttentionScratch::Buffers* buffers) {
  const uint32_t d = shape.head_dim;
  const float limit = kNarrowReach / static_cast<float>(runs.count);
  AttendRows(shape, job, runs, buffers, [&](uint32_t t, uint32_t h, float reach) {
    const size_t record = t * rows.token_stride + h;
    const size_t at = record * PartialCounts(d);
    const AttentionBins& bins = buffers->wide[0];
    rows.codes[record] =
        reach < limit ? ExportBins(bins, d, rows.counts + at) : ExportBins(bins, d, rows.wide + at);
  });
}

void StoreKvScalar(const KvShape& shape, const float* key, const float* value, uint32_t offset,
                   std::byte* head_block) {
  if (shape.type == KvType::kInt8) {
    const float key_scale = StoreInt8(key, shape, offset, KeyIndex, head_block);
    const float value_scale = StoreInt8(value, shape, offset, ValueIndex, head_block);
    WriteFloat(head_block + shape.key_scales_at(), offset, key_scale);
    WriteFloat(head_block + shape.value_scales_at(), offset, value_scale);
    return;
  }
  for (uint32_t i = 0; i < shape.head_dim; ++i) {
    WriteElement(shape.type, head_block, KeyIndex(shape, offset, i), key[i]);
    WriteElement(shape.type, head_block, ValueIndex(shape, offset, i), value[i]);
  }
}

}  // namespace cleave::attention

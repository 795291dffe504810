#include "kernels/matmul.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/checked.h"
#include "base/status.h"
#include "kernels/matmul_job.h"

namespace cleave {
namespace {

constexpr size_t kLine = 64;

// An odd number of cache lines a row, also of the one-byte kind: rows of a tile then fall into
// different cache sets whatever K is.
uint32_t PaddedBlocks(uint32_t blocks) { return 2 * (CeilDiv(blocks, 2U) | 1U); }

// `count` blocks of 32 consecutive elements of x into blocks [at, at + count) of the buffer.
void PrepareBlocks(Isa isa, ActKind kind, const float* x, uint32_t count, size_t at,
                   ActBuffer* out) {
  switch (kind) {
    case ActKind::kInt8:
      return OfIsa(isa, QuantiseScalar, QuantiseAvx2,
                   QuantiseAvx512)({.x = x,
                                    .count = count,
                                    .q = out->q() + 32 * at,
                                    .scale = out->scale() + at,
                                    .sum = out->sum() + at,
                                    .half_sum = out->half_sum() + at});
    case ActKind::kBF16:
      return OfIsa(isa, RoundToBf16Scalar, RoundToBf16Avx2, RoundToBf16Avx512)(
          x, 32 * count, out->bf16() + 32 * at);
    case ActKind::kF32:
      std::memcpy(out->f32() + 32 * at, x, size_t{128} * count);
  }
}

bool IsWhole(const KBlock& b) { return b.lo == 0 && b.hi == 32; }

// Hands stretches of whole blocks, and padded ones one by one, to prepare(x, count, first block).
template <typename Prepare>
void ForStretches(const KPlan& plan, const float* x, const Prepare& prepare) {
  const size_t blocks = plan.blocks.size();
  for (size_t b = 0; b < blocks;) {
    const KBlock& block = plan.blocks[b];
    if (!IsWhole(block)) {
      alignas(kLine) std::array<float, 32> padded{};
      std::copy_n(x + block.source, block.hi - block.lo, padded.begin() + block.lo);
      prepare(padded.data(), 1U, b);
      ++b;
      continue;
    }
    size_t end = b + 1;
    while (end < blocks && IsWhole(plan.blocks[end])) ++end;
    prepare(x + block.source, static_cast<uint32_t>(end - b), b);
    b = end;
  }
}

// What the first term leaves of `count` blocks: left = x - q·d, the product and the difference each
// rounded once.
void Leave(const float* x, uint32_t count, const int8_t* q, const float* scale, float* left) {
  for (size_t b = 0; b < count; ++b) {
    const float d = scale[b];
    for (size_t i = 32 * b; i < 32 * b + 32; ++i) left[i] = x[i] - static_cast<float>(q[i]) * d;
  }
}

// `count` blocks into blocks [at, at + count) and, what these leave, [second, second + count).
void PrepareBothTerms(Isa isa, const float* x, uint32_t count, size_t at, size_t second,
                      ActBuffer* out) {
  constexpr uint32_t kStretch = 16;
  alignas(kLine) std::array<float, size_t{32} * kStretch> left;
  PrepareBlocks(isa, ActKind::kInt8, x, count, at, out);
  for (uint32_t done = 0; done < count; done += kStretch) {
    const uint32_t n = std::min(kStretch, count - done);
    const size_t first = at + done;
    Leave(x + size_t{32} * done, n, out->q() + 32 * first, out->scale() + first, left.data());
    PrepareBlocks(isa, ActKind::kInt8, left.data(), n, second + done, out);
  }
}

MatmulJob JobOf(const PackedMatrix& w, const ActBuffer& a, uint32_t rows, uint32_t group_begin,
                uint32_t group_end) {
  MatmulJob job;
  job.dtype = w.dtype();
  job.records = w.group_data(0);
  job.blocks = static_cast<uint32_t>(w.plan().blocks.size());
  job.outputs = w.rows();
  job.group_begin = group_begin;
  job.group_end = group_end;
  job.rows = rows;
  job.act_stride = a.max_blocks();
  job.acts = a.q();
  job.scale = a.scale();
  job.sum = a.sum();
  job.half_sum = a.half_sum();
  return job;
}

// The job's rows begin with row, or pair, `first` of its buffer.
void SkipRows(const ActBuffer& a, ActTerms terms, uint32_t first, MatmulJob* job) {
  const size_t blocks = size_t{first} * (terms == ActTerms::kOne ? 1 : 2) * a.max_blocks();
  switch (ActKindOf(job->dtype)) {
    case ActKind::kInt8:
      job->acts = a.q() + 32 * blocks;
      break;
    case ActKind::kBF16:
      job->acts = a.bf16() + 32 * blocks;
      break;
    case ActKind::kF32:
      job->acts = a.f32() + 32 * blocks;
      break;
  }
  job->scale = a.scale() + blocks;
  job->sum = a.sum() + blocks;
  job->half_sum = a.half_sum() + blocks;
}

void SetTerms(ActTerms terms, MatmulJob* job) {
  if (terms == ActTerms::kFirstOfTwo) job->act_stride *= 2;
  if (terms != ActTerms::kTwo) return;
  job->terms = 2;
  job->rows *= 2;
}

void SetTotals(const PackedMatrix& w, int64_t* totals, size_t stride, MatmulJob* job) {
  job->totals = totals;
  job->totals_stride = stride;
  job->sum_groups = w.plan().group_ends.data();
  job->sum_group_count = static_cast<uint32_t>(w.plan().group_ends.size());
}

void Multiply(Isa isa, const MatmulJob& job) {
  if (job.rows == 0 || job.group_begin >= job.group_end) return;
  static const bool bf16_dot = CpuHasFastBf16Dot();
  const bool dot = job.dtype == DType::kBF16 && bf16_dot;
  if (isa == Isa::kAmx && IsQuantised(job.dtype) && job.rows >= kAmxRows &&
      job.blocks <= kMaxAmxBlocks) {
    return MatmulAvx512Amx(job);
  }
  OfIsa(isa, MatmulScalar, MatmulAvx2, dot ? MatmulAvx512Bf16 : MatmulAvx512)(job);
}

double SquaredNormInt8(const ActBuffer& a, size_t first, size_t blocks) {
  double total = 0;
  for (size_t b = first; b < first + blocks; ++b) {
    const int8_t* q = a.q() + 32 * b;
    int32_t squares = 0;
    for (size_t i = 0; i < 32; ++i) squares += q[i] * q[i];
    const double d = a.scale()[b];
    total += d * d * squares;
  }
  return total;
}

// Lane i sums elements i + 16·j, then the lanes in order.
template <typename Load>
double SquaredNormPlain(size_t first, size_t blocks, Load load) {
  std::array<double, 16> lanes{};
  for (size_t j = 2 * first; j < 2 * (first + blocks); ++j) {
    for (size_t i = 0; i < 16; ++i) {
      const double v = load(16 * j + i);
      lanes[i] += v * v;
    }
  }
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

}  // namespace

void ActBuffer::Free::operator()(void* p) const { std::free(p); }

ActBuffer::ActBuffer(uint32_t max_rows, uint32_t max_blocks)
    : max_rows_(max_rows), max_blocks_(PaddedBlocks(max_blocks)) {
  const size_t blocks = size_t{max_rows_} * max_blocks_;
  const size_t bytes = RoundUp<size_t>(blocks * 32 * sizeof(float), kLine) + kLine;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kLine, bytes)));
  CLEAVE_CHECK(data_ != nullptr);
  scale_ = std::make_unique<float[]>(blocks);
  sum_ = std::make_unique<int32_t[]>(blocks);
  half_sum_ = std::make_unique<int32_t[]>(blocks);
}

void PrepareActs(Isa isa, ActKind kind, const KPlan& plan, const float* x, size_t x_stride,
                 uint32_t row_begin, uint32_t row_end, ActBuffer* out) {
  CLEAVE_CHECK(row_end <= out->max_rows() && plan.blocks.size() <= out->max_blocks());
  for (size_t row = row_begin; row < row_end; ++row) {
    const size_t first = row * out->max_blocks();
    ForStretches(plan, x + row * x_stride, [&](const float* from, uint32_t count, size_t block) {
      PrepareBlocks(isa, kind, from, count, first + block, out);
    });
  }
}

void PrepareTwoTerms(Isa isa, const KPlan& plan, const float* x, size_t x_stride,
                     uint32_t row_begin, uint32_t row_end, ActBuffer* out) {
  CLEAVE_CHECK(2 * row_end <= out->max_rows() && plan.blocks.size() <= out->max_blocks());
  for (size_t row = row_begin; row < row_end; ++row) {
    const size_t first = 2 * row * out->max_blocks();
    const size_t second = first + out->max_blocks();
    ForStretches(plan, x + row * x_stride, [&](const float* from, uint32_t count, size_t block) {
      PrepareBothTerms(isa, from, count, first + block, second + block, out);
    });
  }
}

void MatmulColumn(Isa isa, const PackedMatrix& w, const ActBuffer& a, uint32_t rows,
                  uint32_t group_begin, uint32_t group_end, float* y, size_t y_stride,
                  ActTerms terms, uint32_t first_row) {
  MatmulJob job = JobOf(w, a, rows, group_begin, group_end);
  SkipRows(a, terms, first_row, &job);
  SetTerms(terms, &job);
  job.y = y;
  job.y_stride = y_stride;
  Multiply(isa, job);
}

void MatmulRow(Isa isa, const PackedMatrix& w, const ActBuffer& a, uint32_t rows,
               const int32_t* shift, const uint8_t* wide, uint32_t group_begin, uint32_t group_end,
               int64_t* totals, size_t stride, ActTerms terms) {
  MatmulJob job = JobOf(w, a, rows, group_begin, group_end);
  SetTerms(terms, &job);
  job.shift = shift;
  job.wide = wide;
  SetTotals(w, totals, stride, &job);
  Multiply(isa, job);
}

void MatmulExpert(Isa isa, const PackedMatrix& w, const ActBuffer& a, const ExpertRows& expert,
                  uint32_t group_begin, uint32_t group_end, int64_t* totals, size_t stride,
                  ActTerms terms) {
  MatmulJob job = JobOf(w, a, expert.rows, group_begin, group_end);
  SkipRows(a, terms, expert.first, &job);
  SetTerms(terms, &job);
  job.shift = expert.shift;
  job.wide = expert.wide;
  job.token = expert.token;
  job.gate = expert.gate;
  SetTotals(w, totals, stride, &job);
  Multiply(isa, job);
}

double RowBound(ActKind kind, const ActBuffer& a, const KPlan& plan, uint32_t row,
                float max_row_norm, int32_t shift) {
  const size_t first = size_t{row} * a.max_blocks();
  const size_t blocks = plan.blocks.size();
  double squares = 0;
  switch (kind) {
    case ActKind::kInt8:
      squares = SquaredNormInt8(a, first, blocks);
      break;
    case ActKind::kBF16:
      squares = SquaredNormPlain(first, blocks, [&](size_t i) -> double {
        return std::bit_cast<float>(static_cast<uint32_t>(a.bf16()[i]) << 16U);
      });
      break;
    case ActKind::kF32:
      squares = SquaredNormPlain(first, blocks, [&](size_t i) -> double { return a.f32()[i]; });
      break;
  }
  const double power = std::bit_cast<double>(static_cast<uint64_t>(1023 + shift) << 52U);
  return std::sqrt(squares) * max_row_norm * power;
}

bool RowFitsInt32(ActKind kind, const ActBuffer& a, const KPlan& plan, uint32_t row,
                  float max_row_norm, int32_t shift) {
  return RowBound(kind, a, plan, row, max_row_norm, shift) < kNarrowBound;
}

void GatherActs(ActKind kind, const ActBuffer& from, const KPlan& plan, const uint32_t* source_rows,
                uint32_t row_begin, uint32_t row_end, ActBuffer* to) {
  const size_t blocks = plan.blocks.size();
  CLEAVE_CHECK(row_end <= to->max_rows() && blocks <= to->max_blocks());
  CLEAVE_CHECK(blocks <= from.max_blocks());
  for (size_t row = row_begin; row < row_end; ++row) {
    CLEAVE_CHECK(source_rows[row] < from.max_rows());
    const size_t source = size_t{source_rows[row]} * from.max_blocks();
    const size_t target = row * to->max_blocks();
    if (kind == ActKind::kF32) {
      std::copy_n(from.f32() + 32 * source, 32 * blocks, to->f32() + 32 * target);
    } else if (kind == ActKind::kBF16) {
      std::copy_n(from.bf16() + 32 * source, 32 * blocks, to->bf16() + 32 * target);
    } else {
      std::copy_n(from.q() + 32 * source, 32 * blocks, to->q() + 32 * target);
      std::copy_n(from.scale() + source, blocks, to->scale() + target);
      std::copy_n(from.sum() + source, blocks, to->sum() + target);
      std::copy_n(from.half_sum() + source, blocks, to->half_sum() + target);
    }
  }
}

}  // namespace cleave

// The reference: the arithmetic of docs/arithmetic.md written down once, plainly. Every other
// instruction set must give these bits.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/matmul_job.h"
#include "kernels/weight_block.h"

namespace cleave {
namespace {

constexpr uint32_t kLanes = 16;
constexpr uint32_t kTileRows = 16;

float PowerOf(int32_t shift) {
  return std::bit_cast<float>(static_cast<uint32_t>(127 + shift) << 23U);
}

// Round to nearest even; what the processor's conversions give out of range and for NaN.
int64_t ToInt64(float v) {
  if (!(v >= -0x1p63F && v < 0x1p63F)) return std::numeric_limits<int64_t>::min();
  return std::llrint(v);
}

int32_t ToInt32(float v) {
  if (!(v >= -0x1p31F && v < 0x1p31F)) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(std::lrint(v));
}

int64_t AddWrapped(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

int32_t AddWrapped(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

// The weights of one record: of quantised types the integers code - zero, else fp32 values.
struct Weights {
  std::array<std::array<int32_t, 32>, kLanes> q;
  std::array<std::array<float, 2>, kLanes> scale;
  std::array<float, kLanes> min;
  std::array<std::array<float, 32>, kLanes> value;
};

void LoadWeights(DType dtype, const RecordLayout& layout, const std::byte* record, Weights* w) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (layout.scales == 0) {
      LoadPlain(dtype, record, lane, w->value[lane].data());
      continue;
    }
    const QuantBlock block = LoadBlock(layout, record, lane);
    for (size_t i = 0; i < 32; ++i) {
      w->q[lane][i] = static_cast<int32_t>(block.codes[i]) - static_cast<int32_t>(layout.zero);
    }
    w->scale[lane] = block.scale;
    w->min[lane] = block.min;
  }
}

// One block's step of a chain, int8 activations. `power`, 2^shift times the gate, is folded into
// the activation's scale before anything else is done with it.
float StepInt8(const RecordLayout& layout, const Weights& w, uint32_t lane, const MatmulJob& job,
               uint32_t row, uint32_t block, float power, float f) {
  const size_t at = static_cast<size_t>(row) * job.act_stride + block;
  const int8_t* q = static_cast<const int8_t*>(job.acts) + 32 * at;
  const float da = job.scale[at] * power;
  const size_t part = 32 / layout.scales;
  for (size_t s = 0; s < layout.scales; ++s) {
    int32_t dot = 0;
    for (size_t i = s * part; i < (s + 1) * part; ++i) dot += w.q[lane][i] * q[i];
    f = std::fma(static_cast<float>(dot), w.scale[lane][s] * da, f);
  }
  if (layout.has_min) f = std::fma(w.min[lane], da * static_cast<float>(job.sum[at]), f);
  return f;
}

// bf16: pairs, the odd element first. f16 and f32: ascending.
float StepPlain(const Weights& w, uint32_t lane, const MatmulJob& job, uint32_t row, uint32_t block,
                float f) {
  const size_t at = 32 * (static_cast<size_t>(row) * job.act_stride + block);
  const std::array<float, 32>& value = w.value[lane];
  if (job.dtype == DType::kBF16) {
    const uint16_t* a = static_cast<const uint16_t*>(job.acts) + at;
    for (size_t k = 0; k < 32; k += 2) {
      f = std::fma(value[k + 1], BFloat16ToFloat(a[k + 1]), f);
      f = std::fma(value[k], BFloat16ToFloat(a[k]), f);
    }
    return f;
  }
  const float* a = static_cast<const float*>(job.acts) + at;
  for (size_t k = 0; k < 32; ++k) f = std::fma(value[k], a[k], f);
  return f;
}

// Chains and totals of up to 16 activation rows × 16 outputs.
struct Tile {
  uint32_t first_row;
  uint32_t rows;
  std::array<float, kTileRows> power{};  // gate · 2^shift; 1 when column-parallel
  std::array<std::array<float, kLanes>, kTileRows> f{};
  std::array<std::array<int64_t, kLanes>, kTileRows> total{};
};

void Step(const MatmulJob& job, const RecordLayout& layout, const std::byte* record, uint32_t block,
          Tile* tile) {
  Weights w;
  LoadWeights(job.dtype, layout, record, &w);
  for (uint32_t r = 0; r < tile->rows; ++r) {
    const uint32_t row = tile->first_row + r;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      float& f = tile->f[r][lane];
      f = layout.scales > 0 ? StepInt8(layout, w, lane, job, row, block, tile->power[r], f)
                            : StepPlain(w, lane, job, row, block, f);
    }
  }
}

// The end of a sum group: its chain becomes quanta, and the next chain starts at zero.
void EndSumGroup(const MatmulJob& job, bool scaled, Tile* tile) {
  for (uint32_t r = 0; r < tile->rows; ++r) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const float sum = scaled ? tile->f[r][lane] : tile->f[r][lane] * tile->power[r];
      int64_t& total = tile->total[r][lane];
      total = job.wide[(tile->first_row + r) / job.terms] != 0
                  ? AddWrapped(total, ToInt64(sum))
                  : AddWrapped(static_cast<int32_t>(total), ToInt32(sum));
      tile->f[r][lane] = 0.0F;
    }
  }
}

// The row of y or totals that row r of the results goes to.
size_t OutRow(const MatmulJob& job, uint32_t r) { return job.token == nullptr ? r : job.token[r]; }

float PowerOfRow(const MatmulJob& job, uint32_t r) {
  if (job.totals == nullptr) return 1.0F;
  const float power = PowerOf(job.shift[OutRow(job, r)]);
  return job.gate == nullptr ? power : power * job.gate[r];
}

// A pair of two terms is one row of the result.
void StoreTile(const MatmulJob& job, uint32_t group, const Tile& tile) {
  for (uint32_t r = 0; r < tile.rows; r += job.terms) {
    const uint32_t second = r + job.terms - 1;
    const size_t row = OutRow(job, (tile.first_row + r) / job.terms);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t output = group * kLanes + lane;
      if (output >= job.outputs) continue;
      float f = tile.f[r][lane];
      int64_t total = tile.total[r][lane];
      if (second != r) {
        f = f + tile.f[second][lane];
        total = AddWrapped(total, tile.total[second][lane]);
      }
      if (job.totals == nullptr) {
        job.y[row * job.y_stride + output] = f;
      } else {
        int64_t& out = job.totals[row * job.totals_stride + output];
        out = job.token == nullptr ? total : AddWrapped(out, total);
      }
    }
  }
}

void RunTile(const MatmulJob& job, const RecordLayout& layout, uint32_t group, Tile* tile) {
  const std::byte* stream = job.records + size_t{group} * job.blocks * layout.bytes;
  uint32_t sum_group = 0;
  for (uint32_t block = 0; block < job.blocks; ++block) {
    Step(job, layout, stream + size_t{block} * layout.bytes, block, tile);
    if (job.totals != nullptr && block + 1 == job.sum_groups[sum_group]) {
      EndSumGroup(job, layout.scales > 0, tile);
      ++sum_group;
    }
  }
  StoreTile(job, group, *tile);
}

float LargestMagnitude(const float* x) {
  float amax = 0;
  for (size_t i = 0; i < 32; ++i) {
    const float a = std::fabs(x[i]);
    if (!(a <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::infinity();
    amax = std::max(amax, a);
  }
  return amax;
}

}  // namespace

void MatmulScalar(const MatmulJob& job) {
  const RecordLayout layout = LayoutOf(job.dtype);
  for (uint32_t group = job.group_begin; group < job.group_end; ++group) {
    for (uint32_t row = 0; row < job.rows; row += kTileRows) {
      Tile tile{.first_row = row, .rows = std::min(kTileRows, job.rows - row)};
      for (uint32_t r = 0; r < tile.rows; ++r) {
        tile.power[r] = PowerOfRow(job, (row + r) / job.terms);
      }
      RunTile(job, layout, group, &tile);
    }
  }
}

void QuantiseScalar(const QuantiseJob& job) {
  for (size_t b = 0; b < job.count; ++b) {
    const float* x = job.x + 32 * b;
    int8_t* q = job.q + 32 * b;
    const float amax = LargestMagnitude(x);
    job.sum[b] = 0;
    job.half_sum[b] = 0;
    if (amax < kSmallestAmax || std::isinf(amax)) {
      std::fill_n(q, 32, int8_t{0});
      job.scale[b] = std::isinf(amax) ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
      continue;
    }
    const float d = amax / 127.0F;
    const float inverse = 1.0F / d;
    job.scale[b] = d;
    for (size_t i = 0; i < 32; ++i) {
      q[i] = static_cast<int8_t>(std::lrint(x[i] * inverse));
      job.sum[b] += q[i];
      if (i < 16) job.half_sum[b] += q[i];
    }
  }
}

void RoundToBf16Scalar(const float* x, uint32_t n, uint16_t* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = FloatToBFloat16(x[i]);
}

}  // namespace cleave

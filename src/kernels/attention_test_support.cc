#include "kernels/attention_test_support.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/attention_steps.h"
#include "tensor/dtype.h"

namespace cleave::attention_test {
namespace {

std::vector<float> Normal(std::mt19937_64* random, uint32_t n, float scale) {
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> x(n);
  for (float& v : x) v = normal(*random) * scale;
  return x;
}

}  // namespace

std::vector<std::byte> Bytes(const std::vector<float>& x) {
  std::vector<std::byte> bytes(x.size() * sizeof(float));
  std::memcpy(bytes.data(), x.data(), bytes.size());
  return bytes;
}

bool SameOrBothNan(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return (std::isnan(x) && std::isnan(y)) ||
           std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

PagedHead::PagedHead(KvShape shape, uint32_t context, uint64_t seed, uint64_t placement,
                     float value_scale)
    : shape_(shape), context_(context), block_stride_(shape.head_bytes() + 192) {
  const uint32_t blocks = (context + shape.block_tokens - 1) / shape.block_tokens;
  std::vector<int32_t> order(2 * static_cast<size_t>(blocks) + 1);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 shuffle(placement + 99);
  std::shuffle(order.begin(), order.end(), shuffle);
  table_.assign(order.begin(), order.begin() + blocks);
  pool_.assign(order.size() * block_stride_, std::byte{0xFF});
  std::mt19937_64 random(seed);
  for (uint32_t p = 0; p < context; ++p) {
    keys_.push_back(Normal(&random, shape.head_dim, 1.0F));
    values_.push_back(Normal(&random, shape.head_dim, value_scale));
    Store(p);
  }
}

void PagedHead::Store(uint32_t position) {
  const auto block = static_cast<size_t>(table_[position / shape_.block_tokens]);
  StoreKv(Isa::kScalar, shape_, keys_[position].data(), values_[position].data(),
          position % shape_.block_tokens, pool_.data() + block * block_stride_);
}

void PagedHead::OverwriteKey(uint32_t position, float x) {
  keys_[position][0] = x;
  Store(position);
}

void PagedHead::OverwriteValue(uint32_t position, float x) {
  values_[position][0] = x;
  Store(position);
}

void PagedHead::SetKey(uint32_t position, const std::vector<float>& key) {
  keys_[position] = key;
  Store(position);
}

void PagedHead::ForgetBlocksBefore(uint32_t block) {
  for (uint32_t b = 0; b < block; ++b) {
    std::memset(pool_.data() + static_cast<size_t>(table_[b]) * block_stride_, 0xFF, block_stride_);
    table_[b] = -1;
  }
}

void PagedHead::KeepRuns(AttentionRuns runs) {
  for (size_t b = 0; b < table_.size(); ++b) {
    const size_t run = b * shape_.block_tokens / attention::kRun;
    if (run % runs.count == runs.index) continue;
    std::memset(pool_.data() + static_cast<size_t>(table_[b]) * block_stride_, 0xFF, block_stride_);
    table_[b] = std::numeric_limits<int32_t>::max();
  }
}

float PagedHead::Read(uint32_t position, size_t element) const {
  const auto block = static_cast<size_t>(table_[position / shape_.block_tokens]);
  const std::byte* at = pool_.data() + block * block_stride_ + element * shape_.element_bytes();
  if (shape_.type == KvType::kInt8) return static_cast<float>(static_cast<int8_t>(*at));
  const DType type = shape_.type == KvType::kF32   ? DType::kF32
                     : shape_.type == KvType::kF16 ? DType::kF16
                                                   : DType::kBF16;
  float x = 0;
  DequantiseRow(type, at, 1, &x);
  return x;
}

float PagedHead::Scale(uint32_t position, size_t at) const {
  if (shape_.type != KvType::kInt8) return 1;
  const auto block = static_cast<size_t>(table_[position / shape_.block_tokens]);
  float scale = 0;
  std::memcpy(
      &scale,
      pool_.data() + block * block_stride_ + at + position % shape_.block_tokens * sizeof scale,
      sizeof scale);
  return scale;
}

float PagedHead::StoredKey(uint32_t position, uint32_t i) const {
  const uint32_t offset = position % shape_.block_tokens;
  return Read(position,
              (static_cast<size_t>(offset / 16) * shape_.head_dim + i) * 16 + offset % 16) *
         Scale(position, shape_.key_scales_at());
}

float PagedHead::StoredValue(uint32_t position, uint32_t i) const {
  const uint32_t offset = position % shape_.block_tokens;
  return Read(position, (static_cast<size_t>(shape_.block_tokens) + offset) * shape_.head_dim + i) *
         Scale(position, shape_.value_scales_at());
}

double PagedHead::largest_value() const {
  double largest = 0;
  for (const auto& v : values_) {
    for (float x : v) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  }
  return largest;
}

void PagedHead::Describe(AttentionJob* job) const {
  job->block_table = table_;
  job->kv = pool_.data();
  job->block_stride = block_stride_;
}

Query::Query(uint32_t d, uint32_t heads, uint32_t tokens, uint32_t first, uint64_t seed)
    : d_(d),
      heads_(heads),
      tokens_(tokens),
      first_(first),
      scale_(1.0F / std::sqrt(static_cast<float>(d))) {
  std::mt19937_64 random(seed);
  q_ = Normal(&random, d * heads * tokens, 1.0F);
}

AttentionJob Query::Job(const PagedHead& head, uint32_t window, uint32_t token,
                        uint32_t count) const {
  AttentionJob job;
  head.Describe(&job);
  job.q_stride = static_cast<size_t>(heads_) * d_;
  job.q = q_.data() + token * job.q_stride;
  job.tokens = count;
  job.first_position = first_ + token;
  job.heads = heads_;
  job.window = window;
  job.scale = scale_;
  return job;
}

std::vector<float> Query::Run(Isa isa, const PagedHead& head, uint32_t window,
                              uint32_t at_once) const {
  std::vector<float> out(q_.size(), -1.0F);
  AttentionScratch scratch(d_);
  for (uint32_t t = 0; t < tokens_; t += at_once) {
    AttentionJob job = Job(head, window, t, std::min(at_once, tokens_ - t));
    job.out_stride = job.q_stride;
    job.out = out.data() + t * job.out_stride;
    Attention(isa, head.shape(), job, &scratch);
  }
  return out;
}

std::vector<double> Query::Double(const PagedHead& head, uint32_t window) const {
  std::vector<double> out(q_.size());
  std::vector<float> keys;  // [context][d], as stored
  std::vector<float> values;
  for (uint32_t j = 0; j < head.context(); ++j) {
    for (uint32_t i = 0; i < d_; ++i) {
      keys.push_back(head.StoredKey(j, i));
      values.push_back(head.StoredValue(j, i));
    }
  }
  for (uint32_t row = 0; row < tokens_ * heads_; ++row) {
    const uint32_t end = first_ + row / heads_ + 1;
    const uint32_t begin = window == 0 || window >= end ? 0 : end - window;
    const float* q = q_.data() + static_cast<size_t>(row) * d_;
    std::vector<double> score(end - begin);
    for (uint32_t j = begin; j < end; ++j) {
      double s = 0;
      for (uint32_t i = 0; i < d_; ++i) s += static_cast<double>(q[i]) * keys[j * d_ + i];
      score[j - begin] = s * scale_;
    }
    const double highest = *std::max_element(score.begin(), score.end());
    double total = 0;
    double* sum = out.data() + static_cast<size_t>(row) * d_;
    for (uint32_t j = begin; j < end; ++j) {
      const double mass = std::exp(score[j - begin] - highest);
      total += mass;
      for (uint32_t i = 0; i < d_; ++i) sum[i] += mass * values[j * d_ + i];
    }
    for (uint32_t i = 0; i < d_; ++i) sum[i] /= total;
  }
  return out;
}

double Query::LargestNorm1() const {
  double largest = 0;
  for (size_t at = 0; at < q_.size(); at += d_) {
    double norm = 0;
    for (size_t i = at; i < at + d_; ++i) norm += std::fabs(static_cast<double>(q_[i]));
    largest = std::max(largest, norm);
  }
  return largest;
}

void Query::AddDriftTo(PagedHead* head, float bits) const {
  double norm = 0;
  for (uint32_t i = 0; i < d_; ++i) norm += static_cast<double>(q_[i]) * q_[i];
  const auto unit = static_cast<float>(bits / (scale_ * 1.4426950408889634 * norm));
  for (uint32_t p = 0; p < head->context(); ++p) {
    std::vector<float> key = head->key(p);
    for (uint32_t i = 0; i < d_; ++i) key[i] += q_[i] * unit * static_cast<float>(p);
    head->SetKey(p, key);
  }
}

}  // namespace cleave::attention_test

#include "kernels/packed_matrix.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "base/checked.h"
#include "kernels/matmul_job.h"
#include "kernels/record.h"
#include "kernels/weight_block.h"

namespace cleave {
namespace {

constexpr size_t kPage = 4096;

// Elements a row needs so that every block of the plan lies in it.
uint64_t ReachOf(const KPlan& plan) {
  uint64_t reach = 0;
  for (const KBlock& b : plan.blocks) reach = std::max(reach, uint64_t{32} * b.window + b.hi);
  return reach;
}

// Σ value² over elements [lo, hi), never below the true sum: exact integer sums of codes, then a
// few operations in double whose error the last term covers.
double SquaredNorm(const RecordLayout& layout, const QuantBlock& w, const KBlock& b) {
  double total = 0;
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t begin = std::max<uint32_t>(b.lo, 16 * half);
    const uint32_t end = std::min<uint32_t>(b.hi, 16 * half + 16);
    if (begin >= end) continue;
    int32_t sum = 0;
    int32_t squares = 0;
    for (uint32_t i = begin; i < end; ++i) {
      const int32_t c = static_cast<int32_t>(w.codes[i]) - static_cast<int32_t>(layout.zero);
      sum += c;
      squares += c * c;
    }
    const double d = w.scale[half];
    const double m = w.min;
    const double dd = d * d * squares;
    const double mm = m * m * (end - begin);
    total += dd + 2 * d * m * sum + mm + 1e-6 * (dd + mm);
  }
  return total;
}

double SquaredNorm(const float* w, const KBlock& b) {
  double total = 0;
  for (uint32_t i = b.lo; i < b.hi; ++i) total += static_cast<double>(w[i]) * w[i];
  return total;
}

// The element bytes of one plain row, [lo, hi) of a window, into a lane of a zeroed record.
void StorePlain(DType dtype, const std::byte* row, const KBlock& b, uint32_t lane,
                std::byte* record) {
  const size_t size = InfoOf(dtype).block_bytes;
  const std::byte* source = row + size * 32 * b.window;
  for (uint32_t k = b.lo; k < b.hi; ++k) {
    size_t at = size * (16 * static_cast<size_t>(k) + lane);
    if (dtype == DType::kBF16) at = 64 * static_cast<size_t>(k / 2) + 4 * lane + 2 * (k % 2);
    std::memcpy(record + at, source + size * k, size);
  }
}

}  // namespace

ActKind ActKindOf(DType weights) {
  if (IsQuantised(weights)) return ActKind::kInt8;
  return weights == DType::kBF16 ? ActKind::kBF16 : ActKind::kF32;
}

void PackedMatrix::Free::operator()(std::byte* p) const {
  if (bytes > 0) munmap(p, bytes);
}

Result<PackedMatrix> PackedMatrix::Describe(const TensorView& source, uint32_t rows, KPlan plan) {
  const uint64_t reach = ReachOf(plan);
  if (reach > source.cols()) {
    return InvalidArgument(
        fmt::format("weight matrix has {} columns, its plan needs {}", source.cols(), reach));
  }
  if (!RowBytes(source.dtype, source.cols()).has_value()) {
    return InvalidArgument(fmt::format("{} weight matrix has {} columns, not a multiple of {}",
                                       NameOf(source.dtype), source.cols(),
                                       InfoOf(source.dtype).block_elements));
  }
  if (plan.blocks.size() > kMaxBlocks) {
    return InvalidArgument(
        fmt::format("weight matrix has {} columns in one rank, {} are the most; cut it by tp",
                    reach, 32 * kMaxBlocks));
  }
  PackedMatrix m;
  m.dtype_ = source.dtype;
  m.rows_ = rows;
  m.groups_ = static_cast<uint32_t>(CeilDiv<uint64_t>(rows, kRowsPerGroup));
  m.record_bytes_ = LayoutOf(source.dtype).bytes;
  m.plan_ = std::move(plan);
  const std::optional<uint64_t> records = CheckedMul(m.groups_, m.plan_.blocks.size());
  const std::optional<uint64_t> bytes =
      records.has_value() ? CheckedMul(*records, m.record_bytes_) : std::nullopt;
  if (!bytes.has_value() || *bytes > std::numeric_limits<ptrdiff_t>::max() - kPage) {
    return ResourceExhausted(fmt::format("packed weights of {} rows do not fit memory", rows));
  }
  return m;
}

Status PackedMatrix::Reserve() {
  const size_t mapped = std::max<size_t>(RoundUp<size_t>(bytes(), kPage), kPage);
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    return ResourceExhausted(
        fmt::format("{} bytes for packed weights cannot be had; use a smaller model or format, or "
                    "more ranks",
                    mapped));
  }
  madvise(p, mapped, MADV_HUGEPAGE);  // neighbours join, so small matrices profit too
  data_ = std::unique_ptr<std::byte[], Free>(static_cast<std::byte*>(p), Free{mapped});
  group_norms_.reset(new (std::nothrow) float[groups_]());
  if (groups_ > 0 && group_norms_ == nullptr) {
    return ResourceExhausted(fmt::format("no memory for the norms of {} groups", groups_));
  }
  return OkStatus();
}

Result<PackedMatrix> PackedMatrix::Allocate(const TensorView& source, uint32_t rows, KPlan plan) {
  ASSIGN_OR_RETURN(PackedMatrix m, Describe(source, rows, std::move(plan)));
  RETURN_IF_ERROR(m.Reserve());
  return m;
}

void PackedMatrix::Attach(const std::byte* packed, float max_row_norm) {
  data_ = std::unique_ptr<std::byte[], Free>(const_cast<std::byte*>(packed), Free{0});
  max_row_norm_ = max_row_norm;
}

uint64_t PackedMatrix::BytesOf(DType dtype, uint64_t rows, const KPlan& plan) {
  return CeilDiv<uint64_t>(rows, kRowsPerGroup) * plan.blocks.size() * LayoutOf(dtype).bytes;
}

void PackedMatrix::PackGroups(const TensorView& source, const RowMap& row_map, uint32_t begin,
                              uint32_t end) {
  const RecordLayout layout = LayoutOf(dtype_);
  const uint64_t row_bytes = *RowBytes(dtype_, source.cols());
  const size_t stream_bytes = plan_.blocks.size() * record_bytes_;
  for (uint32_t g = begin; g < end; ++g) {
    std::byte* stream = data_.get() + g * stream_bytes;
    std::memset(stream, 0, stream_bytes);
    double largest = 0;
    const uint32_t lanes = std::min(kRowsPerGroup, rows_ - g * kRowsPerGroup);
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      const uint64_t row = row_map(g * kRowsPerGroup + lane);
      CLEAVE_CHECK(row < source.rows());
      const double squares = PackRow(layout, source.data + row * row_bytes, lane, stream);
      largest = std::isfinite(squares) ? std::max(largest, squares)
                                       : std::numeric_limits<double>::infinity();
    }
    // Rounded up twice over: the square root's and the narrowing's error are far below 2^-20.
    group_norms_[g] = static_cast<float>(std::sqrt(largest) * (1 + 0x1p-20));
  }
}

double PackedMatrix::PackRow(const RecordLayout& layout, const std::byte* row, uint32_t lane,
                             std::byte* stream) const {
  double squares = 0;
  std::byte* record = stream;
  for (const KBlock& b : plan_.blocks) {
    if (layout.scales > 0) {
      const QuantBlock w = ReadQuantBlock(dtype_, row, b.window);
      StoreBlock(layout, w, lane, record);
      squares += SquaredNorm(layout, w, b);
    } else {
      StorePlain(dtype_, row, b, lane, record);
      std::array<float, 32> w;
      LoadPlain(dtype_, record, lane, w.data());
      squares += SquaredNorm(w.data(), b);
    }
    record += record_bytes_;
  }
  return squares;
}

void PackedMatrix::Finish() {
  max_row_norm_ = 0;
  for (uint32_t g = 0; g < groups_; ++g) max_row_norm_ = std::max(max_row_norm_, group_norms_[g]);
}

void PackedMatrix::UnpackRow(uint32_t row, float* out) const {
  const RecordLayout layout = LayoutOf(dtype_);
  const uint32_t lane = row % kRowsPerGroup;
  const std::byte* record = group_data(row / kRowsPerGroup);
  for (const KBlock& b : plan_.blocks) {
    std::array<float, 32> w;
    if (layout.scales > 0) {
      Dequantise(dtype_, LoadBlock(layout, record, lane), w.data());
    } else {
      LoadPlain(dtype_, record, lane, w.data());
    }
    std::copy(w.begin() + b.lo, w.begin() + b.hi, out + size_t{32} * b.window + b.lo);
    record += record_bytes_;
  }
}

}  // namespace cleave

#include "bench/kernel_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/clock.h"
#include "base/host.h"
#include "bench/bandwidth_probe.h"
#include "bench/compute_probe.h"
#include "kernels/matmul.h"
#include "kernels/packed_matrix.h"
#include "kernels/random_weights.h"
#include "kernels/thread_pool.h"

namespace cleave {
namespace {

constexpr double kRepeatSeconds = 0.02;
constexpr uint32_t kMostCalls = 1U << 20U;
// The scalar kernels do about half a Gop/s: of larger products some outputs are compared.
constexpr double kComparedOperations = 3e8;
constexpr uint32_t kSumGroup = 64;
constexpr uint32_t kUnit = 64;
constexpr int32_t kShift = 18;
// Of the memory that is there.
constexpr double kMostOfMemory = 0.8;

KPlan PlanOf(const ProductOptions& options) {
  if (options.sum == ProductSum::kColumn) return ColumnPlan(options.k);
  const UnitRange all{0, CeilDiv(options.k, kUnit)};
  return RowPlan(options.k, kUnit, kSumGroup, {&all, 1});
}

// One type's matrices, activations and results.
class ProductBench {
 public:
  ProductBench(const ProductOptions& options, ThreadPool* pool)
      : options_(options),
        pool_(pool),
        most_rows_(*std::max_element(options.rows.begin(), options.rows.end())) {}

  Status Prepare();
  [[nodiscard]] ProductFigures Measure(uint32_t rows, BandwidthProbe* bandwidth,
                                       ComputeProbe* compute);
  [[nodiscard]] uint64_t matrix_bytes() const { return copies_[0].bytes(); }
  [[nodiscard]] uint32_t copies() const { return static_cast<uint32_t>(copies_.size()); }

 private:
  struct Results {
    std::vector<float> y;         // [rows, outputs]
    std::vector<int64_t> totals;  // likewise
  };

  [[nodiscard]] Status CheckRoom(uint64_t copies, uint64_t matrix_bytes) const;
  Status Pack(const TensorView& view, const KPlan& plan, uint64_t copies);
  void Multiply(Isa isa, const PackedMatrix& m, uint32_t rows, uint32_t begin, uint32_t end,
                Results* out) const;
  // `calls` products, of the copies in turn; the seconds they took.
  double RunCalls(uint32_t rows, uint32_t calls);
  [[nodiscard]] std::string Compare(uint32_t rows) const;
  [[nodiscard]] std::string CompareGroups(uint32_t rows, uint32_t begin, uint32_t end) const;

  const ProductOptions& options_;
  ThreadPool* const pool_;
  const uint32_t most_rows_;
  std::vector<PackedMatrix> copies_;
  std::unique_ptr<ActBuffer> acts_;
  std::vector<int32_t> shift_;
  std::vector<uint8_t> wide_;
  Results results_;
  size_t turn_ = 0;
};

Status ProductBench::CheckRoom(uint64_t copies, uint64_t matrix_bytes) const {
  const double outputs = options_.outputs;
  const double k = options_.k;
  const double file = static_cast<double>(RowBytes(options_.dtype, options_.k).value_or(0));
  // The probe reads a buffer of its own; results are there twice.
  const double needed = outputs * file + 2.0 * static_cast<double>(copies * matrix_bytes) +
                        2.0 * most_rows_ * (k + outputs) * sizeof(int64_t);
  const double there = kMostOfMemory * static_cast<double>(ReadHostMemory().available_bytes);
  if (needed <= there) return OkStatus();
  return ResourceExhausted(fmt::format(
      "{} of {}x{} with {} rows take {:.1f} GB, {:.1f} GB may be used; give a smaller --shape, "
      "fewer --rows or fewer --bytes",
      NameOf(options_.dtype), options_.outputs, options_.k, most_rows_, needed * 1e-9,
      there * 1e-9));
}

// All are had before any is written: small ones then share huge pages.
Status ProductBench::Pack(const TensorView& view, const KPlan& plan, uint64_t copies) {
  for (uint64_t i = 0; i < copies; ++i) {
    ASSIGN_OR_RETURN(PackedMatrix m, PackedMatrix::Allocate(view, options_.outputs, plan));
    copies_.push_back(std::move(m));
  }
  pool_->Run([&](uint32_t thread) {
    for (PackedMatrix& m : copies_) {
      const ThreadPool::Share share = pool_->ShareOf(m.groups(), thread);
      m.PackGroups(
          view, [](uint64_t row) { return row; }, share.begin, share.end);
    }
  });
  for (PackedMatrix& m : copies_) m.Finish();
  return OkStatus();
}

Status ProductBench::Prepare() {
  if (!FitsBlocks(options_.dtype, options_.k)) {
    return InvalidArgument(
        fmt::format("{} has rows of whole blocks of {}, not of {}; give "
                    "--shape {}x{}",
                    NameOf(options_.dtype), InfoOf(options_.dtype).block_elements, options_.k,
                    options_.outputs, RoundUp(options_.k, InfoOf(options_.dtype).block_elements)));
  }
  const KPlan plan = PlanOf(options_);
  const uint64_t bytes = PackedMatrix::BytesOf(options_.dtype, options_.outputs, plan);
  const uint64_t copies = std::max<uint64_t>(1, CeilDiv(options_.stream_bytes, bytes));
  RETURN_IF_ERROR(CheckRoom(copies, bytes));
  const std::vector<std::byte> weights =
      RandomWeights(options_.dtype, options_.outputs, options_.k, /*seed=*/1);
  const TensorView view{
      .data = weights.data(), .dtype = options_.dtype, .shape = {options_.outputs, options_.k}};
  RETURN_IF_ERROR(Pack(view, plan, copies));
  const ActKind kind = ActKindOf(options_.dtype);
  const std::vector<float> x = MakeActivations(most_rows_, options_.k, /*seed=*/2);
  acts_ = std::make_unique<ActBuffer>(most_rows_, static_cast<uint32_t>(plan.blocks.size()));
  PrepareActs(options_.isa, kind, plan, x.data(), options_.k, 0, most_rows_, acts_.get());
  shift_.assign(most_rows_, kShift);
  for (uint32_t row = 0; row < most_rows_; ++row) {
    const bool fits = RowFitsInt32(kind, *acts_, plan, row, copies_[0].max_row_norm(), kShift);
    wide_.push_back(fits ? 0 : 1);
  }
  const size_t size = size_t{most_rows_} * options_.outputs;
  if (options_.sum == ProductSum::kColumn) results_.y.resize(size);
  if (options_.sum == ProductSum::kRow) results_.totals.resize(size);
  return OkStatus();
}

void ProductBench::Multiply(Isa isa, const PackedMatrix& m, uint32_t rows, uint32_t begin,
                            uint32_t end, Results* out) const {
  if (options_.sum == ProductSum::kColumn) {
    MatmulColumn(isa, m, *acts_, rows, begin, end, out->y.data(), m.rows());
  } else {
    MatmulRow(isa, m, *acts_, rows, shift_.data(), wide_.data(), begin, end, out->totals.data(),
              m.rows());
  }
}

double ProductBench::RunCalls(uint32_t rows, uint32_t calls) {
  const TimePoint start = SteadyClock::now();
  pool_->Run([&](uint32_t thread) {
    const ThreadPool::Share share = pool_->ShareOf(copies_[0].groups(), thread);
    size_t turn = turn_;
    for (uint32_t call = 0; call < calls; ++call) {
      Multiply(options_.isa, copies_[turn], rows, share.begin, share.end, &results_);
      turn = turn + 1 == copies_.size() ? 0 : turn + 1;
    }
  });
  const double seconds = SecondsBetween(start, SteadyClock::now());
  turn_ = (turn_ + calls) % copies_.size();
  return seconds;
}

std::string ProductBench::CompareGroups(uint32_t rows, uint32_t begin, uint32_t end) const {
  Results truth{std::vector<float>(results_.y.size()),
                std::vector<int64_t>(results_.totals.size())};
  pool_->Run([&](uint32_t thread) {
    const ThreadPool::Share share = pool_->ShareOf(end - begin, thread);
    Multiply(Isa::kScalar, copies_[0], rows, begin + share.begin, begin + share.end, &truth);
  });
  const uint32_t last = std::min(end * kRowsPerGroup, options_.outputs);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t output = begin * kRowsPerGroup; output < last; ++output) {
      const size_t at = size_t{row} * options_.outputs + output;
      const std::string where = fmt::format("{} with {} rows, row {}, output {}",
                                            NameOf(options_.dtype), rows, row, output);
      if (options_.sum == ProductSum::kRow) {
        if (results_.totals[at] == truth.totals[at]) continue;
        return fmt::format("{}: {}, the scalar kernel has {}", where, results_.totals[at],
                           truth.totals[at]);
      }
      const auto own = std::bit_cast<uint32_t>(results_.y[at]);
      const auto other = std::bit_cast<uint32_t>(truth.y[at]);
      if (own == other) continue;
      return fmt::format("{}: {} (bits {:08x}), the scalar kernel has {} ({:08x})", where,
                         results_.y[at], own, truth.y[at], other);
    }
  }
  return "";
}

// The first groups, as many as there is time for, and the last one, which may be part empty.
std::string ProductBench::Compare(uint32_t rows) const {
  const double of_group = 2.0 * rows * kRowsPerGroup * options_.k;
  const uint32_t groups = copies_[0].groups();
  const auto some = static_cast<uint32_t>(
      std::clamp(kComparedOperations / of_group, 1.0, static_cast<double>(groups)));
  std::string difference = CompareGroups(rows, 0, some);
  if (difference.empty() && some < groups) difference = CompareGroups(rows, groups - 1, groups);
  return difference;
}

ProductFigures ProductBench::Measure(uint32_t rows, BandwidthProbe* bandwidth,
                                     ComputeProbe* compute) {
  ProductFigures figures{.rows = rows};
  // Of other rows and types nothing is left in the results.
  std::fill(results_.y.begin(), results_.y.end(), 0.0F);
  std::fill(results_.totals.begin(), results_.totals.end(), 0);
  const double first_s = RunCalls(rows, 1);
  figures.difference = Compare(rows);
  const double wanted = kRepeatSeconds / std::max(first_s, 1e-9);
  const auto calls = static_cast<uint32_t>(std::clamp(wanted, 1.0, 1.0 * kMostCalls));
  RunCalls(rows, calls);
  std::vector<double> seconds;
  for (uint32_t repeat = 0; repeat < options_.repeats; ++repeat) {
    seconds.push_back(RunCalls(rows, calls) / calls);
    bandwidth->Measure(1);
    if (compute != nullptr) compute->Measure(1);
  }
  figures.seconds = Median(std::move(seconds));
  figures.bytes_per_s = static_cast<double>(matrix_bytes()) / figures.seconds;
  figures.ops_per_s = 2.0 * rows * options_.outputs * options_.k / figures.seconds;
  return figures;
}

Result<ProductSpeed> MeasureOn(const ProductOptions& options,
                               const std::function<void(uint32_t rows)>& on_rows) {
  ThreadPool pool(static_cast<uint32_t>(options.cpus.size()), options.cpus);
  ProductBench bench(options, &pool);
  RETURN_IF_ERROR(bench.Prepare());
  ProductSpeed speed;
  speed.dtype = options.dtype;
  speed.matrix_bytes = bench.matrix_bytes();
  speed.copies = bench.copies();
  speed.peak = PeakKindOf(ActKindOf(options.dtype));
  ASSIGN_OR_RETURN(const auto bandwidth,
                   BandwidthProbe::Create(speed.matrix_bytes * speed.copies, options.cpus));
  std::unique_ptr<ComputeProbe> compute;
  if (HasPeak(options.isa)) {
    ASSIGN_OR_RETURN(compute, ComputeProbe::Create(options.isa, speed.peak, options.cpus));
  }
  for (const uint32_t rows : options.rows) {
    on_rows(rows);
    speed.runs.push_back(bench.Measure(rows, bandwidth.get(), compute.get()));
  }
  speed.probe_bytes_per_s = bandwidth->median_bytes_per_s();
  speed.best_probe_bytes_per_s = bandwidth->best_bytes_per_s();
  if (compute == nullptr) return speed;
  speed.peak_ops_per_s = compute->median_ops_per_s();
  speed.best_peak_ops_per_s = compute->best_ops_per_s();
  return speed;
}

}  // namespace

bool FitsBlocks(DType dtype, uint32_t k) { return RowBytes(dtype, k).has_value(); }

double ProductSpeed::OfBandwidth(const ProductFigures& run) const {
  return probe_bytes_per_s > 0 ? run.bytes_per_s / probe_bytes_per_s : 0;
}

std::optional<double> ProductSpeed::OfPeak(const ProductFigures& run) const {
  if (peak_ops_per_s <= 0) return {};
  return run.ops_per_s / peak_ops_per_s;
}

bool ProductSpeed::same() const {
  return std::all_of(runs.begin(), runs.end(),
                     [](const ProductFigures& run) { return run.difference.empty(); });
}

Result<ProductSpeed> MeasureProducts(const ProductOptions& options,
                                     const std::function<void(uint32_t rows)>& on_rows) {
  if (options.cpus.empty() || options.rows.empty() || options.repeats == 0 ||
      options.outputs == 0 || options.k == 0 ||
      *std::min_element(options.rows.begin(), options.rows.end()) == 0) {
    return InvalidArgument("products need cores, rows, repeats, outputs and a K of at least one");
  }
  if (!CpuSupports(options.isa)) {
    return InvalidArgument(fmt::format("this processor does not have {}", IsaName(options.isa)));
  }
  // A pool pins its caller for good: it gets a thread of its own for that.
  Result<ProductSpeed> result = Internal("not measured");
  std::thread([&] { result = MeasureOn(options, on_rows); }).join();
  return result;
}

}  // namespace cleave

#pragma once
// Speed of the matrix products (kernels/matmul.h) on random weights, beside what the machine can do
// at most, and their results beside the scalar kernels'.
//
//   ASSIGN_OR_RETURN(const ProductSpeed speed, MeasureProducts(options, on_rows));
//   speed.OfBandwidth(speed.runs[0]);
//
// Copies of the matrix are walked in turn, as the layers of a model are; each thread takes the same
// share of the output groups of every copy, and lays it down itself. After each repeat a probe
// reads as many bytes (bandwidth_probe.h) and another computes on registers alone
// (compute_probe.h), with the same threads.
//
// Owner: a verb. Any thread, one call at a time; starts threads, pinned, and ends them. Fails with
// kInvalidArgument for a shape that the type cannot have and kResourceExhausted for one that does
// not fit the memory.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/isa.h"
#include "kernels/peak.h"
#include "tensor/dtype.h"

namespace cleave {

enum class ProductSum { kColumn, kRow };  // MatmulColumn, MatmulRow

struct ProductOptions {
  DType dtype = DType::kQ41;
  uint32_t outputs = 1536;
  uint32_t k = 576;
  std::vector<uint32_t> rows = {1};  // of activations, each measured by itself
  Isa isa = Isa::kScalar;
  std::vector<int> cpus;  // a thread each
  ProductSum sum = ProductSum::kColumn;
  uint64_t stream_bytes = 0;  // of all copies at least; 0: one copy
  uint32_t repeats = 5;
};

struct ProductFigures {
  uint32_t rows = 0;
  double seconds = 0;  // of a product, the median
  // Operations of a multiply and an add for every weight and row.
  double ops_per_s = 0;
  double bytes_per_s = 0;  // of packed weights
  // Empty: all results that were compared are the scalar kernel's; else the first that is not.
  std::string difference = {};
};

struct ProductSpeed {
  DType dtype = DType::kF32;
  uint64_t matrix_bytes = 0;  // packed
  uint32_t copies = 0;
  // Medians and bests of all passes of the probes.
  double probe_bytes_per_s = 0;
  double best_probe_bytes_per_s = 0;
  PeakKind peak = PeakKind::kF32;
  double peak_ops_per_s = 0;  // 0: none of the scalar kernels
  double best_peak_ops_per_s = 0;
  std::vector<ProductFigures> runs;  // by rows, as asked for

  [[nodiscard]] double OfBandwidth(const ProductFigures& run) const;
  [[nodiscard]] std::optional<double> OfPeak(const ProductFigures& run) const;
  [[nodiscard]] bool same() const;
};

// `on_rows` is called before each number of rows is measured.
Result<ProductSpeed> MeasureProducts(const ProductOptions& options,
                                     const std::function<void(uint32_t rows)>& on_rows);

// Whether the type can have rows of k elements: whole blocks.
bool FitsBlocks(DType dtype, uint32_t k);

// {"isa", "threads", "sum": "column", "outputs", "k", "same": true, "types": [{"type",
//   "matrix_bytes", "copies", "probe": {"bytes_per_s", "best_bytes_per_s"}, "peak": {"kind",
//   "ops_per_s", "best_ops_per_s"}, "runs": [{"rows", "s", "bytes_per_s", "of_bandwidth",
//   "ops_per_s", "of_peak", "same": true}]}]}
// A peak that there is none of and a share of it are null; "difference" is there where "same" is
// false. Of `options` isa, threads, sum and shape are taken.
std::string ProductJson(const ProductOptions& options, const std::vector<ProductSpeed>& speeds);
std::string ProductText(const ProductOptions& options, const std::vector<ProductSpeed>& speeds);

}  // namespace cleave

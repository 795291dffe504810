// The reports of kernel_speed.h and op_speed.h as text and as JSON.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text_table.h"
#include "bench/kernel_speed.h"
#include "bench/op_speed.h"

namespace cleave {
namespace {

using Json = nlohmann::ordered_json;

std::string_view NameOfSum(ProductSum sum) { return sum == ProductSum::kColumn ? "column" : "row"; }

Json RunJson(const ProductSpeed& speed, const ProductFigures& run) {
  const std::optional<double> of_peak = speed.OfPeak(run);
  Json json = {{"rows", run.rows},
               {"s", run.seconds},
               {"bytes_per_s", run.bytes_per_s},
               {"of_bandwidth", speed.OfBandwidth(run)},
               {"ops_per_s", run.ops_per_s},
               {"of_peak", of_peak ? Json(*of_peak) : Json(nullptr)},
               {"same", run.difference.empty()}};
  if (!run.difference.empty()) json["difference"] = run.difference;
  return json;
}

Json TypeJson(const ProductSpeed& speed) {
  Json runs = Json::array();
  for (const ProductFigures& run : speed.runs) runs.push_back(RunJson(speed, run));
  Json peak = nullptr;
  if (speed.peak_ops_per_s > 0) {
    peak = {{"kind", PeakKindName(speed.peak)},
            {"ops_per_s", speed.peak_ops_per_s},
            {"best_ops_per_s", speed.best_peak_ops_per_s}};
  }
  return {{"type", NameOf(speed.dtype)},
          {"matrix_bytes", speed.matrix_bytes},
          {"copies", speed.copies},
          {"probe",
           {{"bytes_per_s", speed.probe_bytes_per_s},
            {"best_bytes_per_s", speed.best_probe_bytes_per_s}}},
          {"peak", std::move(peak)},
          {"runs", std::move(runs)}};
}

Json OrNull(double figure, double whole) {
  return whole > 0 ? Json(figure / whole) : Json(nullptr);
}

std::string Threads(size_t n) { return fmt::format("{} thread{}", n, n == 1 ? "" : "s"); }

std::string Share(double figure, double whole) {
  if (whole <= 0) return "-";
  return fmt::format("{:.1f} % of {:.1f}", figure / whole * 100, whole * 1e-9);
}

}  // namespace

std::string ProductJson(const ProductOptions& options, const std::vector<ProductSpeed>& speeds) {
  Json types = Json::array();
  for (const ProductSpeed& speed : speeds) types.push_back(TypeJson(speed));
  const bool same = std::all_of(speeds.begin(), speeds.end(),
                                [](const ProductSpeed& speed) { return speed.same(); });
  const Json json = {{"isa", IsaName(options.isa)},
                     {"threads", options.cpus.size()},
                     {"sum", NameOfSum(options.sum)},
                     {"outputs", options.outputs},
                     {"k", options.k},
                     {"same", same},
                     {"types", std::move(types)}};
  return json.dump();
}

std::string ProductText(const ProductOptions& options, const std::vector<ProductSpeed>& speeds) {
  std::string text =
      fmt::format("products of {} outputs over {}, {}, {}, sums by {}; medians of {}\n\n",
                  options.outputs, options.k, Threads(options.cpus.size()), IsaName(options.isa),
                  NameOfSum(options.sum), options.repeats);
  std::vector<std::vector<std::string>> rows = {
      {"type", "MB", "rows", "us", "GB/s", "of the probe's", "Gop/s", "of the peak", "bits"}};
  std::string differences;
  for (const ProductSpeed& speed : speeds) {
    const double bytes = static_cast<double>(speed.matrix_bytes) * speed.copies;
    for (const ProductFigures& run : speed.runs) {
      rows.push_back({std::string(NameOf(speed.dtype)), fmt::format("{:.1f}", bytes * 1e-6),
                      fmt::format("{}", run.rows), fmt::format("{:.1f}", run.seconds * 1e6),
                      fmt::format("{:.2f}", run.bytes_per_s * 1e-9),
                      Share(run.bytes_per_s, speed.probe_bytes_per_s),
                      fmt::format("{:.1f}", run.ops_per_s * 1e-9),
                      Share(run.ops_per_s, speed.peak_ops_per_s),
                      run.difference.empty() ? "same" : "DIFFER"});
      if (!run.difference.empty()) differences += run.difference + "\n";
    }
  }
  text += TextTable(rows);
  return text + (differences.empty() ? "the scalar kernel's bits in every result compared\n"
                                     : "NOT the scalar kernel's bits:\n" + differences);
}

std::string OpJson(const OpOptions& options, const std::vector<OpSpeed>& speeds) {
  Json kernels = Json::array();
  bool same = true;
  for (const OpSpeed& speed : speeds) {
    same = same && speed.same;
    const bool counted = speed.operations > 0;
    kernels.push_back({{"kernel", speed.name},
                       {"bytes", speed.bytes},
                       {"operations", counted ? Json(speed.operations) : Json(nullptr)},
                       {"s", speed.seconds},
                       {"bytes_per_s", speed.bytes_per_s},
                       {"of_bandwidth", OrNull(speed.bytes_per_s, speed.probe_bytes_per_s)},
                       {"ops_per_s", counted ? Json(speed.ops_per_s) : Json(nullptr)},
                       {"of_peak", OrNull(speed.ops_per_s, speed.peak_ops_per_s)},
                       {"same", speed.same}});
  }
  const Json json = {{"isa", IsaName(options.isa)},
                     {"threads", options.cpus.size()},
                     {"same", same},
                     {"kernels", std::move(kernels)}};
  return json.dump();
}

std::string OpText(const OpOptions& options, const std::vector<OpSpeed>& speeds) {
  std::vector<std::vector<std::string>> rows = {
      {"kernel", "us", "GB/s", "of the probe's", "Gop/s", "of the peak", "bits"}};
  for (const OpSpeed& speed : speeds) {
    rows.push_back({speed.name, fmt::format("{:.2f}", speed.seconds * 1e6),
                    fmt::format("{:.2f}", speed.bytes_per_s * 1e-9),
                    Share(speed.bytes_per_s, speed.probe_bytes_per_s),
                    speed.operations > 0 ? fmt::format("{:.1f}", speed.ops_per_s * 1e-9) : "-",
                    Share(speed.ops_per_s, speed.peak_ops_per_s), speed.same ? "same" : "DIFFER"});
  }
  return fmt::format("kernels at SmolLM2-135M's sizes, {}, {}; medians of {}\n\n",
                     Threads(options.cpus.size()), IsaName(options.isa), options.repeats) +
         TextTable(rows);
}

}  // namespace cleave

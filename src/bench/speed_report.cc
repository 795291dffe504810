#include "bench/speed_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text_table.h"
#include "bench/bandwidth_probe.h"
#include "comm/bill_report.h"

namespace cleave {
namespace {

using Json = nlohmann::ordered_json;
using Phases = std::vector<PhaseSpeed>;

template <typename Figure>
double MedianOf(const Phases& phases, Figure&& figure) {
  std::vector<double> figures;
  for (const PhaseSpeed& phase : phases) figures.push_back(figure(phase));
  return Median(std::move(figures));
}

double Rate(const Phases& phases) {
  return MedianOf(phases, [](const PhaseSpeed& phase) { return phase.tokens_per_s(); });
}

double Seconds(const Phases& phases) {
  return MedianOf(phases, [](const PhaseSpeed& phase) { return phase.seconds; });
}

enum class Scope { kAllAxes, kTp };

// Sums over the operations of all ranks.
OpBill SumOf(const RankBill& bill, Scope scope) {
  OpBill sum;
  for (uint32_t a = 0; a < kAxes; ++a) {
    const auto axis = static_cast<Axis>(a);
    if (scope == Scope::kTp && axis != Axis::kTp) continue;
    for (uint32_t o = 0; o < kCommOps; ++o) sum.Add(bill.of(axis, static_cast<CommOp>(o)));
  }
  return sum;
}

double MeanSeconds(uint64_t ns, const PhaseSpeed& phase) {
  return phase.ranks == 0 ? 0 : static_cast<double>(ns) * 1e-9 / phase.ranks;
}

double TransferSeconds(const Phases& phases, Scope scope) {
  return MedianOf(phases, [scope](const PhaseSpeed& phase) {
    return MeanSeconds(SumOf(phase.moved, scope).transfer_ns, phase);
  });
}

// Per generated token or, in prefill, per token of the prompts.
double BytesPerToken(const Phases& phases) {
  return MedianOf(phases, [](const PhaseSpeed& phase) {
    return static_cast<double>(SumOf(phase.moved, Scope::kAllAxes).bytes) /
           static_cast<double>(phase.tokens);
  });
}

double PairsOf(const Phases& a, const Phases& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    ratios.push_back(a[i].tokens_per_s() / b[i].tokens_per_s());
  }
  return Median(std::move(ratios));
}

bool DifferInTpOnly(const LayoutFigures& layout, const LayoutFigures& than) {
  const Split& a = layout.split;
  const Split& b = than.split;
  return a.dp == b.dp && a.pp == b.pp && a.teams == b.teams && a.ep == b.ep && a.cp == b.cp &&
         a.dcp == b.dcp && layout.threads == than.threads;
}

std::optional<double> PrefillCeiling(const LayoutFigures& layout, const Phases& prefill,
                                     const LayoutFigures& than, const Phases& than_prefill) {
  if (!DifferInTpOnly(layout, than)) return {};
  if (layout.cores < layout.all_threads() || than.cores < than.all_threads()) return {};
  const double whole_s = Seconds(than_prefill);
  const double computing_s = whole_s - TransferSeconds(than_prefill, Scope::kTp);
  const double least_s =
      computing_s * than.tp_ceiling / layout.tp_ceiling + TransferSeconds(prefill, Scope::kTp);
  return whole_s / least_s;
}

Json PhaseJson(const Phases& phases) {
  const double wait_s = MedianOf(phases, [](const PhaseSpeed& phase) {
    return MeanSeconds(SumOf(phase.moved, Scope::kAllAxes).wait_ns, phase);
  });
  return {{"s", Seconds(phases)},
          {"bytes_per_token", BytesPerToken(phases)},
          {"transfer_s", TransferSeconds(phases, Scope::kAllAxes)},
          {"wait_s", wait_s}};
}

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json BoundsJson(const SpeedBounds& bounds) {
  return {{"decode_bytes_per_token", bounds.decode_bytes_per_token},
          {"decode_of_bandwidth", OrNull(bounds.decode_of_bandwidth)},
          {"prefill_ops_per_token", bounds.prefill_ops_per_token},
          {"prefill_of_peak", OrNull(bounds.prefill_of_peak)},
          {"decode_ops_per_token", bounds.decode_ops_per_token},
          {"decode_of_peak", OrNull(bounds.decode_of_peak)}};
}

Json RunJson(const BatchFigures& run, const SpeedBounds& bounds) {
  Json repeats = Json::array();
  for (size_t i = 0; i < run.prefill.size(); ++i) {
    repeats.push_back({{"prefill_tokens_per_s", run.prefill[i].tokens_per_s()},
                       {"decode_tokens_per_s", run.decode[i].tokens_per_s()}});
  }
  return {{"batch", run.batch},
          {"prefill_tokens_per_s", Rate(run.prefill)},
          {"decode_tokens_per_s", Rate(run.decode)},
          {"prefill", PhaseJson(run.prefill)},
          {"decode", PhaseJson(run.decode)},
          {"bounds", BoundsJson(bounds)},
          {"repeats", std::move(repeats)}};
}

void AddLayout(const SpeedReport& report, const LayoutFigures& layout, Json* json) {
  Json runs = Json::array();
  for (const BatchFigures& run : layout.runs) {
    runs.push_back(RunJson(run, BoundsOf(report, layout, run)));
  }
  (*json)["layout"] = layout.split.ToString();
  (*json)["threads"] = layout.threads;
  (*json)["tp_ceiling"] = layout.tp_ceiling;
  (*json)["runs"] = std::move(runs);
  (*json)["bill"] = Json::parse(BillJson(layout.bill, layout.generated_tokens));
}

Json PeakJson(const SpeedReport& report) {
  Json cores = Json::array();
  for (const PeakFigures& peak : report.peaks) {
    cores.push_back({{"cores", peak.cores},
                     {"ops_per_s", peak.median_ops_per_s},
                     {"best_ops_per_s", peak.best_ops_per_s}});
  }
  return {{"kind", PeakKindName(report.work.peak)}, {"cores", std::move(cores)}};
}

Json ProbeJson(const SpeedReport& report) {
  Json cores = Json::array();
  for (const ProbeFigures& probe : report.probes) {
    cores.push_back({{"cores", probe.cores},
                     {"bytes_per_s", probe.median_bytes_per_s},
                     {"best_bytes_per_s", probe.best_bytes_per_s},
                     {"gain", report.MemoryGain(probe.cores, 1)}});
  }
  return {{"bytes", report.probe_bytes}, {"cores", std::move(cores)}};
}

std::string Share(double part, const std::optional<double>& whole) {
  return whole ? fmt::format("{:.1f} % of {:.3f}", part / *whole * 100, *whole) : "-";
}

std::string SpeedTable(const LayoutFigures& layout) {
  std::vector<std::vector<std::string>> rows = {
      {"batch", "prefill tok/s", "decode tok/s", "bytes a token", "transfer s", "wait s"}};
  for (const BatchFigures& run : layout.runs) {
    const Json decode = PhaseJson(run.decode);
    rows.push_back({fmt::format("{}", run.batch), fmt::format("{:.1f}", Rate(run.prefill)),
                    fmt::format("{:.1f}", Rate(run.decode)),
                    fmt::format("{:.0f}", decode["bytes_per_token"].get<double>()),
                    fmt::format("{:.3f}", decode["transfer_s"].get<double>()),
                    fmt::format("{:.3f}", decode["wait_s"].get<double>())});
  }
  return layout.Name() + "; bytes, transfer and waiting are decode's\n" + TextTable(rows);
}

std::string Percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", *share * 100) : "-";
}

std::string BoundsTable(const SpeedReport& report, const LayoutFigures& layout) {
  std::vector<std::vector<std::string>> rows = {{"batch", "prefill Mop a token", "of the peak",
                                                 "decode MB a token", "of the bandwidth",
                                                 "Mop a token", "of the peak"}};
  for (const BatchFigures& run : layout.runs) {
    const SpeedBounds bounds = BoundsOf(report, layout, run);
    rows.push_back({fmt::format("{}", run.batch),
                    fmt::format("{:.1f}", bounds.prefill_ops_per_token * 1e-6),
                    Percent(bounds.prefill_of_peak),
                    fmt::format("{:.2f}", bounds.decode_bytes_per_token * 1e-6),
                    Percent(bounds.decode_of_bandwidth),
                    fmt::format("{:.1f}", bounds.decode_ops_per_token * 1e-6),
                    Percent(bounds.decode_of_peak)});
  }
  return fmt::format("beside what {} core{} can do\n", layout.cores, layout.cores == 1 ? "" : "s") +
         TextTable(rows);
}

std::string RatioTable(const SpeedReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"batch", "prefill", "of pairs", "of the ceiling", "decode", "of pairs", "of the memory's"}};
  for (const SpeedRatio& ratio : RatiosOf(report)) {
    rows.push_back({fmt::format("{}", ratio.batch), fmt::format("{:.3f}x", ratio.prefill),
                    fmt::format("{:.3f}x", ratio.prefill_pairs),
                    Share(ratio.prefill_pairs, ratio.prefill_ceiling),
                    fmt::format("{:.3f}x", ratio.decode),
                    fmt::format("{:.3f}x", ratio.decode_pairs),
                    Share(ratio.decode_pairs, ratio.decode_ceiling)});
  }
  return "ratio of the first to the second, of medians and the median of pairs\n" + TextTable(rows);
}

std::string ProbeText(const SpeedReport& report) {
  std::string text;
  for (const ProbeFigures& probe : report.probes) {
    text += fmt::format(
        "{} core{} read{} {:.2f} GB/s of {:.0f} MB (best {:.2f})", probe.cores,
        probe.cores == 1 ? "" : "s", probe.cores == 1 ? "s" : "", probe.median_bytes_per_s * 1e-9,
        static_cast<double>(report.probe_bytes) * 1e-6, probe.best_bytes_per_s * 1e-9);
    if (probe.cores > 1) {
      text += fmt::format(": a layout of {} ranks of a core can gain at most {:.3f}x by memory",
                          probe.cores, report.MemoryGain(probe.cores, 1));
    }
    text += "\n";
  }
  return text;
}

std::string PeakText(const SpeedReport& report) {
  std::string text;
  for (const PeakFigures& peak : report.peaks) {
    text += fmt::format("{} core{} compute{} {:.1f} Gop/s of {} (best {:.1f})\n", peak.cores,
                        peak.cores == 1 ? "" : "s", peak.cores == 1 ? "s" : "",
                        peak.median_ops_per_s * 1e-9, PeakKindName(report.work.peak),
                        peak.best_ops_per_s * 1e-9);
  }
  return text;
}

std::string CeilingText(const SpeedReport& report) {
  const LayoutFigures& than = *report.against;
  std::string text;
  if (DifferInTpOnly(report.measured, than)) {
    text = fmt::format("prefill, by the largest share alone: at most {:.3f}x\n",
                       report.measured.tp_ceiling / than.tp_ceiling);
  }
  return text + "\n";
}

}  // namespace

std::string LayoutFigures::Name() const {
  return fmt::format("{}, {} thread{} a rank", split.ToString(), threads, threads == 1 ? "" : "s");
}

double SpeedReport::MemoryGain(uint32_t cores, uint32_t than_cores) const {
  double of = 0;
  double than = 0;
  for (const ProbeFigures& probe : probes) {
    if (probe.cores == cores) of = probe.median_bytes_per_s;
    if (probe.cores == than_cores) than = probe.median_bytes_per_s;
  }
  return than > 0 ? of / than : 0;
}

SpeedBounds BoundsOf(const SpeedReport& report, const LayoutFigures& layout,
                     const BatchFigures& run) {
  const RequestShape shape{.batch = run.batch,
                           .prompt_tokens = report.prompt_tokens,
                           .output_tokens = report.output_tokens,
                           .replicas = layout.split.dp * layout.split.teams};
  SpeedBounds bounds{.decode_bytes_per_token = report.work.DecodeBytes(shape),
                     .prefill_ops_per_token = report.work.PrefillOperations(shape),
                     .decode_ops_per_token = report.work.DecodeOperations(shape)};
  for (const ProbeFigures& probe : report.probes) {
    if (probe.cores != layout.cores || probe.median_bytes_per_s <= 0) continue;
    bounds.decode_of_bandwidth =
        bounds.decode_bytes_per_token * Rate(run.decode) / probe.median_bytes_per_s;
  }
  for (const PeakFigures& peak : report.peaks) {
    if (peak.cores != layout.cores || peak.median_ops_per_s <= 0) continue;
    bounds.prefill_of_peak =
        bounds.prefill_ops_per_token * Rate(run.prefill) / peak.median_ops_per_s;
    if (run.batch == 1) continue;
    bounds.decode_of_peak = bounds.decode_ops_per_token * Rate(run.decode) / peak.median_ops_per_s;
  }
  return bounds;
}

std::vector<SpeedRatio> RatiosOf(const SpeedReport& report) {
  std::vector<SpeedRatio> ratios;
  if (!report.against) return ratios;
  const LayoutFigures& layout = report.measured;
  const LayoutFigures& than = *report.against;
  for (size_t i = 0; i < layout.runs.size() && i < than.runs.size(); ++i) {
    const BatchFigures& a = layout.runs[i];
    const BatchFigures& b = than.runs[i];
    SpeedRatio ratio;
    ratio.batch = a.batch;
    ratio.prefill = Rate(a.prefill) / Rate(b.prefill);
    ratio.prefill_pairs = PairsOf(a.prefill, b.prefill);
    ratio.decode = Rate(a.decode) / Rate(b.decode);
    ratio.decode_pairs = PairsOf(a.decode, b.decode);
    ratio.prefill_ceiling = PrefillCeiling(layout, a.prefill, than, b.prefill);
    const double memory = report.MemoryGain(layout.cores, than.cores);
    if (memory > 0 && a.batch == 1) ratio.decode_ceiling = memory;
    ratios.push_back(ratio);
  }
  return ratios;
}

std::string SpeedJson(const SpeedReport& report) {
  Json json = {{"model", report.model},
               {"isa", report.isa},
               {"prompt_tokens", report.prompt_tokens},
               {"output_tokens", report.output_tokens},
               {"same", report.difference.empty()}};
  if (!report.difference.empty()) json["difference"] = report.difference;
  AddLayout(report, report.measured, &json);
  json["against"] = nullptr;
  if (report.against) AddLayout(report, *report.against, &json["against"]);
  json["ratio"] = Json::array();
  for (const SpeedRatio& ratio : RatiosOf(report)) {
    json["ratio"].push_back({{"batch", ratio.batch},
                             {"prefill", ratio.prefill},
                             {"prefill_pairs", ratio.prefill_pairs},
                             {"prefill_ceiling", OrNull(ratio.prefill_ceiling)},
                             {"decode", ratio.decode},
                             {"decode_pairs", ratio.decode_pairs},
                             {"decode_ceiling", OrNull(ratio.decode_ceiling)}});
  }
  json["probe"] = ProbeJson(report);
  json["peak"] = PeakJson(report);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string SpeedText(const SpeedReport& report) {
  const size_t repeats = report.measured.runs.empty() ? 0 : report.measured.runs[0].prefill.size();
  std::string text =
      fmt::format("{}, {}; {} prompt and {} output tokens, medians of {}\n\n", report.model,
                  report.isa, report.prompt_tokens, report.output_tokens, repeats);
  text += SpeedTable(report.measured) + BoundsTable(report, report.measured) + "\n";
  if (report.against) {
    text += SpeedTable(*report.against) + BoundsTable(report, *report.against) + "\n";
    text += RatioTable(report) + CeilingText(report);
  }
  text += ProbeText(report) + PeakText(report);
  text += report.difference.empty() ? "the same tokens in every run\n"
                                    : "NOT the same tokens: " + report.difference + "\n";
  if (report.measured.split.world_size() > 1) {
    text += "\nthe bill of " + report.measured.Name() + ", warm-up included, all ranks together\n" +
            BillText(report.measured.bill, report.measured.generated_tokens);
  }
  return text;
}

}  // namespace cleave

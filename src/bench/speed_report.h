#pragma once
// What a benchmark of layouts found, as text and as JSON: speeds, the ratio of two layouts, beside
// them what the cut and the memory allow at most, and the bill. Values in, strings out; any thread.
//
// Ceilings. Prefill computes: a cut in tp alone can be faster by no more than its ranks' largest
// share allows (Layout::TpCeiling), and its reductions come on top: against a time T of the other
// layout, without that one's own reductions R', the least is T_least = (T - R') · c' / c + R, with
// c the ceilings and R the time that reductions took in this run, the mean of the ranks without
// their waiting for each other. The ceiling is T / T_least.
// Decoding a single request reads all weights for a token, and does little else: the ceiling is
// what the probe reads on one layout's cores over what it reads on the other's.
//
// Bounds. Each figure stands beside what the layout's cores can do at most: decoding beside the
// bytes that its steps read (model_work.h) over those that the bandwidth probe reads, prefill and
// the decoding of a batch beside their operations over the compute probe's.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/engine_speed.h"
#include "bench/model_work.h"
#include "comm/bill.h"
#include "split/split.h"

namespace cleave {

struct BatchFigures {
  uint32_t batch = 0;
  // One a repeat.
  std::vector<PhaseSpeed> prefill = {};
  std::vector<PhaseSpeed> decode = {};
};

struct LayoutFigures {
  Split split;
  uint32_t threads = 1;   // of a rank
  uint32_t cores = 1;     // that its threads have together
  double tp_ceiling = 1;  // Layout::TpCeiling
  std::vector<BatchFigures> runs;
  Bill bill;  // since it was loaded
  uint64_t generated_tokens = 0;

  // "dp=1 pp=1 tp=2 ep=1 cp=1, 1 thread a rank"
  [[nodiscard]] std::string Name() const;
  [[nodiscard]] uint32_t all_threads() const { return split.world_size() * threads; }
};

struct ProbeFigures {
  uint32_t cores = 0;
  double median_bytes_per_s = 0;
  double best_bytes_per_s = 0;
};

struct PeakFigures {
  uint32_t cores = 0;
  double median_ops_per_s = 0;
  double best_ops_per_s = 0;
};

struct SpeedReport {
  std::string model;
  std::string isa;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  LayoutFigures measured;
  std::optional<LayoutFigures> against;  // the same batches and repeats, each right after
  uint64_t probe_bytes = 0;
  std::vector<ProbeFigures> probes;  // by cores: one, and those of each layout
  ModelWork work;
  std::vector<PeakFigures> peaks;  // of work.peak, by the same cores; none of the scalar kernels
  // Empty: every run of a batch gave the same tokens, in both layouts; else where they differ.
  std::string difference;

  // How much faster `cores` read than `than_cores`; 0 when one was not probed.
  [[nodiscard]] double MemoryGain(uint32_t cores, uint32_t than_cores) const;
};

// How much faster `measured` is than `against`.
struct SpeedRatio {
  uint32_t batch = 0;
  // Of the medians, and the median over the pairs of runs.
  double prefill = 0;
  double prefill_pairs = 0;
  double decode = 0;
  double decode_pairs = 0;
  // Nothing where the layouts differ in more than tp, or threads share cores.
  std::optional<double> prefill_ceiling;
  // Nothing for a batch of more than one.
  std::optional<double> decode_ceiling;
};
// Empty without a second layout.
std::vector<SpeedRatio> RatiosOf(const SpeedReport& report);

// Of a layout's run: medians, and their share of what its cores can do; nothing where there is no
// probe of as many cores, and no decode_of_peak of a single request.
struct SpeedBounds {
  double decode_bytes_per_token = 0;
  std::optional<double> decode_of_bandwidth = {};
  double prefill_ops_per_token = 0;
  std::optional<double> prefill_of_peak = {};
  double decode_ops_per_token = 0;
  std::optional<double> decode_of_peak = {};
};
SpeedBounds BoundsOf(const SpeedReport& report, const LayoutFigures& layout,
                     const BatchFigures& run);

// {"model", "isa", "prompt_tokens", "output_tokens", "same": true,
//  "layout", "threads", "tp_ceiling", "runs": [{"batch", "prefill_tokens_per_s",
//    "decode_tokens_per_s", "prefill": {"s", "bytes_per_token", "transfer_s", "wait_s"}, "decode":
//    likewise, "bounds": {"decode_bytes_per_token", "decode_of_bandwidth",
//    "prefill_ops_per_token", "prefill_of_peak", "decode_ops_per_token", "decode_of_peak"},
//    "repeats": [{"prefill_tokens_per_s", "decode_tokens_per_s"}]}], "bill": GET /v1/bill,
//  "against": null or {"layout", "threads", "tp_ceiling", "runs", "bill"},
//  "ratio": [{"batch", "prefill", "prefill_pairs", "prefill_ceiling", "decode", "decode_pairs",
//             "decode_ceiling"}],
//  "probe": {"bytes", "cores": [{"cores", "bytes_per_s", "best_bytes_per_s", "gain"}]},
//  "peak": {"kind", "cores": [{"cores", "ops_per_s", "best_ops_per_s"}]}}
// Figures are medians; times of transfer and waiting are the mean of the ranks; a ceiling or a
// share that there is none of is null, "difference" is there where "same" is false.
std::string SpeedJson(const SpeedReport& report);
std::string SpeedText(const SpeedReport& report);

}  // namespace cleave

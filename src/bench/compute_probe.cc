#include "bench/compute_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "bench/bandwidth_probe.h"
#include "kernels/thread_pool.h"

namespace cleave {
namespace {

constexpr double kPassSeconds = 0.02;
constexpr uint64_t kFirstRounds = 256;

// How many rounds a pass takes on this core now: the fastest of a few short tries, as whatever
// comes between makes one too slow.
uint64_t RoundsOfPass(Isa isa, PeakKind kind) {
  double fastest_s = kPassSeconds;
  for (int i = 0; i < 8; ++i) {
    const TimePoint start = SteadyClock::now();
    RunPeak(isa, kind, kFirstRounds);
    fastest_s = std::min(fastest_s, SecondsBetween(start, SteadyClock::now()));
  }
  return static_cast<uint64_t>(kFirstRounds * kPassSeconds / std::max(fastest_s, 1e-7));
}

}  // namespace

Result<std::unique_ptr<ComputeProbe>> ComputeProbe::Create(Isa isa, PeakKind kind,
                                                           std::vector<int> cpus) {
  if (cpus.empty()) return InvalidArgument("a compute probe needs at least one core");
  if (!HasPeak(isa) || !CpuSupports(isa)) {
    return InvalidArgument(
        fmt::format("no peak can be measured for {}; use avx2 or avx512 where the processor has it",
                    IsaName(isa)));
  }
  return std::unique_ptr<ComputeProbe>(new ComputeProbe(isa, kind, std::move(cpus)));
}

void ComputeProbe::Measure(uint32_t passes) {
  // A pool pins its caller for good: it gets a thread of its own for that.
  std::thread([&] {
    ThreadPool pool(cores(), cpus_);
    std::vector<PeakRun> runs(pool.size());
    if (rounds_ == 0) {
      pool.Run([&](uint32_t thread) {
        const uint64_t rounds = RoundsOfPass(isa_, kind_);
        if (thread == 0) rounds_ = rounds;
      });
    }
    for (uint32_t pass = 0; pass < passes; ++pass) {
      const TimePoint start = SteadyClock::now();
      pool.Run([&](uint32_t thread) { runs[thread] = RunPeak(isa_, kind_, rounds_); });
      const double seconds = SecondsBetween(start, SteadyClock::now());
      uint64_t operations = 0;
      for (const PeakRun& run : runs) operations += run.operations;
      figures_.push_back(static_cast<double>(operations) / seconds);
    }
  }).join();
}

double ComputeProbe::median_ops_per_s() const { return Median(figures_); }

double ComputeProbe::best_ops_per_s() const {
  return figures_.empty() ? 0 : *std::max_element(figures_.begin(), figures_.end());
}

}  // namespace cleave

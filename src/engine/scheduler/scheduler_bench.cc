// Cost of one scheduler step (Schedule + Commit) with N sequences decoding:
//   cmake --preset release -DCLEAVE_BUILD_BENCH=ON && ninja -C build/release scheduler_bench
#include <benchmark/benchmark.h>

#include <vector>

#include "engine/scheduler/scheduler.h"

namespace cleave {
namespace {

void DecodeStep(benchmark::State& state) {
  const auto sequences = static_cast<uint32_t>(state.range(0));
  SchedulerConfig config;
  config.max_num_seqs = sequences;
  config.num_blocks = 1U << 17U;
  Scheduler scheduler(config);
  Plan plan;
  plan.Reserve(sequences);
  const std::vector<EntryResult> results(sequences, EntryResult::kGoesOn);
  const auto refill = [&] {
    for (uint32_t i = 0; i < sequences; ++i) {
      SequenceFacts facts;
      facts.tag = i;
      facts.tokens = 100;
      facts.limit = 8000;
      scheduler.Add(facts);
    }
  };
  const auto step = [&] {
    scheduler.Schedule(&plan);
    scheduler.Commit(plan, std::span(results).first(plan.entries.size()));
  };
  uint32_t age = 0;
  for (auto _ : state) {
    if (age-- == 0) {
      state.PauseTiming();
      for (const PlanEntry& e : plan.entries) scheduler.Abort(e.sequence);
      refill();
      do step();
      while (plan.tokens != sequences || plan.entries.size() != sequences);
      age = 7000;
      state.ResumeTiming();
    }
    step();
  }
}
BENCHMARK(DecodeStep)->Arg(1)->Arg(64)->Arg(256);

}  // namespace
}  // namespace cleave

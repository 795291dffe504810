// What lies around the products: packing, the check of a row's bound, threads that meet. The
// products themselves: cleave bench kernels.
//   build with -DCLEAVE_BUILD_BENCH=ON, then ./matmul_bench

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/thread_pool.h"
#include "kernels/weight_fixture.h"

namespace cleave {
namespace {

constexpr uint32_t kGroup = 64;

void CheckFit(benchmark::State& state, ActKind kind) {
  ScopedFpMode mode;
  const uint32_t k = 1536;
  const UnitRange all{0, k / kGroup};
  const KPlan plan = RowPlan(k, kGroup, kGroup, {&all, 1});
  const std::vector<float> x = MakeActivations(1, k, 3);
  ActBuffer acts(1, k / 32);
  PrepareActs(*ChooseIsa(), kind, plan, x.data(), k, 0, 1, &acts);
  for (auto _ : state) benchmark::DoNotOptimize(RowFitsInt32(kind, acts, plan, 0, 1.0F, 18));
}
BENCHMARK_CAPTURE(CheckFit, int8, ActKind::kInt8);
BENCHMARK_CAPTURE(CheckFit, bf16, ActKind::kBF16);
BENCHMARK_CAPTURE(CheckFit, f32, ActKind::kF32);

// One function to all threads and back, and one barrier.
void PoolRun(benchmark::State& state) {
  ThreadPool pool(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) pool.Run([](uint32_t) {});
}
BENCHMARK(PoolRun)->Arg(1)->Arg(2)->UseRealTime();

void PoolBarrier(benchmark::State& state) {
  ThreadPool pool(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) {
    pool.Run([&](uint32_t) {
      for (int i = 0; i < 100; ++i) pool.Barrier();
    });
  }
  state.SetItemsProcessed(state.iterations() * 100);
}
BENCHMARK(PoolBarrier)->Arg(2)->UseRealTime();

void Repack(benchmark::State& state, DType dtype) {
  const Weights w = MakeWeights(dtype, 512, 1536, 1);
  PackedMatrix m = Pack(w.view, ColumnPlan(1536));
  for (auto _ : state)
    m.PackGroups(
        w.view, [](uint64_t r) { return r; }, 0, m.groups());
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(w.bytes.size()) * 1e-9,
      benchmark::Counter::kIsRate);
}

void RegisterRepacks() {
  for (const DType dtype : kAllDTypes) {
    const std::string name(NameOf(dtype));
    benchmark::RegisterBenchmark(("Repack/" + name).c_str(), Repack, dtype)
        ->Unit(benchmark::kMicrosecond);
  }
}

const bool kRegistered = (RegisterRepacks(), true);

}  // namespace
}  // namespace cleave

// Products of one thread: GB/s of weights read and Gop/s (a multiply and an add count two). Compare
// GB/s at one row with Read over as many bytes. On a shared machine: CPU time, and the best of
// several repetitions.
//   build with -DCLEAVE_BUILD_BENCH=ON, then ./matmul_bench --benchmark_filter=Q4_1

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>

#include "kernels/matmul.h"
#include "kernels/thread_pool.h"
#include "kernels/weight_fixture.h"

namespace cleave {
namespace {

constexpr uint32_t kGroup = 64;

enum class Sum { kColumn, kRow };

// Enough copies of the matrix that no cache holds them, walked in turn, when `cold`.
struct Workload {
  std::vector<PackedMatrix> copies;
  std::unique_ptr<ActBuffer> acts;
  std::vector<float> y;
  std::vector<int64_t> totals;
  std::vector<int32_t> shift;
  std::vector<uint8_t> wide;
};

Workload MakeWorkload(DType dtype, uint32_t outputs, uint32_t k, uint32_t rows, Sum sum,
                      size_t total_bytes, Isa isa) {
  Workload load;
  const Weights w = MakeWeights(dtype, outputs, k, 1);
  const UnitRange all{0, (k + kGroup - 1) / kGroup};
  do {
    const KPlan plan = sum == Sum::kColumn ? ColumnPlan(k) : RowPlan(k, kGroup, kGroup, {&all, 1});
    load.copies.push_back(Pack(w.view, plan));
  } while (load.copies.size() * load.copies[0].bytes() < total_bytes);
  const KPlan& plan = load.copies[0].plan();
  load.acts = std::make_unique<ActBuffer>(rows, static_cast<uint32_t>(plan.blocks.size()));
  const std::vector<float> x = MakeActivations(rows, k, 2);
  PrepareActs(isa, ActKindOf(dtype), plan, x.data(), k, 0, rows, load.acts.get());
  load.y.resize(size_t{rows} * outputs);
  load.totals.resize(load.y.size());
  load.shift.assign(rows, 18);
  load.wide.assign(rows, 0);
  return load;
}

void RunOnce(Isa isa, Sum sum, uint32_t rows, const PackedMatrix& m, Workload* load) {
  if (sum == Sum::kColumn) {
    MatmulColumn(isa, m, *load->acts, rows, 0, m.groups(), load->y.data(), m.rows());
  } else {
    MatmulRow(isa, m, *load->acts, rows, load->shift.data(), load->wide.data(), 0, m.groups(),
              load->totals.data(), m.rows());
  }
}

void Product(benchmark::State& state, DType dtype, uint32_t outputs, uint32_t k, uint32_t rows,
             Sum sum, size_t total_bytes, Isa isa) {
  if (!CpuSupports(isa)) return state.SkipWithError("not on this processor");
  ScopedFpMode mode;
  Workload load = MakeWorkload(dtype, outputs, k, rows, sum, total_bytes, isa);
  size_t turn = 0;
  for (auto _ : state) {
    RunOnce(isa, sum, rows, load.copies[turn], &load);
    turn = turn + 1 == load.copies.size() ? 0 : turn + 1;
    benchmark::ClobberMemory();
  }
  const double calls = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(
      calls * static_cast<double>(load.copies[0].bytes()) * 1e-9, benchmark::Counter::kIsRate);
  state.counters["Gop/s"] =
      benchmark::Counter(calls * 2e-9 * rows * outputs * k, benchmark::Counter::kIsRate);
}

// The bound of one row: reading as many bytes by plain loads.
void Read(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<uint64_t> data(bytes / 8, 1);
  for (auto _ : state) {
    uint64_t sums[8] = {};
    for (size_t i = 0; i + 8 <= data.size(); i += 8) {
      for (size_t j = 0; j < 8; ++j) sums[j] += data[i + j];
    }
    benchmark::DoNotOptimize(sums);
  }
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(bytes) * 1e-9,
      benchmark::Counter::kIsRate);
}
BENCHMARK(Read)->Arg(1 << 19)->Arg(1 << 26)->Arg(1 << 28)->Unit(benchmark::kMicrosecond);

void Prepare(benchmark::State& state, ActKind kind) {
  ScopedFpMode mode;
  const uint32_t k = 1536;
  const KPlan plan = ColumnPlan(k);
  const std::vector<float> x = MakeActivations(32, k, 3);
  ActBuffer acts(32, k / 32);
  const Isa isa = *ChooseIsa();
  for (auto _ : state) {
    PrepareActs(isa, kind, plan, x.data(), k, 0, 32, &acts);
    benchmark::ClobberMemory();
  }
}
BENCHMARK_CAPTURE(Prepare, int8, ActKind::kInt8)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Prepare, bf16, ActKind::kBF16)->Unit(benchmark::kMicrosecond);

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

void RegisterProducts() {
  constexpr size_t kCold = size_t{96} << 20;
  for (DType dtype : kAllDTypes) {
    const std::string name(NameOf(dtype));
    benchmark::RegisterBenchmark(("Repack/" + name).c_str(), Repack, dtype)
        ->Unit(benchmark::kMicrosecond);
    const uint32_t k = InfoOf(dtype).block_elements == 256 ? 2048 : 1536;
    for (Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kScalar}) {
      for (Sum sum : {Sum::kColumn, Sum::kRow}) {
        for (uint32_t rows : {1U, 2U, 4U, 8U, 12U, 16U, 32U, 512U}) {
          if (isa == Isa::kScalar && rows > 8) continue;
          for (size_t bytes : {size_t{0}, kCold}) {
            const std::string full = "Product/" + name + "/" + std::string(IsaName(isa)) +
                                     (sum == Sum::kColumn ? "/column" : "/row") + "/576x" +
                                     std::to_string(k) + "/rows:" + std::to_string(rows) +
                                     (bytes == 0 ? "/cached" : "/cold");
            benchmark::RegisterBenchmark(full.c_str(), Product, dtype, 576, k, rows, sum, bytes,
                                         isa)
                ->Unit(benchmark::kMicrosecond);
          }
        }
      }
    }
  }
}

const bool kRegistered = (RegisterProducts(), true);

}  // namespace
}  // namespace cleave

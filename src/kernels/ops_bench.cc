// Row operations and logit reductions at SmolLM2-135M's sizes, one thread.

#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/logits.h"
#include "kernels/math.h"
#include "kernels/vector_ops.h"

namespace cleave {
namespace {

constexpr Isa kIsas[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};

std::vector<float> Ramp(uint32_t n) {
  std::vector<float> x(n);
  for (uint32_t i = 0; i < n; ++i) x[i] = static_cast<float>(i * 7919 % 2003) / 200.0F - 5.0F;
  return x;
}

// fn(isa, x, out) with n elements; the argument is the instruction set.
template <typename Fn>
void Measure(benchmark::State* state, uint32_t n, Fn fn) {
  const Isa isa = kIsas[state->range(0)];
  state->SetLabel(IsaName(isa).data());
  if (!CpuSupports(isa)) {
    state->SkipWithError("not on this processor");
    return;
  }
  const ScopedFpMode mode;
  const std::vector<float> x = Ramp(n);
  std::vector<float> out(n);
  for (auto _ : *state) {
    fn(isa, x.data(), out.data());
    benchmark::ClobberMemory();
  }
  state->SetItemsProcessed(state->iterations() * n);
}

void RmsNorm576(benchmark::State& state) {
  Measure(&state, 576, [](Isa isa, const float* x, float* out) {
    benchmark::DoNotOptimize(RmsNorm(isa, x, x, 576, 1e-5F, out));
  });
}
void Silu1536(benchmark::State& state) {
  Measure(&state, 1536, [](Isa isa, const float* x, float* out) {
    GatedActivation(isa, Activation::kSilu, x, x, 1536, out);
  });
}
void GeluTanh2048(benchmark::State& state) {
  Measure(&state, 2048, [](Isa isa, const float* x, float* out) {
    GatedActivation(isa, Activation::kGeluTanh, x, x, 2048, out);
  });
}
void FindMax49152(benchmark::State& state) {
  Measure(&state, 49152, [](Isa isa, const float* x, float* /*out*/) {
    benchmark::DoNotOptimize(FindMax(isa, x, 49152));
  });
}
void MassSum49152(benchmark::State& state) {
  Measure(&state, 49152, [](Isa isa, const float* x, float* /*out*/) {
    benchmark::DoNotOptimize(ComputeMasses(isa, x, 49152, 5.02F, kLog2E, nullptr));
  });
}
BENCHMARK(RmsNorm576)->DenseRange(0, 2);
BENCHMARK(Silu1536)->DenseRange(0, 2);
BENCHMARK(GeluTanh2048)->DenseRange(0, 2);
BENCHMARK(FindMax49152)->DenseRange(0, 2);
BENCHMARK(MassSum49152)->DenseRange(0, 2);

void RopeRow64(benchmark::State& state) {
  const RopeFrequencies frequencies(10000.0, {}, 64);
  std::vector<float> row(64);
  for (auto _ : state) {
    frequencies.MakeRow(131071, row.data());
    benchmark::DoNotOptimize(row.data());
  }
}
BENCHMARK(RopeRow64);

}  // namespace
}  // namespace cleave

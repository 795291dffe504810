// Attention of one layer of SmolLM2-135M's shape (9 query heads over 3 KV heads of 64, f16 cache)
// and of a wider one, one thread. `bound` is the share of the fp32 multiply-add peak: 64 a cycle on
// two 512-bit units at the clock that the processor holds.

#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/attention_test_support.h"

namespace cleave {
namespace {

using attention_test::PagedHead;

struct Layer {
  Layer(DType dtype, uint32_t d, uint32_t kv_heads, uint32_t q_per_kv, uint32_t tokens,
        uint32_t context)
      : heads(q_per_kv), count(tokens), first(context - tokens), dim(d), scratch(d) {
    for (uint32_t g = 0; g < kv_heads; ++g) kv.emplace_back(KvShape{dtype, d, 16}, context, g + 1);
    const size_t size = static_cast<size_t>(tokens) * kv_heads * q_per_kv * d;
    for (size_t i = 0; i < size; ++i)
      q.push_back(static_cast<float>(i * 7919 % 2003) / 1001.0F - 1);
    out.resize(size);
  }

  void Run(Isa isa, uint32_t window) {
    const size_t stride = kv.size() * heads * dim;
    for (size_t g = 0; g < kv.size(); ++g) {
      AttentionJob job;
      kv[g].Describe(&job);
      job.q = q.data() + g * heads * dim;
      job.q_stride = stride;
      job.out = out.data() + g * heads * dim;
      job.out_stride = stride;
      job.tokens = count;
      job.first_position = first;
      job.heads = heads;
      job.window = window;
      job.scale = 0.125F;
      Attention(isa, kv[g].shape(), job, &scratch);
    }
    benchmark::DoNotOptimize(out.data());
  }

  std::vector<PagedHead> kv;
  std::vector<float> q;
  std::vector<float> out;
  uint32_t heads;
  uint32_t count;
  uint32_t first;
  uint32_t dim;
  AttentionScratch scratch;
};

void Report(benchmark::State* state, double multiply_adds) {
  state->counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * multiply_adds, benchmark::Counter::kIsIterationInvariantRate);
}

void Measure(benchmark::State& state, Isa isa, DType dtype, uint32_t d, uint32_t kv_heads,
             uint32_t q_per_kv) {
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const auto context = static_cast<uint32_t>(state.range(1));
  if (!CpuSupports(isa)) {
    state.SkipWithError("not on this processor");
    return;
  }
  const ScopedFpMode mode;
  Layer layer(dtype, d, kv_heads, q_per_kv, tokens, context);
  for (auto _ : state) layer.Run(isa, 0);
  const double seen = tokens * (context - (tokens - 1) / 2.0);
  Report(&state, 2.0 * seen * kv_heads * q_per_kv * d);
}

#define CLEAVE_SHAPES(name, isa)                                             \
  BENCHMARK_CAPTURE(Measure, name##_smol_f16, isa, DType::kF16, 64, 3, 3)    \
      ->Args({1, 128})                                                       \
      ->Args({1, 1024})                                                      \
      ->Args({1, 2048})                                                      \
      ->Args({64, 512})                                                      \
      ->Args({512, 512})                                                     \
      ->Unit(benchmark::kMicrosecond);                                       \
  BENCHMARK_CAPTURE(Measure, name##_wide_bf16, isa, DType::kBF16, 128, 8, 4) \
      ->Args({1, 1024})                                                      \
      ->Args({512, 512})                                                     \
      ->Unit(benchmark::kMicrosecond);                                       \
  BENCHMARK_CAPTURE(Measure, name##_single_f32, isa, DType::kF32, 80, 4, 1)  \
      ->Args({1, 1024})                                                      \
      ->Args({512, 512})                                                     \
      ->Unit(benchmark::kMicrosecond)

CLEAVE_SHAPES(avx512, Isa::kAvx512);
CLEAVE_SHAPES(avx2, Isa::kAvx2);
BENCHMARK_CAPTURE(Measure, scalar_smol_f16, Isa::kScalar, DType::kF16, 64, 3, 3)
    ->Args({1, 1024})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cleave

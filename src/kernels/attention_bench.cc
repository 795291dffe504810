// Attention of one layer of SmolLM2-135M's shape (9 query heads over 3 KV heads of 64, f16 and
// int8) and of a wider one, one thread. `bound` is the share of the fp32 multiply-add peak: 64 a
// cycle on two 512-bit units at the clock that the processor holds. Merge is what context
// parallelism adds for one row: `ranks` partials of one bin each off the wire, and the answer.

#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/attention_partial.h"
#include "kernels/attention_test_support.h"

namespace cleave {
namespace {

using attention_test::PagedHead;

struct Layer {
  Layer(KvType type, uint32_t d, uint32_t kv_heads, uint32_t q_per_kv, uint32_t tokens,
        uint32_t context)
      : heads(q_per_kv), count(tokens), first(context - tokens), dim(d), scratch(d) {
    for (uint32_t g = 0; g < kv_heads; ++g) kv.emplace_back(KvShape{type, d, 16}, context, g + 1);
    const size_t size = static_cast<size_t>(tokens) * kv_heads * q_per_kv * d;
    for (size_t i = 0; i < size; ++i)
      q.push_back(static_cast<float>(i * 7919 % 2003) / 1001.0F - 1);
    out.resize(size);
  }

  AttentionJob Job(size_t g, uint32_t window) {
    AttentionJob job;
    kv[g].Describe(&job);
    job.q_stride = kv.size() * heads * dim;
    job.q = q.data() + g * heads * dim;
    job.out_stride = job.q_stride;
    job.out = out.data() + g * heads * dim;
    job.tokens = count;
    job.first_position = first;
    job.heads = heads;
    job.window = window;
    job.scale = 0.125F;
    return job;
  }

  void Run(Isa isa, uint32_t window) {
    for (size_t g = 0; g < kv.size(); ++g) {
      Attention(isa, kv[g].shape(), Job(g, window), &scratch);
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

void Measure(benchmark::State& state, Isa isa, KvType type, uint32_t d, uint32_t kv_heads,
             uint32_t q_per_kv) {
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const auto context = static_cast<uint32_t>(state.range(1));
  if (!CpuSupports(isa)) {
    state.SkipWithError("not on this processor");
    return;
  }
  const ScopedFpMode mode;
  Layer layer(type, d, kv_heads, q_per_kv, tokens, context);
  for (auto _ : state) layer.Run(isa, 0);
  const double seen = tokens * (context - (tokens - 1) / 2.0);
  Report(&state, 2.0 * seen * kv_heads * q_per_kv * d);
}

// Every second run alone, as records: beside half of what Measure takes.
void MeasurePartial(benchmark::State& state, Isa isa) {
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const auto context = static_cast<uint32_t>(state.range(1));
  constexpr uint32_t kDim = 64;
  const ScopedFpMode mode;
  Layer layer(KvType::kF16, kDim, 3, 3, tokens, context);
  const size_t rows = size_t{tokens} * 3;
  std::vector<PartialCode> codes(rows);
  std::vector<int64_t> counts(rows * PartialCounts(kDim));
  std::vector<Int128> wide(rows * PartialCounts(kDim));
  for (auto _ : state) {
    for (size_t g = 0; g < 3; ++g) {
      AttentionPartial(isa, layer.kv[g].shape(), layer.Job(g, 0), {2, 1},
                       {codes.data(), counts.data(), wide.data(), 3}, &layer.scratch);
    }
    benchmark::DoNotOptimize(counts.data());
  }
}

void MeasureMerge(benchmark::State& state, Isa isa, PartialCode code) {
  const auto ranks = static_cast<uint32_t>(state.range(0));
  const auto d = static_cast<uint32_t>(state.range(1));
  const std::vector<std::byte> counts(PartialBytes(code, 2, d), std::byte{1});
  const std::byte* wire = counts.data();
  PartialSum sum(d);
  std::vector<float> out(d);
  for (auto _ : state) {
    sum.Start(2);
    for (uint32_t r = 0; r < ranks; ++r) sum.Add(code, wire);
    sum.Finish(isa, out.data());
    benchmark::DoNotOptimize(out.data());
  }
}

#define CLEAVE_SHAPES(name, isa)                                              \
  BENCHMARK_CAPTURE(Measure, name##_smol_f16, isa, KvType::kF16, 64, 3, 3)    \
      ->Args({1, 128})                                                        \
      ->Args({1, 1024})                                                       \
      ->Args({1, 2048})                                                       \
      ->Args({64, 512})                                                       \
      ->Args({512, 512})                                                      \
      ->Unit(benchmark::kMicrosecond);                                        \
  BENCHMARK_CAPTURE(Measure, name##_smol_int8, isa, KvType::kInt8, 64, 3, 3)  \
      ->Args({1, 128})                                                        \
      ->Args({1, 1024})                                                       \
      ->Args({1, 2048})                                                       \
      ->Args({512, 512})                                                      \
      ->Unit(benchmark::kMicrosecond);                                        \
  BENCHMARK_CAPTURE(Measure, name##_wide_bf16, isa, KvType::kBF16, 128, 8, 4) \
      ->Args({1, 1024})                                                       \
      ->Args({512, 512})                                                      \
      ->Unit(benchmark::kMicrosecond);                                        \
  BENCHMARK_CAPTURE(Measure, name##_single_f32, isa, KvType::kF32, 80, 4, 1)  \
      ->Args({1, 1024})                                                       \
      ->Args({512, 512})                                                      \
      ->Unit(benchmark::kMicrosecond)

CLEAVE_SHAPES(avx512, Isa::kAvx512);
CLEAVE_SHAPES(avx2, Isa::kAvx2);
BENCHMARK_CAPTURE(MeasurePartial, avx512, Isa::kAvx512)
    ->Args({1, 1024})
    ->Args({1, 2048})
    ->Args({512, 1024})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(MeasureMerge, avx512, Isa::kAvx512, PartialCode::Narrow(2, 1))
    ->ArgsProduct({{1, 2, 4}, {64, 128}});
BENCHMARK_CAPTURE(MeasureMerge, avx2, Isa::kAvx2, PartialCode::Narrow(2, 1))->Args({2, 64});
BENCHMARK_CAPTURE(MeasureMerge, wide, Isa::kAvx512, PartialCode::Wide(2, 1))->Args({2, 64});
BENCHMARK_CAPTURE(Measure, scalar_smol_f16, Isa::kScalar, KvType::kF16, 64, 3, 3)
    ->Args({1, 1024})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cleave

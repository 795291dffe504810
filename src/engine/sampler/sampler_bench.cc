// One token from one row (which is copied first), by vocabulary and rule:
//   cmake --preset release -DCLEAVE_BUILD_BENCH=ON && ninja -C build/release sampler_bench
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/sampler/logprobs.h"
#include "engine/sampler/sampler.h"

namespace cleave {
namespace {

// Like a model's: a broad bell of unlikely tokens and a few likely ones.
std::vector<float> ModelLikeRow(uint32_t vocab) {
  RngStream random(1);
  std::vector<float> row(vocab);
  for (float& x : row) {
    x = static_cast<float>((random.Uniform() + random.Uniform() + random.Uniform() - 1.5) * 4);
  }
  for (int i = 0; i < 40; ++i) row[random.Below(vocab)] = static_cast<float>(15 - 0.2 * i);
  return row;
}

void Run(benchmark::State& state, const SamplingParams& params) {
  const auto vocab = static_cast<uint32_t>(state.range(0));
  const Isa isa = ChooseIsa().value();
  Sampler sampler(isa, vocab, {2});
  const std::vector<float> row = ModelLikeRow(vocab);
  std::vector<float> logits = row;
  std::vector<int32_t> tokens(500, 1);
  for (auto _ : state) {
    tokens.push_back(1);
    std::copy(row.begin(), row.end(), logits.begin());
    benchmark::DoNotOptimize(sampler.Sample({&params, tokens, 400}, logits.data()));
    if (tokens.size() > 1000) tokens.resize(500);
  }
  state.SetLabel(std::string(IsaName(isa)));
}

void Greedy(benchmark::State& state) {
  SamplingParams p;
  p.temperature = 0;
  Run(state, p);
}
void Plain(benchmark::State& state) { Run(state, {}); }
void TopP(benchmark::State& state) {
  SamplingParams p;
  p.top_p = 0.9F;
  Run(state, p);
}
void TopKTopPPenalties(benchmark::State& state) {
  SamplingParams p;
  p.top_p = 0.9F;
  p.top_k = 40;
  p.repetition_penalty = 1.1F;
  p.frequency_penalty = 0.1F;
  Run(state, p);
}
void Logprobs(benchmark::State& state) {
  const auto vocab = static_cast<uint32_t>(state.range(0));
  LogprobCalculator calculator(ChooseIsa().value(), vocab);
  const std::vector<float> row = ModelLikeRow(vocab);
  for (auto _ : state) benchmark::DoNotOptimize(calculator.Calculate(row.data(), 5, 20));
}
BENCHMARK(Greedy)->Arg(49152)->Arg(262144)->Unit(benchmark::kMicrosecond);
BENCHMARK(Plain)->Arg(49152)->Arg(262144)->Unit(benchmark::kMicrosecond);
BENCHMARK(TopP)->Arg(49152)->Arg(262144)->Unit(benchmark::kMicrosecond);
BENCHMARK(TopKTopPPenalties)->Arg(49152)->Arg(262144)->Unit(benchmark::kMicrosecond);
BENCHMARK(Logprobs)->Arg(49152)->Arg(262144)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cleave

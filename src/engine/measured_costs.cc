#include "engine/measured_costs.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/rank_runner.h"
#include "kernels/isa.h"

namespace cleave {
namespace {

constexpr int kRuns = 5;

// So many layers that they are not in the nearest cache while they are measured.
constexpr uint32_t kMostLayers = 4;
// A measurement that is further than this from the multiply-adds was disturbed.
constexpr double kMostSurprise = 3;

// The whole width of the model, its first layers only.
Result<Layout> FirstLayers(const ModelShape& shape) {
  ASSIGN_OR_RETURN(Layout layout, MakeLayout(shape, {}, CostsByWork(shape)));
  layout.ranks.front().layers = {0, std::min(shape.num_layers, kMostLayers)};
  return layout;
}

// Of this thread: what others take of its core does not count.
uint64_t ProcessorNanos() {
  timespec t = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

uint64_t LeastNanos(uint64_t least, uint64_t start_ns) {
  return std::min(least, ProcessorNanos() - start_ns);
}

// A decoding step: every row one token of a sequence of its own, at the end of its context. Blocks
// hold zeros, all but the last shared.
struct DecodingStep {
  explicit DecodingStep(uint32_t block_tokens) : blocks(kCostContext / block_tokens) {
    for (uint32_t row = 0; row < kCostRows; ++row) {
      std::vector<int32_t>& table = tables[row];
      table.resize(blocks);
      std::iota(table.begin(), table.end(), 0);
      table.back() += static_cast<int32_t>(row);
      sequences[row] = {.first_position = kCostContext - 1, .tokens = 1, .block_table = table};
      wanted[row] = {.row = row, .use = RowUse::kHighest};
    }
  }
  [[nodiscard]] ForwardBatch batch() const {
    return {.token_ids = tokens, .sequences = sequences, .wanted = wanted};
  }

  uint32_t blocks;  // of a sequence
  std::array<int32_t, kCostRows> tokens{};
  std::array<std::vector<int32_t>, kCostRows> tables;
  std::array<BatchSequence, kCostRows> sequences;
  std::array<WantedRow, kCostRows> wanted;
};

RankOptions OptionsFor(const RankOptions& planned, const DecodingStep& step) {
  RankOptions options = planned;
  options.cpus.clear();
  options.threads = 1;  // more would meet each other, and on a crowded machine wait
  options.max_batch_tokens = options.max_sequences = kCostRows;
  options.max_positions = kCostContext;
  options.num_blocks = step.blocks + kCostRows;
  options.repacked_cache_dir.clear();  // what is measured is no rank's part
  return options;
}

}  // namespace

Result<LayerCosts> MeasureCosts(std::unique_ptr<Checkpoint> checkpoint, const ModelPlan& plan) {
  const ScopedFpMode fp_mode;
  const ModelShape& shape = plan.layout.shape;
  ASSIGN_OR_RETURN(const Layout layout, FirstLayers(shape));
  const DecodingStep step(plan.executor.kv_shape.block_tokens);
  ASSIGN_OR_RETURN(const std::unique_ptr<RankRunner> runner,
                   RankRunner::Create(std::move(checkpoint), OptionsFor(plan.executor, step),
                                      layout, 0, {}, nullptr));
  uint64_t layers_ns = std::numeric_limits<uint64_t>::max();
  uint64_t head_ns = layers_ns;
  for (int run = 0; run < kRuns; ++run) {
    uint64_t start_ns = ProcessorNanos();
    RETURN_IF_ERROR(runner->Forward(step.batch()));
    layers_ns = LeastNanos(layers_ns, start_ns);
    start_ns = ProcessorNanos();
    RETURN_IF_ERROR(
        runner->Results(step.wanted, [](uint32_t, const RowResult&) { return OkStatus(); }));
    head_ns = LeastNanos(head_ns, start_ns);
  }
  const double a_layer = static_cast<double>(layers_ns) / layout.ranks.front().layers.size();
  LayerCosts costs = CostsByWork(shape);
  const double expected = costs.head / costs.layers.front() * a_layer;
  costs.layers.assign(shape.num_layers, a_layer);
  costs.embedding = 0;  // a row is looked up
  costs.head =
      std::clamp(static_cast<double>(head_ns), expected / kMostSurprise, expected * kMostSurprise);
  return costs;
}

}  // namespace cleave

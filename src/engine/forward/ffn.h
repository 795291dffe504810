#pragma once
// Ffn: the second half of a layer, x += ffn(norm(x)), whatever its kind.
//
// Owner: the decoder. Run is called inside ThreadPool::Run on every thread with equal arguments and
// ends with all of them having met. No allocation after construction. An error of a group of its
// own is kept in status(): the rows then mean nothing.

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "engine/forward/rank_context.h"
#include "engine/forward/row_stages.h"
#include "engine/forward/row_sum.h"
#include "engine/forward/step_rows.h"
#include "split/traffic.h"

namespace cleave {

class Ffn {
 public:
  virtual ~Ffn() = default;
  // Before the threads run a step's layers.
  virtual void Plan(const StepRows& /*step*/) {}
  // `layer` counts from the rank's first one. x: [rows, D], the team's.
  virtual void Run(uint32_t layer, uint32_t rows, float* x, uint32_t thread) = 0;
  [[nodiscard]] virtual Status status() const { return OkStatus(); }
  // [E] tokens of each expert that are this rank's to count (comm/expert_counts.h), since the
  // start; empty where layers are dense.
  [[nodiscard]] virtual std::span<const uint64_t> expert_tokens() const { return {}; }
  // What the rank handed to others over ep, since the start.
  [[nodiscard]] virtual EpCounts ep_counts() const { return {}; }
};

// By the model and the cut: dense layers; experts whose columns are shared over tp; whole experts
// over the ep group.
std::unique_ptr<Ffn> MakeFfn(const RankContext& context, RowStages* stages, RowSum* sum);

}  // namespace cleave

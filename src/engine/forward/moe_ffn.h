#pragma once
// MoeFfn: the second half of a layer of experts, of each of which the rank holds its columns (or
// all, where it is alone).
//
//   h = norm(x)   x += Σ over the experts of x: gate · ffn_e(h), over the ranks (row_sum.h)
//
// Every rank routes all rows.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward/expert_block.h"
#include "engine/forward/ffn.h"
#include "engine/forward/router.h"

namespace cleave {

class MoeFfn final : public Ffn {
 public:
  MoeFfn(const RankContext& context, RowStages* stages, RowSum* sum);
  void Plan(const StepRows& step) override;
  void Run(uint32_t layer, uint32_t rows, float* x, uint32_t thread) override;
  [[nodiscard]] std::span<const uint64_t> expert_tokens() const override { return tokens_; }

 private:
  const RankContext& context_;
  RowSum* const sum_;
  Router router_;
  ExpertBlock experts_;
  std::vector<uint64_t> tokens_;  // [E]
  bool counts_ = true;            // this step's tokens
};

}  // namespace cleave

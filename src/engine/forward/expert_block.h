#pragma once
// ExpertBlock: what the experts held by a rank, or its columns of them, add to rows sent to them.
//
//   totals[t] = Σ over experts e of t held here:  gate · (act(h·Wgateᵀ) · (h·Wupᵀ))·Wdownᵀ
//   in quanta of row t, as integers: in any order, over any ranks (docs/arithmetic.md)
//
// Experts go by their slots: places in the rank's list of them (RankLayout::experts). A step: one
// thread assigns, all meet, all run. Rows of an expert lie side by side in every buffer ("pairs" of
// a row and an expert).
// Owner: a mixture's Ffn. Run is called inside ThreadPool::Run on every thread with equal
// arguments. No allocation after construction.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/forward/rank_context.h"
#include "engine/forward/row_stages.h"
#include "kernels/matmul.h"
#include "kernels/moe.h"

namespace cleave {

class ExpertBlock {
 public:
  // Rows prepared for the gates and ups held here, by ActKind.
  using Inputs = std::array<std::optional<ActBuffer>, 3>;

  // At most max_rows rows at once.
  ExpertBlock(const RankContext& context, uint32_t max_rows);

  // chosen and gates: [rows][top_k], slots; what is none (kElsewhere) is passed over.
  static constexpr uint32_t kElsewhere = UINT32_MAX;
  void Assign(const uint32_t* chosen, const float* gates, uint32_t rows);

  // Adds the assigned rows of each expert. tokens: [E], by expert.
  void CountTokens(std::vector<uint64_t>* tokens) const;

  // The assigned rows, in quanta 2^-shift[row]; thread t leaves `columns` of totals ([rows, D],
  // RowSum::ColumnsOf) and returns without meeting the others. Each thread reads its own `inputs`,
  // which may be one for all.
  void Run(uint32_t layer, const Inputs& inputs, const int32_t* shift, ThreadPool::Share columns,
           int64_t* totals, uint32_t thread);
  // [rows] 1 = the row's total may pass int32. Of the last Run, on thread 0.
  [[nodiscard]] const uint8_t* wide() const { return row_wide_.data(); }

 private:
  void Gather(uint32_t layer, const Inputs& inputs, uint32_t thread);
  void MakeHidden(const LayerWeights& w, uint32_t thread);
  void PrepareHidden(const LayerWeights& w, const int32_t* shift, uint32_t thread);
  void AddDown(const LayerWeights& w, const int32_t* shift, ThreadPool::Share columns,
               int64_t* totals, uint32_t thread);
  void DecideWide();
  [[nodiscard]] uint32_t pairs() const { return dispatch_.first(slots_); }

  const RankContext& context_;
  const SumRule sum_rule_;
  const uint32_t slots_;
  const uint32_t columns_;  // F of this rank
  const KPlan hidden_plan_;
  ExpertDispatch dispatch_;
  uint32_t rows_ = 0;

  std::vector<std::array<bool, 3>> input_kinds_;    // [layers] by ActKind
  Inputs gathered_;                                 // [pairs] by ActKind
  std::vector<float> gate_;                         // [pairs, F]
  std::vector<float> up_;                           // [pairs, F]
  std::array<std::optional<ActBuffer>, 3> hidden_;  // [pairs] by ActKind; int8 in two terms
  std::vector<double> bound_;                       // [pairs] of the pair's product, in quanta
  std::vector<uint8_t> pair_wide_;                  // [pairs]
  std::vector<double> row_bound_;                   // [rows]
  std::vector<uint8_t> row_wide_;                   // [rows]
};

}  // namespace cleave

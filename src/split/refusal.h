#pragma once
// Why a cut cannot be, and which would. Inside of MakeLayout. Pure; any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "split/layout.h"
#include "split/model_shape.h"
#include "split/split.h"

namespace cleave {

// What the ranks of one stage hold.
struct StageShares {
  std::vector<Range> q_heads;        // [tp]
  std::vector<Range> ffn_columns;    // [teams · tp · cp] by place in the stage
  std::vector<Range> vocab_rows;     // [tp]
  std::vector<Range> experts;        // [ep] in order, without copies; whole when ep is 1
  std::vector<uint64_t> ep_weights;  // [ep] where ep > 1
};
// Wants a split whose sizes CheckCut accepts.
StageShares SharesOfStage(const ModelShape& shape, const Split& split);

// kInvalidArgument with the number and its limit: a model that is none, costs
// that are none.
Status CheckShape(const ModelShape& shape, const LayerCosts& costs);
// Likewise for the split, of a shape that is good.
Status CheckCut(const ModelShape& shape, const Split& split);

// "pp=2 tp=6": its sizes that are not 1; "tp=1" where all are.
std::string Brief(const Split& split);

// For a split that CheckCut refuses: "layouts that work: pp=2 tp=6, pp=4 tp=3,
// tp=9", first those with as many ranks. Each was checked.
std::string LayoutsThatWork(const ModelShape& shape, const Split& split, const LayerCosts& costs);

}  // namespace cleave

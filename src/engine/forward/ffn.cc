#include "engine/forward/ffn.h"

#include "engine/forward/dense_ffn.h"
#include "engine/forward/ep_ffn.h"
#include "engine/forward/moe_ffn.h"

namespace cleave {

std::unique_ptr<Ffn> MakeFfn(const RankContext& context, RowStages* stages, RowSum* sum) {
  if (!context.config->has_experts()) return std::make_unique<DenseFfn>(context, stages, sum);
  if (context.comm.ep != nullptr) return std::make_unique<EpFfn>(context, stages, sum);
  return std::make_unique<MoeFfn>(context, stages, sum);
}

}  // namespace cleave

#include "kernels/lanes_avx2.h"
#include "kernels/logits_lanes.h"

namespace cleave {

const LogitsTable kLogitsAvx2 = LogitOps<Lanes>::Table();

}  // namespace cleave

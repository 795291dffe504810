#include "kernels/lanes_avx512.h"
#include "kernels/logits_lanes.h"

namespace cleave {

const LogitsTable kLogitsAvx512 = LogitOps<Lanes>::Table();

}  // namespace cleave

#include "kernels/lanes_avx2.h"
#include "kernels/vector_ops_lanes.h"

namespace cleave {

const VectorOpsTable kVectorOpsAvx2 = RowOps<Lanes>::Table();

}  // namespace cleave

#include "kernels/lanes_avx512.h"
#include "kernels/vector_ops_lanes.h"

namespace cleave {

const VectorOpsTable kVectorOpsAvx512 = RowOps<Lanes>::Table();

}  // namespace cleave

#include "kernels/attention_lanes.h"
#include "kernels/lanes_avx2.h"

namespace cleave::attention {

const Steps kStepsAvx2 = LaneSteps<Lanes, WideLanes>::Table();

}  // namespace cleave::attention

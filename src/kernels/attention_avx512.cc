#include "kernels/attention_lanes.h"
#include "kernels/lanes_avx512.h"

namespace cleave::attention {

const Steps kStepsAvx512 = LaneSteps<Lanes, WideLanes>::Table();

}  // namespace cleave::attention

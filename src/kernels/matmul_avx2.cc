#include "kernels/matmul_job.h"

namespace cleave {

void MatmulAvx2(const MatmulJob& job) { MatmulScalar(job); }
void QuantiseAvx2(const QuantiseJob& job) { QuantiseScalar(job); }
void RoundToBf16Avx2(const float* x, uint32_t n, uint16_t* out) { RoundToBf16Scalar(x, n, out); }

}  // namespace cleave

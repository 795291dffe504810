#include "kernels/matmul_job.h"

namespace cleave {

void MatmulAvx512(const MatmulJob& job) { MatmulScalar(job); }
void MatmulAvx512Bf16(const MatmulJob& job) { MatmulScalar(job); }
void QuantiseAvx512(const QuantiseJob& job) { QuantiseScalar(job); }
void RoundToBf16Avx512(const float* x, uint32_t n, uint16_t* out) { RoundToBf16Scalar(x, n, out); }

}  // namespace cleave

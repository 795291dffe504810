#include "kernels/read_stream.h"

#include <array>

#include "kernels/isa.h"
#include "kernels/read_stream_table.h"

namespace cleave {

uint64_t SumStreamsScalar(const uint64_t* first, const uint64_t* second, size_t count) {
  std::array<uint64_t, 8> sums{};  // loads do not wait for additions
  for (size_t i = 0; i < count; i += sums.size()) {
    for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += first[i + lane];
    for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += second[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

uint64_t SumWords(const uint64_t* words, size_t count) {
  static const auto sum_streams = CpuSupports(Isa::kAvx512) ? SumStreamsAvx512
                                  : CpuSupports(Isa::kAvx2) ? SumStreamsAvx2
                                                            : SumStreamsScalar;
  const size_t half = count / 2 / kStreamTurnWords * kStreamTurnWords;
  uint64_t sum = sum_streams(words, words + half, half);
  for (size_t i = 2 * half; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace cleave

#pragma once
// SumWords of every instruction set. Internal to kernels. Plain declarations only: sources of an
// instruction set include it (kernels/matmul_job.h says why).

#include <cstddef>
#include <cstdint>

namespace cleave {

// Words of two streams that a turn of the loop takes: four cache lines of each.
constexpr size_t kStreamTurnWords = 32;
// Words ahead of a stream that are fetched: 1 KB. Less is too late, twice as much 4 % slower.
constexpr size_t kStreamAheadWords = 128;

// `count` words of each stream, a multiple of kStreamTurnWords.
uint64_t SumStreamsScalar(const uint64_t* first, const uint64_t* second, size_t count);
uint64_t SumStreamsAvx2(const uint64_t* first, const uint64_t* second, size_t count);
uint64_t SumStreamsAvx512(const uint64_t* first, const uint64_t* second, size_t count);

}  // namespace cleave
